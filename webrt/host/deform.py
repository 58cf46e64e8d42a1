"""Deformable convolution: each kernel tap of each window samples at a shifted place."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.conv import add_bias
from webrt.host.grid import sample
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide
from webrt.host.windows import Windows, make_windows


@op("DeformConv")
def deform_conv(
    call: Call, x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None
) -> Array:
    """Convolution at sampling places that `offset` moves and weights that `mask` scales."""
    group, shifted = int(call.get("group", 1)), int(call.get("offset_group", 1))
    windows = make_windows(call, x.shape[2:], w.shape[2:])
    taps, rank, n = int(np.prod(windows.kernel)), x.ndim - 2, x.shape[0]
    expected = (n, shifted * taps * rank, *windows.sizes)
    if offset.shape != expected or x.shape[1] != w.shape[1] * group or x.shape[1] % shifted:
        raise ShapeError(f"offset {offset.shape} must be {expected} for X {x.shape} and W {w.shape}")
    moves = wide(offset).reshape(n, shifted, taps, rank, -1)
    weights = None if mask is None else wide(mask).reshape(n, shifted, taps, -1)
    base = _places(windows)
    channels = x.shape[1] // shifted
    columns = np.zeros((n, x.shape[1], taps, moves.shape[-1]), wide(x).dtype)
    for g in range(shifted):
        part = wide(x)[:, g * channels : (g + 1) * channels]
        at = [(base[axis][None] + moves[:, g, :, axis]).reshape(n, -1) for axis in range(rank)]
        taken = sample(part, at).reshape(n, channels, taps, -1)
        columns[:, g * channels : (g + 1) * channels] = taken if weights is None else taken * weights[:, g][:, None]
    filters = wide(w).reshape(group, w.shape[0] // group, -1)
    y = np.matmul(filters, columns.reshape(n, group, filters.shape[2], -1))
    return add_bias(y.reshape(n, w.shape[0], *windows.sizes), bias).astype(x.dtype)


def _places(windows: Windows) -> list[Array]:
    """Where each tap of each window lies along each axis, before shifting: [taps, windows]."""
    taps = np.indices(windows.kernel).reshape(len(windows.kernel), -1)
    outputs = np.indices(windows.sizes).reshape(len(windows.sizes), -1)
    return [
        (taps[i] * windows.dilations[i])[:, None] + (outputs[i] * windows.strides[i] - windows.begin[i])[None]
        for i in range(len(windows.kernel))
    ]
