"""Sampling at arbitrary places: GridSample and AffineGrid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def reflect(x: Array, low: float, high: float) -> Array:
    """Coordinates mirrored at two borders until they lie between them."""
    width = high - low
    if width <= 0:
        return np.zeros_like(x) + low
    period = np.mod(x - low, 2 * width)
    return np.asarray(low + np.where(period > width, 2 * width - period, period)).astype(x.dtype)


def _cubic_weights(t: Array) -> list[Array]:
    """Keys' weights, a = -0.75, for the four neighbours of a fraction t."""
    a = -0.75

    def near(d: Array) -> Array:
        return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)

    def far(d: Array) -> Array:
        return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _axis_taps(x: Array, mode: str) -> list[tuple[Array, Array]]:
    """(index, weight) of the neighbours along one axis."""
    base = np.floor(x)
    if mode == "nearest":
        return [(base.astype(np.int64), np.ones_like(x))]
    t = x - base
    if mode == "linear":
        return [(base.astype(np.int64), 1 - t), (base.astype(np.int64) + 1, t)]
    return [(base.astype(np.int64) + i - 1, w) for i, w in enumerate(_cubic_weights(t))]


def _inside(index: Array, size: int, padding: str, low: float, high: float) -> tuple[Array, Array]:
    """A legal index, and 0 where the element counts as zero."""
    valid = (index >= 0) & (index < size)
    if padding == "reflection":
        index = np.trunc(reflect(index.astype(np.float64), low, high)).astype(np.int64)
        valid = np.ones_like(valid)
    elif padding == "border":
        valid = np.ones_like(valid)
    return np.clip(index, 0, size - 1), valid


def sample(
    x: Array, coordinates: Sequence[Array], mode: str = "linear", padding: str = "zeros", corners: bool = False
) -> Array:
    """x [N, C, spatial] at coordinates [N, P] per spatial axis, in elements: [N, C, P]."""
    batch = np.arange(x.shape[0])[:, None]
    rows = np.moveaxis(x, 1, -1)
    axes = []
    for size, at in zip(x.shape[2:], coordinates):
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        axes.append([(*_inside(i, size, padding, low, high), w) for i, w in _axis_taps(at, mode)])
    total = np.zeros((x.shape[0], coordinates[0].shape[1], x.shape[1]), x.dtype)
    for combination in itertools.product(*axes):
        weight = np.ones(coordinates[0].shape, x.dtype)
        for _, valid, w in combination:
            weight = np.where(valid, weight * w, 0)
        taken = rows[(batch, *(i for i, _, _ in combination))]
        total += np.where(weight[..., None] != 0, taken * weight[..., None].astype(x.dtype), 0)
    return np.moveaxis(total, -1, 1)


@op("GridSample")
def grid_sample(call: Call, x: Array, grid: Array) -> Array:
    """x at the places that a grid of coordinates in [-1, 1] names, last axis first."""
    mode = _MODES.get(call.text("mode"), call.text("mode"))
    padding, corners = call.text("padding_mode"), bool(call.integer("align_corners"))
    rank = x.ndim - 2
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise InvalidModel(f"mode {mode!r} with padding_mode {padding!r} is not what ONNX defines")
    if grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ShapeError(f"grid {grid.shape} does not fit X {x.shape}; it must be [N, …, {rank}]")
    flat = wide(grid).reshape(x.shape[0], -1, rank)
    at = []
    for axis, size in enumerate(x.shape[2:]):
        n = flat[..., rank - 1 - axis]
        c = (n + 1) / 2 * (size - 1) if corners else ((n + 1) * size - 1) / 2
        c = np.rint(c) if mode == "nearest" else c
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        outside = (c < low) | (c > high)
        if padding == "border" and mode != "cubic":  # cubic limits each neighbour instead, as PyTorch does
            c = np.where(outside, np.clip(c, 0, size - 1), c)
        elif padding == "reflection":
            c = np.where(outside, reflect(c, low, high), c)
        at.append(c.astype(flat.dtype))
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if not np.prod(shape):
        return np.zeros(shape, x.dtype)
    work = wide(x) if x.dtype.kind == "f" else x.astype(np.float64)
    return sample(work, at, mode, padding, corners).reshape(shape).astype(x.dtype)


@op("AffineGrid")
def affine_grid(call: Call, theta: Array, size: Array) -> Array:
    """The grid for GridSample that an affine map makes: [N, H, W, 2] or [N, D, H, W, 3]."""
    spatial = [int(v) for v in size[2:]]
    if theta.shape[1:] != (len(spatial), len(spatial) + 1):
        raise ShapeError(f"theta {theta.shape} does not fit size {size.tolist()}")
    corners = bool(call.integer("align_corners"))
    lines = []
    for n in spatial:
        if corners:
            lines.append(np.linspace(-1, 1, n) if n > 1 else np.zeros(1))
        else:
            lines.append((np.arange(n) * 2 + 1) / n - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(spatial)], -1).reshape(-1, len(spatial) + 1)
    moved = points @ theta.astype(np.float64).swapaxes(1, 2)
    return moved.reshape(theta.shape[0], *spatial, len(spatial)).astype(theta.dtype)
