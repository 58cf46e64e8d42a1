"""Unique."""

from __future__ import annotations

import numpy as np

from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array


@op("Unique")
def unique(call: Call, x: Array) -> tuple[Array, Array, Array, Array]:
    """Distinct elements, or distinct slices along an axis; with first places, inverse and counts."""
    axis = call.get("axis")
    where = None if axis is None else normal_axis(int(axis), x.ndim)
    values, first, inverse, counts = _distinct(x, where)
    if not call.integer("sorted"):
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values = np.take(values, order, 0 if where is None else where)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, first.astype(np.int64), inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _distinct(x: Array, axis: int | None) -> tuple[Array, Array, Array, Array]:
    if axis is not None and x.dtype == object:
        codes = np.unique(x.reshape(-1), return_inverse=True)[1].reshape(x.shape)
        _, first, inverse, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        return np.take(x, first, axis), first, inverse.reshape(-1), counts
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    return values, first, inverse.reshape(-1), counts
