"""Convolution in any number of dimensions, and its integer forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt.errors import ShapeError, UnsupportedOp
from webrt.host.matmul import requantize
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide
from webrt.host.windows import Windows, make_windows

_CHUNK = 1 << 24  # elements of a column matrix that is made at once


def convolve(call: Call, x: Array, w: Array) -> Array:
    """x [N, C, spatial] with w [M, C / group, kernel], no bias; in x's type, sums included."""
    group = int(call.get("group", 1))
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ShapeError(f"X {x.shape} and W {w.shape} must have one rank of at least 3")
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ShapeError(f"X has {x.shape[1]} channels, W {w.shape} in {group} groups takes {w.shape[1] * group}")
    declared = call.ints("kernel_shape")
    if declared and tuple(declared) != w.shape[2:]:
        raise ShapeError(f"kernel_shape is {declared}, W has {list(w.shape[2:])}; they must agree")
    windows = make_windows(call, x.shape[2:], w.shape[2:])
    shape = (x.shape[0], w.shape[0], *windows.sizes)
    if not np.prod(shape):
        return np.zeros(shape, x.dtype)
    if w.shape[1] == 1 and group > 1:
        return _depthwise(x, w, windows, group)
    return _columns(x, w, windows, group).reshape(shape)


def _depthwise(x: Array, w: Array, windows: Windows, group: int) -> Array:
    """One input channel per group: sum of shifted inputs, each times a number per channel."""
    padded, many = windows.pad(x, 0), w.shape[0] // group
    taps = w.reshape(w.shape[0], *w.shape[2:])
    total: Array | None = None
    for position, view in windows.views(padded):
        shifted = np.repeat(view, many, 1) if many > 1 else view
        spot: tuple[Any, ...] = (slice(None), *position)
        term = shifted * taps[spot].reshape((-1,) + (1,) * (x.ndim - 2))
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None
    return total


def _columns(x: Array, w: Array, windows: Windows, group: int) -> Array:
    """Kernel positions unrolled into a matrix, multiplied by the filters; in slabs of the first spatial axis."""
    n, c = x.shape[:2]
    rows = c // group * int(np.prod(windows.kernel))
    filters = w.reshape(group, w.shape[0] // group, rows)
    if windows.trivial:
        flat = np.ascontiguousarray(x).reshape(n, group, rows, -1)
        return np.asarray(np.matmul(filters, flat))
    padded = windows.pad(x, 0)
    inner = int(np.prod(windows.sizes[1:]))
    slab = max(1, _CHUNK // max(1, n * c * int(np.prod(windows.kernel)) * inner))
    views = [view for _, view in windows.views(padded)]
    parts = []
    for start in range(0, windows.sizes[0], slab):
        cut = [view[:, :, start : start + slab] for view in views]
        stacked = np.stack(cut, 2).reshape(n, group, rows, -1)
        parts.append(np.matmul(filters, stacked).reshape(n, w.shape[0], -1, inner))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 2)


def add_bias(y: Array, bias: Array | None) -> Array:
    """y [N, M, …] plus one number per channel."""
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ShapeError(f"the bias is {bias.shape}, the output has {y.shape[1]} channels; they must agree")
    return np.asarray(y + wide(bias).reshape((-1,) + (1,) * (y.ndim - 2)))


@op("Conv")
def conv(call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Convolution with an optional bias."""
    return add_bias(convolve(call, wide(x), wide(w)), bias).astype(x.dtype, copy=False)


def integer_convolve(call: Call, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None) -> Array:
    """The exact int32 convolution of 8-bit tensors, zero points taken off; w's zero point may be one per filter."""
    left = x.astype(np.float64) - (0 if x_zero is None else float(x_zero.reshape(-1)[0]))
    right = w.astype(np.float64)
    if w_zero is not None:
        z = w_zero.astype(np.float64).reshape(-1)
        right = right - (z[0] if z.size == 1 else z.reshape((-1,) + (1,) * (w.ndim - 1)))
    if right[0].size * 2**16 < 2**24:
        left, right = left.astype(np.float32), right.astype(np.float32)
    return convolve(call, left, right).astype(np.int64).astype(np.int32)


@op("ConvInteger")
def conv_integer(call: Call, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None) -> Array:
    """Convolution of 8-bit integers into int32."""
    return integer_convolve(call, x, w, x_zero, w_zero)


@op("QLinearConv")
def qlinear_conv(
    call: Call, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array,
    y_zero: Array, bias: Array | None = None,
) -> Array:  # fmt: skip
    """Convolution of quantised tensors, requantised; the filters' scales may be one per filter."""
    exact = integer_convolve(call, x, w, x_zero, w_zero)
    if bias is not None:
        exact = exact + bias.reshape((-1,) + (1,) * (x.ndim - 2))
    scale = np.asarray(x_scale.reshape(-1)[0] * w_scale.reshape(-1) / y_scale.reshape(-1)[0], np.float32)
    steps = exact.astype(np.float32) * scale.reshape((-1,) + (1,) * (x.ndim - 2))
    return requantize(steps, y_zero)


@op("CausalConvWithState", since=27)
def causal_conv(
    call: Call, x: Array, w: Array, bias: Array | None = None, past: Array | None = None
) -> tuple[Array, Array]:
    """A depthwise convolution over the past; returns the output and the last k - 1 inputs."""
    activation = str(call.get("activation", "none"))
    keep = w.shape[2] - 1
    before = np.zeros((*x.shape[:2], keep), x.dtype) if past is None else past
    joined = np.concatenate([before, x], 2)
    windows = make_windows(call, joined.shape[2:], w.shape[2:])
    y = add_bias(_depthwise(wide(joined), wide(w), windows, x.shape[1]), bias).astype(x.dtype)
    if activation in ("silu", "swish"):
        v = y.astype(np.float32)
        y = (v / (1 + np.exp(-v))).astype(x.dtype)
    elif activation != "none":
        raise UnsupportedOp(f"activation {activation!r}")
    return y, joined[:, :, joined.shape[2] - keep :]
