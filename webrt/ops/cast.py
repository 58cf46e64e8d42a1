"""Cast and CastLike among all types that devices hold, with C's conversions as x86 does them; BitCast.

To floats of 8 bits by the tables of ONNX's Cast: what is too large saturates, or becomes infinity or NaN.
"""

from __future__ import annotations

from webrt import dtypes as T
from webrt.dtypes import DType
from webrt.errors import InvalidModel
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Formula, Info, op
from webrt.ops.elementwise import kind, launch
from webrt.ops.view import element_type

ROUND_MODES = ("up", "down", "nearest")
"""In the order of `f8_power` of lib/float8."""
LARGEST = {T.F8E4M3FN: 448.0, T.F8E4M3FNUZ: 240.0, T.F8E5M2: 57344.0, T.F8E5M2FNUZ: 57344.0}

# (from, to) class of arithmetic → expression over x. Narrow integers wrap in the store.
_CONVERT: dict[tuple[str, str], str] = {
    ("f", "b"): "(bitcast<u32>(x) & 0x7fffffffu) != 0u", ("i", "b"): "x != 0i", ("u", "b"): "x != 0u",
    ("l", "b"): "(x.x | x.y) != 0u", ("m", "b"): "(x.x | x.y) != 0u",
    ("b", "f"): "select(0.0, 1.0, x)", ("b", "i"): "select(0i, 1i, x)", ("b", "u"): "select(0u, 1u, x)",
    ("b", "l"): "vec2<u32>(select(0u, 1u, x), 0u)", ("b", "m"): "vec2<u32>(select(0u, 1u, x), 0u)",
    ("f", "i"): "i32_from_f32(x)", ("f", "u"): "bitcast<u32>(i32_from_f32(x))",
    ("f", "l"): "i64_from_f32(x)", ("f", "m"): "u64_from_f32(x)",
    ("i", "f"): "f32(x)", ("u", "f"): "f32(x)", ("l", "f"): "f32_from_i64(x)", ("m", "f"): "f32_from_u64(x)",
    ("i", "u"): "bitcast<u32>(x)", ("u", "i"): "bitcast<i32>(x)",
    ("i", "l"): "i64_from_i32(x)", ("i", "m"): "i64_from_i32(x)",
    ("u", "l"): "i64_from_u32(x)", ("u", "m"): "i64_from_u32(x)",
    ("l", "i"): "bitcast<i32>(x.x)", ("m", "i"): "bitcast<i32>(x.x)", ("l", "u"): "x.x", ("m", "u"): "x.x",
}  # fmt: skip


def _cast_shape(n: Node) -> list[Info]:
    return [(dtype_of(n.attr("to")), n.input(0).shape)]


def _like_shape(n: Node) -> list[Info]:
    return [(n.input(1).dtype, n.input(0).shape)]


@op("Cast", since=6, shape=_cast_shape)
def cast(n: Node, b: Builder) -> None:
    convert(b, n.output(), n.input(0), bool(n.attr("saturate", 1)), str(n.attr("round_mode", "up")))


@op("CastLike", since=15, shape=_like_shape)
def cast_like(n: Node, b: Builder) -> None:
    convert(b, n.output(), n.input(0), bool(n.attr("saturate", 1)), str(n.attr("round_mode", "up")))


@op("BitCast", since=26, shape=_cast_shape)
def bit_cast(n: Node, b: Builder) -> None:
    source, target = element_type(n.input(0)), element_type(n.output())
    if source.width != target.width:
        raise InvalidModel(f"the bits of {source} cannot be read as {target}: their widths differ")
    b.alias(n.output(), n.input(0))


def convert(b: Builder, out: Value, x: Value, saturate: bool = True, round_mode: str = "up") -> None:
    """out = x in out's type. Raises UnsupportedType for types that devices do not hold."""
    source, target = element_type(x), element_type(out)
    if source == target:
        b.alias(out, x)
        return
    text = conversion(source, target)
    use = ("int64", "convert") if "f32_" in text or "_f32" in text else ("int64",) if "i64_" in text else ()
    launch(b, out, {"x": x}, Formula(f"return {saturated(text, target, saturate, round_mode)};", use), "cast")


def saturated(text: str, target: DType, saturate: bool, round_mode: str = "up") -> str:
    """WGSL for an f32 that is about to be stored as `target` (needs lib/float8, which such a binding brings).

    Raises InvalidModel for a rounding mode that ONNX does not have."""
    if target == T.F8E8M0:
        if round_mode not in ROUND_MODES:
            raise InvalidModel(f"round_mode is {round_mode!r}; ONNX has {', '.join(ROUND_MODES)}")
        return f"f8_power({text}, {ROUND_MODES.index(round_mode)}u, {'true' if saturate else 'false'})"
    return f"f8_saturate({text}, {LARGEST[target]})" if saturate and target in LARGEST else text


def conversion(source: DType, target: DType) -> str:
    """WGSL that turns `x` of one type into another (needs lib/int64 and lib/convert)."""
    if kind(source) == "f" and target == T.U32:
        return "i64_from_f32(x).x"
    if source == T.U32 and kind(target) == "f":
        return "f32_from_u32(x)"
    return _CONVERT.get((kind(source), kind(target)), "x")
