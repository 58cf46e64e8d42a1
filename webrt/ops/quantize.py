"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: per tensor, per axis and blocked.

y = saturate(round_half_even(x / scale) + zero_point); the quotient is rounded to the type that the operator names (its
`precision`, else the scale's). NaN gives the smallest value, as numpy's casts do. Floats of 4 and 8 bits are rounded
to the type and not to integers, and saturate as Cast does. Source: the ONNX operator texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Formula, Info, Shape, normalize_axis, op, require
from webrt.ops.cast import saturated
from webrt.ops.elementwise import kind, launch
from webrt.ops.nearest import nearest, told_apart
from webrt.ops.reduce import extreme
from webrt.ops.rows import Rows, fold_rows
from webrt.ops.view import element_type

MS = "com.microsoft"
_QUANTIZED = (T.I8, T.U8, T.I16, T.U16, *T.SMALL_INTS, *T.FLOATS8, T.F4E2M1)

_ROUNDED = {
    T.F16: ("unpack2x16float(f16_bits({})).x", ("half",)),
    T.BF16: ("bitcast<f32>(bf16_bits({}) << 16u)", ("half",)),
}
"""How a quotient is rounded to a narrow type, and the library for it."""


@dataclass
class _Source:
    """What a kernel reads and how: the pieces of its text for scale and zero point ("" where there is none)."""

    scale: str
    zero: str
    reads: dict[str, Value] = field(default_factory=dict)
    params: dict[str, Dim | float] = field(default_factory=dict)
    fns: list[str] = field(default_factory=list)


def _source(n: Node, b: Builder) -> _Source:
    """Scalars that are constants go into the params, all else into buffers read at `at(i)`."""
    scale, zero = n.input(1), n.input(2) if n.has(2) else None
    require([scale], *T.FLOATS, T.I32, T.F8E8M0)
    require([zero], *_QUANTIZED, T.I32)
    if zero is not None:
        _same_shape(n, b, scale.known_shape, zero.known_shape)
    out = _Source("", "")
    known = _known(n)
    if known is not None:
        out.params["scale"], out.params["zero"] = known
        out.scale, out.zero = "bitcast<f32>(p.scale)", "i32(p.zero)" if zero is not None else ""
        return out
    place = "0u"
    if scale.static_shape is None or math.prod(scale.static_shape) != 1:
        place = "at(i)"
        _place(n, b, out)
    out.reads["scale"], out.scale = scale, f"f32(load_scale({place}))"
    if zero is not None:
        out.reads["zero"] = zero
        out.zero = f"load_zero({place})" if kind(zero) == "f" else f"i32(load_zero({place}))"
    return out


def _same_shape(n: Node, b: Builder, scale: Shape, zero: Shape) -> None:
    """Zero points have the scales' shape, or both are one number."""
    if D.prod(scale) == 1 == D.prod(zero):
        return
    if len(scale) != len(zero):
        raise ShapeError(f"zero points of shape {list(zero)} for scales of shape {list(scale)}")
    for have, want in zip(zero, scale):
        b.check(D.eq(have, want), f"zero points of shape {list(zero)} for scales of shape {list(scale)}")


def _known(n: Node) -> tuple[float, int] | None:
    """One scale and one integer zero point for the whole tensor, where they are constants of numpy's own types."""
    scale = n.input(1).const
    zero = n.input(2).const if n.has(2) else np.zeros(1, np.int32)
    if scale is None or zero is None or scale.size != 1 or scale.dtype.kind not in "fi" or zero.dtype.kind not in "iu":
        return None
    return float(scale.astype(np.float32).flat[0]), int(zero.flat[0])


def _place(n: Node, b: Builder, out: _Source) -> None:
    """`at(i)`: which scale belongs to element i."""
    shape, scale = n.input(0).known_shape, n.input(1).known_shape
    axis, block = normalize_axis(n.attr("axis", 1), len(shape)), int(n.attr("block_size", 0))
    wanted = [D.ceildiv(d, block) if k == axis else d for k, d in enumerate(shape)] if block else [shape[axis]]
    if len(scale) != len(wanted):
        raise ShapeError(f"scales of shape {list(scale)}, expected {wanted}")
    for d, want in zip(scale, wanted):
        b.check(D.eq(d, want), f"{n.op_type}: scales of shape {list(scale)}, expected {wanted}")
    if not block:
        rows = Rows.of(shape, [k for k in range(len(shape)) if k != axis])
        out.params |= rows.sizes("at")
        out.fns.append(rows.index("at", "at"))
        return
    out.params |= {
        "inner": D.prod(shape[axis + 1 :]), "size": shape[axis], "blocks": scale[axis], "block": block,
    }  # fmt: skip
    out.fns.append(
        "fn at(i: u32) -> u32 {\n  let c = i / p.inner;\n"
        "  return ((c / p.size) * p.blocks + (c % p.size) / p.block) * p.inner + i % p.inner;\n}"
    )


def _quantized(n: Node) -> DType:
    if n.has(2):
        found = n.input(2).dtype
        return found if found is not None else T.U8
    return dtype_of(n.attr("output_dtype", 0) or T.U8.code)


def _quantize_shape(n: Node) -> list[Info]:
    return [(_quantized(n), n.input(0).shape)]


@op("QuantizeLinear", shape=_quantize_shape, domain=MS)
@op("QuantizeLinear", shape=_quantize_shape)
def quantize_linear(n: Node, b: Builder) -> None:
    x, out = n.input(0), n.output()
    require([x], *T.FLOATS, T.I32)
    require([out], *_QUANTIZED)
    precision = dtype_of(n.attr("precision", 0) or (n.input(1).dtype or T.F32).code)
    s, known = _source(n, b), _known(n)
    text, use = _ROUNDED.get(precision, ("{}", ()))
    quotient = text.format(f"f32_div(f32(load_x(i)), {s.scale})")
    if kind(out) == "f":
        moved = f"{quotient} + {s.zero}" if "zero" in s.reads else quotient
        result = saturated(moved, element_type(out), bool(n.attr("saturate", 1)))
        params, fns = s.params, s.fns
    elif known is not None:
        _quantize_by_numbers(b, out, x, s, known, text, use)
        return
    else:
        result = f"Out(quantize({quotient}, {s.zero or '0'}))"
        params, fns = {**s.params, **quantized_range(out.dtype)}, [*s.fns, QUANTIZE]
    b.map(
        out, f"return {result};", reads={"x": x, **s.reads}, params=params, fns=fns, use=(*use, "nan", "divide"),
        name="quantize",
    )  # fmt: skip


def _quantize_by_numbers(
    b: Builder, out: Value, x: Value, s: _Source, known: tuple[float, int], rounded: str, use: tuple[str, ...]
) -> None:
    """The same with one known scale and zero point, as a formula that other kernels can take in."""
    zero, number, span = s.zero or "0", element_type(out).wgsl, quantized_range(out.dtype)
    if rounded == "{}" and span["high"] - span["low"] < 256 and told_apart(known[0]):
        launch(b, out, {"x": x}, nearest(*known, span["low"], span["high"], number), "quantize")
        return
    text = (
        f"let q = {rounded.format(f'f32_div(f32(x), {s.scale})')}; let low = i32(p.low) - {zero}; "
        f"let high = i32(p.high) - {zero}; let r = select(i32(clamp(round(q), f32(low), f32(high))), low, is_nan(q)); "
        f"return {number}(r + {zero});"
    )
    launch(b, out, {"x": x}, Formula(text, (*use, "nan", "divide"), {**s.params, **span}, in_range=True), "quantize")


QUANTIZE = """fn quantize(quotient: f32, zero: i32) -> i32 {
  let low = i32(p.low) - zero;
  let high = i32(p.high) - zero;
  if (is_nan(quotient)) { return low + zero; }
  return i32(clamp(round(quotient), f32(low), f32(high))) + zero;
}"""


def quantized_range(dtype: DType | None) -> Mapping[str, int]:
    """The smallest and the largest quantized value."""
    bits = dtype.width if dtype is not None else 8
    low = -(2 ** (bits - 1)) if dtype in T.SIGNED else 0
    return {"low": low, "high": low + 2**bits - 1}


def _dequantize_shape(n: Node) -> list[Info]:
    asked = n.attr("output_dtype", 0)
    return [(dtype_of(asked) if asked else n.input(1).dtype, n.input(0).shape)]


@op("DequantizeLinear", shape=_dequantize_shape, domain=MS)
@op("DequantizeLinear", shape=_dequantize_shape)
def dequantize_linear(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], *_QUANTIZED, T.I32)
    require([n.output()], *T.FLOATS)
    s = _source(n, b)
    number = "x" if kind(x) == "f" else "i32(x)"
    moved = f"{number} - {s.zero}" if s.zero else number
    text = f"return f32({moved}) * {s.scale};"
    if not s.reads:
        launch(b, n.output(), {"x": x}, Formula(text, params=s.params), "dequantize")
        return
    b.map(
        n.output(), f"let x = load_x(i); {text}", reads={"x": x, **s.reads}, params=s.params, fns=s.fns,
        name="dequantize",
    )  # fmt: skip


