"""Tensors from nothing, or from a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.attributes import dense
from webrt.host.registry import Call, op
from webrt.host.values import Array, HostValue, is_narrow, np_dtype, wide


@op("Constant")
def constant(call: Call) -> Array:
    """The tensor of whichever attribute is set."""
    a = call.attributes
    for name in ("value", "sparse_value"):
        if a.get(name) is not None:
            return a[name] if isinstance(a[name], np.ndarray) else dense(a[name])
    if a.get("value_string") is not None:
        return _text([a["value_string"]]).reshape(())
    if a.get("value_strings") is not None:
        return _text(a["value_strings"])
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64),
                        ("value_ints", np.int64)):  # fmt: skip
        if a.get(name) is not None:
            return np.asarray(a[name], dtype)
    raise InvalidModel("Constant has no value; re-export the model")


def _text(words: list[str]) -> Array:
    result = np.empty(len(words), dtype=object)
    result[:] = words
    return result


@op("ConstantOfShape")
def constant_of_shape(call: Call, shape: Array) -> Array:
    """One value in a given shape, float32 zero by default."""
    value = call.tensor("value")
    if (shape < 0).any():
        raise ShapeError(f"shape {shape.tolist()} has a negative size")
    fill = np.zeros(1, np.float32) if value is None else value
    if fill.size != 1:
        raise InvalidModel(f"the value has {fill.size} elements; it must have one")
    return np.full(tuple(int(n) for n in shape.reshape(-1)), fill.reshape(-1)[0], dtype=fill.dtype)


@op("Shape")
def shape_of(call: Call, x: Array) -> Array:
    """The sizes of x, or those from `start` to `end`."""
    start, end = int(call.get("start", 0)), call.get("end")
    return np.array(x.shape[_clamp(start, x.ndim) : _clamp(x.ndim if end is None else int(end), x.ndim)], np.int64)


def _clamp(position: int, rank: int) -> int:
    return min(max(position + rank if position < 0 else position, 0), rank)


@op("Size")
def size_of(call: Call, x: Array) -> Array:
    """The number of elements."""
    return np.asarray(x.size, np.int64)


@op("Range")
def range_of(call: Call, start: Array, limit: Array, delta: Array) -> Array:
    """start, start + delta … below the limit."""
    dtype = start.dtype
    first, last, step = (v.reshape(-1)[0].item() if not is_narrow(dtype) else float(wide(v).reshape(-1)[0])
                         for v in (start, limit, delta))  # fmt: skip
    if step == 0:
        raise ShapeError("delta is 0; it must be another number")
    count = max(-((first - last) // step) if dtype.kind in "iu" else int(np.ceil((last - first) / step)), 0)
    work: Any = dtype if dtype.kind in "iu" else np.float64 if dtype == np.float64 else np.float32
    return np.asarray(np.asarray(first, work) + np.arange(count).astype(work) * np.asarray(step, work)).astype(dtype)


@op("EyeLike")
def eye_like(call: Call, x: Array) -> Array:
    """A matrix in x's shape with ones on a diagonal."""
    if x.ndim != 2:
        raise ShapeError(f"a matrix is needed, got {x.shape}")
    dtype = x.dtype if call.get("dtype") is None else np_dtype(call.integer("dtype"))
    return np.eye(x.shape[0], x.shape[1], k=call.integer("k")).astype(dtype)


@op("Optional")
def optional(call: Call, value: HostValue = None) -> HostValue:
    """The value itself, or none."""
    return value


@op("OptionalHasElement")
def optional_has_element(call: Call, value: HostValue = None) -> Array:
    """Whether there is a value."""
    return np.asarray(value is not None)


@op("OptionalGetElement")
def optional_get_element(call: Call, value: HostValue) -> HostValue:
    """The value; none is an error."""
    if value is None:
        raise ValueError("the optional holds no value")
    return value
