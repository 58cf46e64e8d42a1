"""Slice, Pad, Trilu and CenterCropPad: parts of tensors and room around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array


@op("Slice", until=10)
def slice_attributes(call: Call, x: Array) -> Array:
    """A part with step 1; bounds are attributes."""
    return _slice(x, call.ints("starts") or [], call.ints("ends") or [], call.ints("axes"), None)


@op("Slice", since=10)
def slice_inputs(
    call: Call, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    """A part; bounds are clamped, steps may be negative."""
    return _slice(
        x, starts.reshape(-1).tolist(), ends.reshape(-1).tolist(),
        None if axes is None else axes.reshape(-1).tolist(), None if steps is None else steps.reshape(-1).tolist(),
    )  # fmt: skip


def _slice(
    x: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Array:
    axes = axes if axes is not None else range(len(starts))
    steps = steps if steps is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(axes) > x.ndim:
        raise ShapeError(f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)} and steps differ in length")
    if len({axis % x.ndim for axis in axes}) < len(axes):
        raise ShapeError(f"axes {list(axes)} name one axis twice")
    cuts = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        where = normal_axis(axis, x.ndim)
        if step == 0:
            raise ShapeError(f"the step on axis {where} is 0; it must be another number")
        cuts[where] = _bounds(start, end, step, x.shape[where])
    return x[tuple(cuts)]


def _bounds(start: int, end: int, step: int, size: int) -> slice:
    start, end = start + size if start < 0 else start, end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step) if start > end else slice(0, 0)


@op("Pad", until=11)
def pad_attributes(call: Call, x: Array) -> Array:
    """Room around x; pads are attributes."""
    pads = call.ints("pads") or call.ints("paddings") or []
    return _pad(x, pads, range(x.ndim), call.text("mode"), np.asarray(call.number("value"), x.dtype))


@op("Pad", since=11)
def pad(call: Call, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
    """Room around x, or less of it where a pad is negative."""
    where = range(x.ndim) if axes is None else [normal_axis(int(a), x.ndim) for a in axes.reshape(-1)]
    fill = value.reshape(()) if value is not None and value.size else None
    return _pad(x, pads.reshape(-1).tolist(), where, call.text("mode"), fill)


def _pad(x: Array, pads: Sequence[int], axes: Sequence[int], mode: str, fill: Array | None) -> Array:
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"{len(pads)} pads for {len(axes)} axes; two per axis are needed")
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (int(pads[i]), int(pads[i + len(axes)]))
    cut = x[tuple(slice(max(-b, 0), max(n - max(-e, 0), max(-b, 0))) for (b, e), n in zip(widths, x.shape))]
    grow = [(max(b, 0), max(e, 0)) for b, e in widths]
    if any(n + b + e < 0 for (b, e), n in zip(widths, x.shape)):
        raise ShapeError(f"pads {list(pads)} cut more than {x.shape} has")
    if mode == "constant":
        shape = [n + b + e for n, (b, e) in zip(cut.shape, grow)]
        blank: object = "" if x.dtype == object else 0
        result = np.full(shape, blank if fill is None else fill, dtype=x.dtype)
        result[tuple(slice(b, b + n) for n, (b, _) in zip(cut.shape, grow))] = cut
        return result
    if mode not in ("reflect", "edge", "wrap"):
        raise InvalidModel(f"mode {mode!r} is not one that ONNX defines")
    for axis, amount in enumerate(grow):
        if any(amount):
            cut = np.take(cut, _outer_index(cut.shape[axis], amount, mode, axis), axis)
    return cut


def _outer_index(size: int, amount: tuple[int, int], mode: str, axis: int) -> Array:
    index = np.arange(-amount[0], size + amount[1])
    if size == 0:
        raise ShapeError(f"axis {axis} has no elements to repeat by mode {mode!r}")
    if mode == "edge":
        return np.clip(index, 0, size - 1)
    if mode == "wrap":
        return np.mod(index, size)
    period = max(2 * (size - 1), 1)
    turned = np.mod(index, period)
    return np.where(turned >= size, period - turned, turned)


@op("Trilu")
def trilu(call: Call, x: Array, k: Array | None = None) -> Array:
    """The upper or lower triangle of matrices, zero elsewhere."""
    offset = int(k.reshape(-1)[0]) if k is not None else 0
    if x.ndim < 2:
        raise ShapeError(f"matrices are needed, got {x.shape}")
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    keep = columns - rows >= offset if call.integer("upper") else columns - rows <= offset
    return np.where(keep, x, np.zeros((), x.dtype))


@op("CenterCropPad")
def center_crop_pad(call: Call, x: Array, shape: Array) -> Array:
    """The middle of x, or x in the middle of zeros, along each axis."""
    axes = [normal_axis(a, x.ndim) for a in call.ints("axes") or range(x.ndim)]
    if shape.size != len(axes):
        raise ShapeError(f"shape {shape.tolist()} for {len(axes)} axes; one size per axis is needed")
    for axis, wanted in zip(axes, shape.reshape(-1).tolist()):
        extra = wanted - x.shape[axis]
        if extra < 0:
            x = np.take(x, np.arange(-extra // 2, -extra // 2 + wanted), axis)
        elif extra > 0:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (extra // 2, extra - extra // 2)
            pads = [b for b, _ in widths] + [e for _, e in widths]
            x = _pad(x, pads, range(x.ndim), "constant", None)
    return x
