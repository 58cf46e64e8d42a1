"""Operators that make tensors from little: ConstantOfShape, EyeLike, Range, OneHot, Trilu, ReverseSequence."""

from __future__ import annotations

import math

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InvalidModel, NotConstant, ShapeError, UnsupportedType
from webrt.ir import Node, Value, dtype_of
from webrt.lowering import Builder, Info, normalize_axis, op, require, same_as_first
from webrt.ops.indices import index_fns
from webrt.ops.view import bits_of, coordinates, element_type, movable, raw, unit, unit_type


def _filled_type(n: Node) -> DType:
    attribute = n.attrs.get("value")
    return T.F32 if attribute is None else dtype_of(attribute.t.data_type)


def _filled_shape(n: Node) -> list[Info]:
    shape = n.dims(0)
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative size")
    return [(_filled_type(n), shape)]


def _bit_words(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> tuple[int, int]:
    """The first element's bits, as often as 64 bits hold them, as the low and the high 32-bit word."""
    data = value.reshape(-1)[:1].tobytes()
    data *= 8 // len(data)
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little")


def _eye_type(n: Node) -> DType | None:
    code = n.attr("dtype")
    return n.input(0).dtype if code is None else dtype_of(code)


def _number(v: Value) -> Dim | float:
    """The single number that a value holds; raises NotConstant."""
    if v.contents is not None and v.contents.size == 1:
        return v.contents.flat[0]  # type: ignore[no-any-return]
    if v.const is None:
        raise NotConstant(f"the number in {v.name!r} is not known before the run", wanted=v.name, roots=v.roots)
    if v.const.size != 1:
        raise InvalidModel(f"{v!r} must hold one number")
    item = v.const.reshape(-1)[0].item()
    return item if isinstance(item, float) else int(item)


def _range_count(n: Node) -> Dim:
    start, limit, delta = (_number(v) for v in n.inputs[:3] if v is not None)
    if delta == 0:
        raise ShapeError("a Range with delta 0")
    if isinstance(start, float) or isinstance(limit, float) or isinstance(delta, float):
        if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in (start, limit, delta)):
            raise NotConstant("the length of a Range of floats is not known before the run")
        return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)  # type: ignore[arg-type]
    if isinstance(delta, int) and delta < 0:
        start, limit, delta = limit, start, -delta
    return D.maximum(D.ceildiv(D.sub(limit, start), delta), 0)


def _one_hot_axis(n: Node) -> int:
    return normalize_axis(n.attr("axis", -1), n.input(0).rank + 1)


def _depth(n: Node) -> Dim:
    depth = _number(n.input(1))
    return int(depth) if isinstance(depth, float) else depth


def _one_hot_shape(n: Node) -> list[Info]:
    shape, axis = n.input(0).known_shape, _one_hot_axis(n)
    return [(n.input(2).dtype, (*shape[:axis], _depth(n), *shape[axis:]))]


@op("ConstantOfShape", since=9, shape=_filled_shape)
def constant_of_shape(n: Node, b: Builder) -> None:
    out = n.output()
    movable(out)
    value = n.attr("value")
    low, high = (0, 0) if value is None else _bit_words(value)
    bits = bits_of(out)
    kind, vec = unit_type(bits * unit(bits, [out.elements]))
    pair = "vec2<u32>(p.low, p.high)"
    text = f"vec4<u32>({pair}, {pair})" if vec == 4 else pair if kind == T.U64 else "p.low"
    words: dict[str, Dim | float] = {"low": low, "high": high}
    b.map(out, f"return {text};", params=words, as_type={"out": kind}, vec={"out": vec}, name="fill")


@op("EyeLike", since=9, shape=lambda n: [(_eye_type(n), n.input(0).known_shape)])
def eye_like(n: Node, b: Builder) -> None:
    out = n.output()
    if out.rank != 2:
        raise ShapeError(f"needs a matrix, got rank {out.rank}")
    one = "vec2<u32>(1u, 0u)" if element_type(out) in T.INTS64 else "Out(1)"
    text = f"""let at = i32(i % p.columns) - i32(i / p.columns);
if (at == i32(p.k)) {{ return {one}; }}
return Out();"""
    k = max(-(2**31), min(2**31 - 1, int(n.attr("k", 0))))
    b.map(out, text, params={"columns": out.known_shape[1], "k": k}, name="eye")


