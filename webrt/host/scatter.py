"""Writing by index. Of duplicates the last one wins, or they are combined."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.gather import checked
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide

_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _write(result: Array, places: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    if reduction == "none":
        result[places] = updates
        return result
    if reduction not in _COMBINE:
        raise InvalidModel(f"reduction {reduction!r} is not one that ONNX defines")
    total = wide(result)
    _COMBINE[reduction].at(total, places, wide(updates))
    return total.astype(result.dtype, copy=False)


@op("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Array, indices: Array, updates: Array) -> Array:
    """A copy of x with each update at its index along an axis, and its own place on the others."""
    axis = normal_axis(call.integer("axis"), x.ndim)
    if indices.shape != updates.shape or indices.ndim != x.ndim:
        raise ShapeError(f"indices {indices.shape} and updates {updates.shape} must have one shape of rank {x.ndim}")
    if any(n > m for i, (n, m) in enumerate(zip(indices.shape, x.shape)) if i != axis):
        raise ShapeError(f"indices {indices.shape} do not fit into {x.shape} beside axis {axis}")
    if not indices.size:
        return x.copy()
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = checked(indices, x.shape[axis], f"axis {axis}")
    return _write(x.copy(), tuple(places), updates, str(call.get("reduction", "none")))


@op("ScatterND")
def scatter_nd(call: Call, x: Array, indices: Array, updates: Array) -> Array:
    """A copy of x with update slices at index tuples, the last axis of `indices`."""
    depth = indices.shape[-1]
    if depth > x.ndim or updates.shape != indices.shape[:-1] + x.shape[depth:]:
        raise ShapeError(f"updates {updates.shape} must be {indices.shape[:-1] + x.shape[depth:]}")
    flat = indices.reshape(-1, depth)
    places = tuple(checked(flat[:, i], x.shape[i], f"axis {i}") for i in range(depth))
    reduction = str(call.get("reduction", "none"))
    if depth == 0:
        whole = (np.zeros(len(flat), np.int64),)
        return np.asarray(_write(x.copy()[None], whole, updates.reshape(-1, *x.shape), reduction)[0])
    return _write(x.copy(), places, updates.reshape(-1, *x.shape[depth:]), reduction)


@op("TensorScatter")
def tensor_scatter(call: Call, past: Array, update: Array, starts: Array | None = None) -> Array:
    """A cache with new rows written from each sample's index on; circular mode wraps round."""
    axis = normal_axis(call.integer("axis"), past.ndim)
    rows, room = update.shape[axis], past.shape[axis]
    begin = np.zeros(past.shape[0], np.int64) if starts is None else starts.astype(np.int64)
    if rows > room or [n for i, n in enumerate(past.shape) if i != axis] != [
        n for i, n in enumerate(update.shape) if i != axis
    ]:
        raise ShapeError(f"update {update.shape} does not fit into the cache {past.shape} along axis {axis}")
    at = begin[:, None] + np.arange(rows)
    if call.text("mode") == "circular":
        at = at % room
    elif begin.size and (int(at.min(initial=0)) < 0 or int(at.max(initial=0)) >= room):
        raise IndexError(f"rows up to {int(at.max())} are written into a cache of {room}")
    result = past.copy()
    moved, source = np.moveaxis(result, axis, 1), np.moveaxis(update, axis, 1)
    moved[np.arange(past.shape[0])[:, None], at] = source
    return result
