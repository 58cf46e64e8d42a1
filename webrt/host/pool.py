"""Pooling in any number of dimensions."""

from __future__ import annotations

import math

import numpy as np

from webrt.errors import ShapeError
from webrt.host.reduce import lowest
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide
from webrt.host.windows import Windows, make_windows


def pool_windows(call: Call, x: Array) -> Windows:
    """The windows that a pooling node makes over x [N, C, spatial]."""
    kernel = call.ints("kernel_shape")
    if kernel is None or x.ndim < 3:
        raise ShapeError(f"pooling takes kernel_shape and an input of rank 3 or more, got {x.shape}")
    return make_windows(call, x.shape[2:], kernel, bool(call.get("ceil_mode", 0)))


@op("MaxPool")
def max_pool(call: Call, x: Array) -> tuple[Array, ...]:
    """The largest element of each window, and where it is, counted over the whole input."""
    windows = pool_windows(call, x)
    values = wide(x)
    padded = windows.pad(values, lowest(values.dtype))
    if not call.wants(1):
        best: Array | None = None
        for _, view in windows.views(padded):
            best = view.copy() if best is None else np.maximum(best, view, out=best)
        assert best is not None
        return (best.astype(x.dtype, copy=False),)
    return _with_indices(call, x, padded, windows)


def _with_indices(call: Call, x: Array, padded: Array, windows: Windows) -> tuple[Array, Array]:
    steps = _flat_steps(windows.spatial, bool(call.get("storage_order", 0)))
    where = np.full((1, 1, *windows.spatial), 0, np.int64)
    for axis, step in enumerate(steps):
        where = where + (np.arange(windows.spatial[axis]) * step).reshape(
            (1, 1, *tuple(-1 if i == axis else 1 for i in range(len(steps))))
        )
    inside = Windows.pad(windows, where, -1)
    best, index = None, None
    for (_, view), (_, at) in zip(windows.views(padded), windows.views(inside)):
        if best is None or index is None:
            best, index = view.copy(), np.broadcast_to(at, view.shape).copy()
            continue
        better = ((view > best) | (np.isnan(view) & ~np.isnan(best)) | (index < 0)) & (at >= 0)
        best, index = np.where(better, view, best), np.where(better, at, index)
    assert best is not None and index is not None
    n, c = x.shape[:2]
    base = np.arange(n * c).reshape((n, c) + (1,) * len(windows.spatial)) * math.prod(windows.spatial)
    return best.astype(x.dtype, copy=False), index + base


def _flat_steps(spatial: tuple[int, ...], column_major: bool) -> list[int]:
    order = range(len(spatial)) if column_major else reversed(range(len(spatial)))
    steps, step = [0] * len(spatial), 1
    for axis in order:
        steps[axis] = step
        step *= spatial[axis]
    return steps


def window_sums(windows: Windows, x: Array) -> Array:
    """The sum of each window of x [N, C, spatial], zeros outside."""
    total: Array | None = None
    for _, view in windows.views(windows.pad(x, 0)):
        total = view.copy() if total is None else np.add(total, view, out=total)
    assert total is not None
    return total


def window_counts(windows: Windows, pads_count: bool) -> Array:
    """How many elements each window averages: those of the input, and of the pads where they count."""
    ones = np.zeros((1, 1, *windows.padded), np.float64)
    if pads_count:
        area = [slice(0, b + n + e) for b, n, e in zip(windows.begin, windows.spatial, windows.end)]
    else:
        area = [slice(b, b + n) for b, n in zip(windows.begin, windows.spatial)]
    ones[(slice(None), slice(None), *area)] = 1
    total: Array = np.zeros((1, 1, *windows.sizes))
    for _, view in windows.views(ones):
        total = total + view
    return total


@op("AveragePool")
def average_pool(call: Call, x: Array) -> Array:
    """The mean of each window."""
    windows = pool_windows(call, x)
    counts = window_counts(windows, bool(call.get("count_include_pad", 0)))
    values = wide(x)
    return np.asarray(window_sums(windows, values) / counts.astype(values.dtype)).astype(x.dtype, copy=False)


@op("LpPool")
def lp_pool(call: Call, x: Array) -> Array:
    """The p-norm of each window."""
    p = float(call.get("p", 2))
    sums = window_sums(pool_windows(call, x), np.abs(wide(x)) ** p)
    return (sums ** (1 / p)).astype(x.dtype)


def _spatial_axes(x: Array) -> tuple[int, ...]:
    if x.ndim < 2:
        raise ShapeError(f"global pooling takes [N, C, …], got {x.shape}")
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(call: Call, x: Array) -> Array:
    """The mean over all spatial axes."""
    return np.asarray(np.mean(wide(x), axis=_spatial_axes(x), keepdims=True)).astype(x.dtype)


@op("GlobalMaxPool")
def global_max_pool(call: Call, x: Array) -> Array:
    """The maximum over all spatial axes."""
    return np.asarray(np.max(x, axis=_spatial_axes(x), keepdims=True))


@op("GlobalLpPool")
def global_lp_pool(call: Call, x: Array) -> Array:
    """The p-norm over all spatial axes."""
    p = float(call.get("p", 2))
    total = np.sum(np.abs(wide(x)) ** p, axis=_spatial_axes(x), keepdims=True)
    return np.asarray(total ** (1 / p)).astype(x.dtype)


@op("MaxUnpool")
def max_unpool(call: Call, x: Array, indices: Array, output_shape: Array | None = None) -> Array:
    """Elements put back where MaxPool's indices say; they count in the pooled input, whose shape the node implies."""
    kernel = call.ints("kernel_shape") or []
    rank = len(kernel)
    strides, pads = call.ints("strides") or [1] * rank, call.ints("pads") or [0] * (2 * rank)
    implied = [
        (n - 1) * s - pads[i] - pads[i + rank] + k for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel))
    ]
    shape = (*x.shape[:2], *implied)
    flat = np.zeros(math.prod(shape), x.dtype)
    if np.min(indices, initial=0) < 0:
        raise IndexError(f"index {int(indices.min())} is negative")
    flat[indices.reshape(-1)] = x.reshape(-1)
    if output_shape is None:
        return flat.reshape(shape)
    result = np.zeros(tuple(int(v) for v in output_shape), x.dtype)
    if result.ndim != x.ndim or any(have < need for have, need in zip(result.shape, shape)):
        raise ShapeError(f"output_shape {result.shape} is smaller than {shape}; make it at least that")
    result[tuple(slice(0, n) for n in shape)] = flat.reshape(shape)
    return result