@op("Range", since=11, shape=lambda n: [(n.input(0).dtype, (_range_count(n),))])
def range_(n: Node, b: Builder) -> None:
    out, start, delta = n.output(), _number(n.input(0)), _number(n.input(2))
    dtype = element_type(out)
    text = {
        "f32": "return bitcast<f32>(p.start) + f32(i) * bitcast<f32>(p.delta);",
        "i32": "return i32(p.start + i * p.delta);",
        "u32": "return p.start + i * p.delta;",
        "vec2<u32>": "let by = i64_mul(vec2<u32>(i, 0u), i64_from_i32(i32(p.delta)));\n"
        "return i64_add(i64_from_i32(i32(p.start)), by);",
    }
    if dtype.wgsl == "f32":
        start, delta = float(start), float(delta)  # type: ignore[arg-type]
    elif dtype in T.INTS64 and any(isinstance(x, int) and not -(2**31) <= x < 2**31 for x in (start, delta)):
        raise UnsupportedType(f"a Range of {dtype} from {start} by {delta}, beyond 32 bits")
    b.map(out, text[dtype.wgsl], params={"start": start, "delta": delta}, name="range")


@op("OneHot", since=9, shape=_one_hot_shape, inputs="*, *, 2")
def one_hot(n: Node, b: Builder) -> None:
    """An index in -depth … depth-1 is hot at its place, any other nowhere."""
    indices, values, axis = n.input(0), n.input(2), _one_hot_axis(n)
    movable(indices, values)
    b.check(D.le(0, _depth(n)), f"OneHot: depth {_depth(n)} is negative")
    inner = D.prod(indices.known_shape[axis:])
    text = """let j = i % p.inner;
let t = i / p.inner;
let hot = wrapped_indices((t / p.depth) * p.inner + j, p.depth) == t % p.depth;
return load_values(select(0u, 1u, hot));"""
    b.map(
        n.output(), text, reads={"indices": indices, "values": values}, params={"inner": inner, "depth": _depth(n)},
        fns=index_fns("indices", indices), as_type=raw(("values", values), ("out", n.output())), name="one_hot",
    )  # fmt: skip


@op("Trilu", since=14, shape=same_as_first)
def trilu(n: Node, b: Builder) -> None:
    x = n.input(0)
    if x.rank < 2:
        raise ShapeError(f"needs a matrix, got rank {x.rank}")
    k = _number(n.input(1)) if n.has(1) else 0
    if isinstance(k, int):
        k = max(-(2**31 - 1), min(2**31 - 1, k))
    kept = "at >= i32(p.k)" if n.attr("upper", 1) else "at <= i32(p.k)"
    rows, columns = x.known_shape[-2:]
    text = f"""let at = i32(i % p.columns) - i32((i / p.columns) % p.rows);
if ({kept}) {{ return load_x(i); }}
return Out();"""
    params: dict[str, Dim | float] = {"rows": rows, "columns": columns, "k": k}
    b.map(n.output(), text, reads={"x": x}, params=params, as_type=raw(("x", x), ("out", x)), name="trilu")


def _reverse_inputs(n: Node) -> str:
    return "_ B *, B" if n.attr("batch_axis", 1) == 1 else "B *, B"


@op("ReverseSequence", since=10, shape=same_as_first, inputs=_reverse_inputs)
def reverse_sequence(n: Node, b: Builder) -> None:
    x, lens = n.input(0), n.input(1)
    require([lens], T.I64)
    time, batch = int(n.attr("time_axis", 0)), int(n.attr("batch_axis", 1))
    if sorted((time, batch)) != [0, 1] or x.rank < 2:
        raise InvalidModel(f"time axis {time} and batch axis {batch} of rank {x.rank}")
    shape = x.known_shape
    b.check(
        D.eq(lens.elements, shape[batch]), f"ReverseSequence: {lens.elements} lengths for {shape[batch]} batch entries"
    )
    inner = D.prod(shape[2:])
    text, params = coordinates([shape[0], shape[1], inner])
    params["longest"] = shape[time]
    text += f"""let len = min(load_lens(c{batch}).x, p.longest);
if (c{time} >= len) {{ return load_x(i); }}
let t = len - 1u - c{time};
return load_x(({"t * p.d1 + c1" if time == 0 else "c0 * p.d1 + t"}) * p.d2 + c2);"""
    b.map(
        n.output(), text, reads={"x": x, "lens": lens}, params=params,
        as_type=raw(("x", x), ("out", x)), name="reverse_sequence",
    )  # fmt: skip
