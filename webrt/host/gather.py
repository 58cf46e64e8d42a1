"""Reading by index. An index outside its axis is an error; negative ones count from the end where ONNX allows it."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array


def checked(indices: Array, size: int, what: str) -> Array:
    """Indices counted from the front; raises IndexError for one outside [-size, size - 1]."""
    if indices.size and (int(indices.min()) < -size or int(indices.max()) >= size):
        wrong = int(indices.max()) if int(indices.max()) >= size else int(indices.min())
        raise IndexError(f"index {wrong} is out of range for {what} of size {size}")
    if indices.dtype.kind == "u":
        return indices.astype(np.int64)
    return np.where(indices < 0, indices + size, indices)


@op("Gather")
def gather(call: Call, x: Array, indices: Array) -> Array:
    """Slices of x along an axis."""
    if x.ndim == 0:
        raise ShapeError("a scalar has no axis to gather from")
    axis = normal_axis(call.integer("axis"), x.ndim)
    return np.take(x, checked(indices, x.shape[axis], f"axis {axis}"), axis)


@op("GatherElements")
def gather_elements(call: Call, x: Array, indices: Array) -> Array:
    """One element of x for each index, from the same place on all other axes."""
    axis = normal_axis(call.integer("axis"), x.ndim)
    if indices.ndim != x.ndim or any(n > m for i, (n, m) in enumerate(zip(indices.shape, x.shape)) if i != axis):
        raise ShapeError(f"indices {indices.shape} do not fit into {x.shape} beside axis {axis}")
    cut = x[tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))]
    return np.take_along_axis(cut, checked(indices, x.shape[axis], f"axis {axis}"), axis)


@op("GatherND")
def gather_nd(call: Call, x: Array, indices: Array) -> Array:
    """Slices of x at index tuples, the last axis of `indices`; the first `batch_dims` axes are shared."""
    batch = int(call.get("batch_dims", 0))
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or depth > x.ndim - batch or indices.shape[:batch] != x.shape[:batch]:
        raise ShapeError(f"indices {indices.shape} with batch_dims {batch} do not fit {x.shape}")
    lead = np.indices(indices.shape[:batch] + (1,) * (indices.ndim - 1 - batch), sparse=True)[:batch]
    tail = tuple(checked(indices[..., i], x.shape[batch + i], f"axis {batch + i}") for i in range(depth))
    if not (*lead, *tail):
        return np.broadcast_to(x, indices.shape[:-1] + x.shape).copy()
    return np.asarray(x[(*lead, *tail)])


@op("Compress")
def compress(call: Call, x: Array, condition: Array) -> Array:
    """Slices where a condition holds; what lies behind the condition's end is left out."""
    axis = call.get("axis")
    flat = x.reshape(-1) if axis is None else x
    where = 0 if axis is None else normal_axis(int(axis), x.ndim)
    if condition.size > flat.shape[where] and condition[flat.shape[where] :].any():
        raise IndexError(f"the condition chooses beyond axis {where} of size {flat.shape[where]}")
    return np.take(flat, np.flatnonzero(condition), where)


@op("OneHot")
def one_hot(call: Call, indices: Array, depth: Array, values: Array) -> Array:
    """`values[1]` where the new axis equals an index, `values[0]` elsewhere."""
    count = int(depth.reshape(-1)[0])
    if count < 0:
        raise ShapeError(f"depth is {count}; it must not be negative")
    axis = normal_axis(call.integer("axis"), indices.ndim + 1)
    index = indices.astype(np.int64)
    index = np.expand_dims(np.where(index < 0, index + count, index), axis)
    line = np.arange(count).reshape((-1,) + (1,) * (indices.ndim - axis))
    return np.asarray(np.where(index == line, values[1], values[0])).astype(values.dtype)


@op("NonZero")
def non_zero(call: Call, x: Array) -> Array:
    """Index tuples of non-zero elements, one row per axis."""
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.stack(np.nonzero(x)).astype(np.int64)
