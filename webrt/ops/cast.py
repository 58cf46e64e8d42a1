"""Cast and CastLike among all types that devices hold, with C's conversions as x86 does them; BitCast."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.dtypes import DType
from webrt.errors import InvalidModel
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Formula, Info, op
from webrt.ops.elementwise import kind, launch
from webrt.ops.view import element_type

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
    convert(b, n.output(), n.input(0))


@op("CastLike", since=15, shape=_like_shape)
def cast_like(n: Node, b: Builder) -> None:
    convert(b, n.output(), n.input(0))


@op("BitCast", since=26, shape=_cast_shape)
def bit_cast(n: Node, b: Builder) -> None:
    source, target = element_type(n.input(0)), element_type(n.output())
    if source.bits != target.bits:
        raise InvalidModel(f"the bits of {source} cannot be read as {target}: their widths differ")
    b.alias(n.output(), n.input(0))


def convert(b: Builder, out: Value, x: Value) -> None:
    """out = x in out's type. Raises UnsupportedType for types that devices do not hold."""
    source, target = element_type(x), element_type(out)
    if source == target:
        b.alias(out, x)
        return
    text = conversion(source, target)
    use = ("int64", "convert") if "f32_" in text or "_f32" in text else ("int64",) if "i64_" in text else ()
    launch(b, out, {"x": x}, Formula(f"return {text};", use), "cast")


def conversion(source: DType, target: DType) -> str:
    """WGSL that turns `x` of one type into another (needs lib/int64 and lib/convert)."""
    if source in T.FLOATS and target == T.U32:
        return "i64_from_f32(x).x"
    if source == T.U32 and target in T.FLOATS:
        return "f32_from_u32(x)"
    return _CONVERT.get((kind(source), kind(target)), "x")
