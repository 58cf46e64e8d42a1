"""Resize and Upsample. Interpolation is separable: each axis gets taps and weights, applied one axis after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide


@dataclass(frozen=True)
class Axis:
    """One axis to resize: sizes before and after, the scale between them, and the crop for tf_crop_and_resize."""

    axis: int
    before: int
    after: int
    scale: float
    start: float
    end: float


def coordinates(mode: str, a: Axis, dtype: type[np.floating] = np.float64) -> Array:
    """Where each output element lies in the input, in the ways that coordinate_transformation_mode names."""
    x, one = np.arange(a.after, dtype=dtype), dtype(1)
    scale, half = dtype(a.scale), dtype(0.5)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and a.after > 1):
        return np.asarray((x + half) / scale - half)
    if mode == "pytorch_half_pixel":
        return np.zeros_like(x)
    if mode == "half_pixel_symmetric":
        offset = dtype(a.before / 2 * (1 - a.after / (a.scale * a.before)))
        return np.asarray(offset + (x + half) / scale - half)
    if mode == "asymmetric":
        return np.asarray(x / scale)
    if mode == "tf_half_pixel_for_nn":
        return np.asarray((x + half) / scale)
    if mode == "align_corners":
        width = a.scale * a.before
        return np.zeros_like(x) if width == 1 or a.after == 1 else np.asarray(x * (a.before - one) / dtype(width - 1))
    if mode == "tf_crop_and_resize":
        return _cropped(a)
    raise InvalidModel(f"coordinate_transformation_mode {mode!r} is not one that ONNX defines")


def _cropped(a: Axis) -> Array:
    """tf_crop_and_resize in float32, since whether a coordinate lies outside is decided on its last bit."""
    f = np.float32
    last, start, end = f(a.before - 1), f(a.start), f(a.end)
    if a.after <= 1:
        return np.full(a.after, f(0.5) * (start + end) * last)
    return np.asarray(start * last + np.arange(a.after, dtype=f) * (end - start) * last / f(a.after - 1))


def nearest_index(x: Array, mode: str, before: int, scale: float) -> Array:
    """The input index for each coordinate; `simple` is what opset 10 does: up when scaling down, else down."""
    if mode == "simple":
        mode = "ceil" if scale < 1 else "floor"
    if mode == "round_prefer_floor":
        found = np.ceil(x - x.dtype.type(0.5))
    elif mode == "round_prefer_ceil":
        found = np.floor(x + x.dtype.type(0.5))
    elif mode in ("floor", "ceil"):
        found = np.floor(x) if mode == "floor" else np.ceil(x)
    else:
        raise InvalidModel(f"nearest_mode {mode!r} is not one that ONNX defines")
    return np.asarray(np.clip(found.astype(np.int64), 0, before - 1))


def _kernel(x: Array, mode: str, a: float) -> Array:
    """The filter's height at a distance: a triangle, or Keys' cubic with coefficient a."""
    d = np.abs(x)
    if mode == "linear":
        return np.asarray(np.clip(1 - d, 0, 1))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def taps(x: Array, axis: Axis, mode: str, antialias: bool, exclude: bool, a: float) -> tuple[Array, Array]:
    """Indices and weights [after, taps] of an interpolation at coordinates x; edges repeat."""
    stretch = min(axis.scale, 1.0) if antialias else 1.0
    reach = 1 if mode == "linear" else 2
    first = int(np.floor(-reach / stretch)) + 1
    base = np.ceil(x) - 1  # the left neighbour; an integer coordinate counts as the right one
    offsets = np.arange(first, 2 - first)
    index = base[:, None] + offsets
    weights = _kernel((index - x[:, None]) * stretch, mode, a)
    if exclude:
        weights = np.where((index < 0) | (index >= axis.before), 0, weights)
    if exclude or antialias:
        weights = weights / np.sum(weights, 1, keepdims=True)
    return np.clip(index, 0, axis.before - 1).astype(np.int64), weights


def _interpolate(x: Array, axis: int, index: Array, weights: Array) -> Array:
    shape = (-1,) + (1,) * (x.ndim - 1 - axis)
    total: Array | None = None
    for t in range(index.shape[1]):
        if not weights[:, t].any():
            continue
        term = np.take(x, index[:, t], axis) * weights[:, t].astype(x.dtype).reshape(shape)
        total = term if total is None else np.add(total, term, out=total)
    return np.take(x, index[:, 0], axis) * 0 if total is None else total


def resize(call: Call, x: Array, axes: Sequence[Axis], mode: str, coordinate: str, nearest: str) -> Array:
    """x resized along some axes."""
    result = x if mode == "nearest" else wide(x)
    if result.dtype.kind in "iub" and mode != "nearest":
        result = x.astype(np.float64 if x.dtype.itemsize > 2 else np.float32)
    outside: list[tuple[int, Array]] = []
    for a in axes:
        if a.before == 0 and a.after:
            raise ShapeError(f"axis {a.axis} has no elements to resize to {a.after}; feed at least one")
        if coordinate == "tf_crop_and_resize":
            at = coordinates(coordinate, a)
            outside.append((a.axis, (at < 0) | (at > a.before - 1)))
        if a.after == 0 or (a.after == a.before and a.scale == 1 and coordinate != "tf_crop_and_resize"):
            result = np.take(result, np.arange(a.after), a.axis) if a.after == 0 else result
        elif mode == "nearest":
            where = nearest_index(coordinates(coordinate, a, np.float32), nearest, a.before, a.scale)
            result = np.take(result, where, a.axis)
        else:
            index, weights = taps(
                coordinates(coordinate, a), a, mode, bool(call.get("antialias", 0)),
                bool(call.get("exclude_outside", 0)), float(call.get("cubic_coeff_a", -0.75)),
            )  # fmt: skip
            result = _interpolate(result, a.axis, index, weights)
    result = result.astype(x.dtype, copy=False)
    for axis, mask in outside:
        if mask.any():
            keep = np.logical_not(mask).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
            result = np.where(keep, result, np.asarray(call.get("extrapolation_value", 0.0), x.dtype))
    return result


def _scaled(before: int, extent: float, scale: float) -> int:
    """floor(before * extent * scale), in float32 as ONNX Runtime computes it."""
    return int(np.floor(np.float32(before) * np.float32(extent) * np.float32(scale)))


@op("Upsample", since=7, until=9)
def upsample_attribute(call: Call, x: Array) -> Array:
    """Resize by scales in an attribute."""
    return _upsample(call, x, call.floats("scales"))


@op("Upsample", since=9)
def upsample(call: Call, x: Array, scales: Array) -> Array:
    """Resize by scales in an input."""
    return _upsample(call, x, scales.tolist())


@op("Resize", since=10, until=11)
def resize_10(call: Call, x: Array, scales: Array) -> Array:
    """Opset 10: asymmetric coordinates only."""
    return _upsample(call, x, scales.tolist())


def _upsample(call: Call, x: Array, scales: Sequence[float]) -> Array:
    if len(scales) != x.ndim:
        raise ShapeError(f"{len(scales)} scales for rank {x.ndim}; one per axis is needed")
    axes = [Axis(i, n, _scaled(n, 1, s), float(s), 0, 1) for i, (n, s) in enumerate(zip(x.shape, scales))]
    return resize(call, x, axes, "linear" if call.text("mode") != "nearest" else "nearest", "asymmetric", "simple")


@op("Resize", since=11)
def resize_11(
    call: Call, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """Resize by scales or to sizes, in every mode."""
    mode = call.text("mode")
    if mode not in ("nearest", "linear", "cubic"):
        raise InvalidModel(f"mode {mode!r} is not one that ONNX defines")
    coordinate = call.text("coordinate_transformation_mode")
    where = [normal_axis(a, x.ndim) for a in call.ints("axes") or range(x.ndim)]
    crop = roi.astype(np.float64).tolist() if roi is not None and coordinate == "tf_crop_and_resize" else []
    if coordinate == "tf_crop_and_resize" and len(crop) != 2 * len(where):
        raise ShapeError(f"roi has {len(crop)} entries for {len(where)} axes; two per axis are needed")
    crop = crop or [0.0] * len(where) + [1.0] * len(where)
    starts, ends = crop[: len(where)], crop[len(where) :]
    if scales is not None and scales.size:
        axes = _by_scales(x, where, scales, starts, ends)
    elif sizes is not None and sizes.size:
        axes = _by_sizes(x, where, sizes, starts, ends, str(call.get("keep_aspect_ratio_policy", "stretch")))
    else:
        raise ShapeError("neither scales nor sizes is given; feed one of them")
    return resize(call, x, axes, mode, coordinate, call.text("nearest_mode"))


def _by_scales(
    x: Array, where: Sequence[int], scales: Array, starts: Sequence[float], ends: Sequence[float]
) -> list[Axis]:
    if scales.size != len(where):
        raise ShapeError(f"{scales.size} scales for {len(where)} axes; one per axis is needed")
    return [
        Axis(a, x.shape[a], _scaled(x.shape[a], e - s, float(f)), float(f), s, e)
        for a, f, s, e in zip(where, scales.tolist(), starts, ends)
    ]


def _by_sizes(
    x: Array, where: Sequence[int], sizes: Array, starts: Sequence[float], ends: Sequence[float], policy: str
) -> list[Axis]:
    if sizes.size != len(where):
        raise ShapeError(f"{sizes.size} sizes for {len(where)} axes; one per axis is needed")
    wanted = [int(v) for v in sizes]
    ratios = [n / x.shape[a] if x.shape[a] else 1.0 for n, a in zip(wanted, where)]
    if policy != "stretch":
        common = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [common] * len(where)
        wanted = [int(np.floor(common * x.shape[a] + 0.5)) for a in where]
    return [Axis(a, x.shape[a], n, r, s, e) for a, n, r, s, e in zip(where, wanted, ratios, starts, ends)]
