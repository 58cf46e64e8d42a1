"""Transposed convolution, and columns back to images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from webrt.errors import ShapeError
from webrt.host.conv import add_bias
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide


def _pads_and_sizes(
    call: Call, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut off at the start of each axis, and the output's sizes."""
    rank, mode = len(spatial), str(call.get("auto_pad", "NOTSET"))
    extra = call.ints("output_padding") or [0] * rank
    full = [s * (n - 1) + p + (k - 1) * d + 1 for s, n, p, k, d in zip(strides, spatial, extra, kernel, dilations)]
    wanted = call.ints("output_shape")
    if wanted:
        sizes = wanted[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [n * s for n, s in zip(spatial, strides)]
    else:
        pads = call.ints("pads") or [0] * (2 * rank)
        pads = pads if mode != "VALID" else [0] * (2 * rank)
        return pads[:rank], [f - pads[i] - pads[i + rank] for i, f in enumerate(full)]
    total = [max(f - n, 0) for f, n in zip(full, sizes)]
    # The text of opset 1 has the two halves the other way round; later texts and ONNX Runtime agree on this.
    return [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total], sizes


def transpose_convolve(call: Call, x: Array, w: Array) -> Array:
    """x [N, C, spatial] with w [C, M / group, kernel]: each input spreads a kernel into the output."""
    group, rank = int(call.get("group", 1)), x.ndim - 2
    if x.ndim < 3 or w.ndim != x.ndim or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ShapeError(f"X {x.shape} and W {w.shape} in {group} groups do not fit; W's first size is X's channels")
    kernel = w.shape[2:]
    strides, dilations = call.ints("strides") or [1] * rank, call.ints("dilations") or [1] * rank
    begin, sizes = _pads_and_sizes(call, x.shape[2:], kernel, strides, dilations)
    if min(sizes, default=1) < 0:
        raise ShapeError(f"the output would have sizes {sizes}; check pads and output_shape")
    n, channels = x.shape[0], w.shape[1] * group
    flat = np.ascontiguousarray(x).reshape(n, group, x.shape[1] // group, math.prod(x.shape[2:]))
    filters = w.reshape(group, w.shape[0] // group, w.shape[1], *kernel)
    room = [
        max(b + s, (i - 1) * t + (k - 1) * d + 1)
        for b, s, i, t, k, d in zip(begin, sizes, x.shape[2:], strides, kernel, dilations)
    ]
    total = np.zeros((n, channels, *room), x.dtype)
    for position in itertools.product(*(range(k) for k in kernel)):
        spot: tuple[Any, ...] = (slice(None), slice(None), slice(None), *position)
        taps = filters[spot].swapaxes(1, 2)
        cuts = tuple(
            slice(p * d, p * d + (i - 1) * t + 1 if i else 0, t)
            for p, d, i, t in zip(position, dilations, x.shape[2:], strides)
        )
        total[(slice(None), slice(None), *cuts)] += np.matmul(taps, flat).reshape(n, channels, *x.shape[2:])
    return total[(slice(None), slice(None), *(slice(b, b + s) for b, s in zip(begin, sizes)))]


@op("ConvTranspose")
def conv_transpose(call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Transposed convolution with an optional bias."""
    y = add_bias(transpose_convolve(call, wide(x), wide(w)), bias)
    return np.ascontiguousarray(y).astype(x.dtype, copy=False)


@op("Col2Im")
def col2im(call: Call, x: Array, image: Array, block: Array) -> Array:
    """Columns [N, C * block, L] added back into images [N, C, image]."""
    sizes, kernel = [int(v) for v in image], [int(v) for v in block]
    rank = len(sizes)
    strides, dilations = call.ints("strides") or [1] * rank, call.ints("dilations") or [1] * rank
    pads = call.ints("pads") or [0] * (2 * rank)
    counts = [
        (s + pads[i] + pads[i + rank] - (k - 1) * d - 1) // t + 1
        for i, (s, k, d, t) in enumerate(zip(sizes, kernel, dilations, strides))
    ]
    volume = int(np.prod(kernel))
    if x.ndim != 3 or x.shape[1] % volume or x.shape[2] != int(np.prod(counts)):
        raise ShapeError(f"columns {x.shape} do not fit {counts} blocks of {kernel}; check image_shape and block_shape")
    columns = wide(x).reshape(x.shape[0], x.shape[1] // volume, *kernel, *counts)
    total = np.zeros((*columns.shape[:2], *(s + pads[i] + pads[i + rank] for i, s in enumerate(sizes))), columns.dtype)
    for position in itertools.product(*(range(k) for k in kernel)):
        cuts = tuple(
            slice(p * d, p * d + (c - 1) * t + 1, t) for p, d, c, t in zip(position, dilations, counts, strides)
        )
        spot: tuple[Any, ...] = (slice(None), slice(None), *position)
        total[(slice(None), slice(None), *cuts)] += columns[spot]
    cut = tuple(slice(pads[i], pads[i] + s) for i, s in enumerate(sizes))
    return np.ascontiguousarray(total[(slice(None), slice(None), *cut)]).astype(x.dtype, copy=False)