def _dynamic_shape(n: Node) -> list[Info]:
    infos: list[Info] = [(T.U8, n.input(0).shape), (T.F32, ()), (T.U8, ())]
    return infos[: len(n.outputs)]


@op("DynamicQuantizeLinear", shape=_dynamic_shape)
def dynamic_quantize_linear(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], T.F32)
    rows = Rows.of(x.known_shape, range(x.rank))
    low, high = b.temp(T.F32, ()), b.temp(T.F32, ())
    for out, largest in ((low, False), (high, True)):
        fold_rows(b, out, x, rows, replace(extreme(T.F32, largest), params={"first": 0.0}), name="range")
    scale = n.output(1) if n.wants(1) else b.temp(T.F32, ())
    zero = n.output(2) if n.wants(2) else b.temp(T.U8, ())
    b.map(
        scale, "let width = load_high(0u) - load_low(0u);\nreturn select(f32_div(width, 255.0), 1.0, width == 0.0);",
        reads={"low": low, "high": high}, use=("divide",), name="dynamic_scale",
    )  # fmt: skip
    b.map(
        zero, "return u32(round(clamp(f32_div(-load_low(0u), load_scale(0u)), 0.0, 255.0)));",
        reads={"low": low, "scale": scale}, use=("divide",), name="dynamic_zero",
    )  # fmt: skip
    b.map(
        n.output(), "return u32(quantize(f32_div(load_x(i), load_scale(0u)), i32(load_zero(0u))));",
        reads={"x": x, "scale": scale, "zero": zero}, params=quantized_range(T.U8), fns=[QUANTIZE],
        use=("nan", "divide"), name="dynamic_quantize",
    )  # fmt: skip
