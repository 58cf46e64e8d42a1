"""Images of one or two channels for kernels that take four at a time: neighbours along the row become channels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Builder
from webrt.ops.windows import Axis

LINKS = 4
"""Elements of a window's row that become channels of one pixel."""
MOST_CHANNELS = 2


def unfolds(channels: int, groups: int, kernel: int) -> bool:
    """Whether a convolution with so many channels and taps along the row gains by it."""
    return groups == 1 and channels <= MOST_CHANNELS and kernel >= LINKS


def unfolded(
    b: Builder, x: Value, weights: np.ndarray[Any, Any], height: Axis, width: Axis
) -> tuple[Value, np.ndarray[Any, Any], Axis]:
    """The image, the weights and the axis along the row of the same convolution over four times as many channels.

    x is [images, …, channels]; its copy has the padding along the row, and channel k · channels + c of pixel w is
    channel c of pixel w + k · dilation. Weights are [outputs, channels, …, taps]."""
    outs, channels, *lead, kernel = weights.shape
    taps = -(-kernel // LINKS)
    room = np.zeros((outs, channels, *lead, taps * LINKS), np.float32)
    room[..., :kernel] = weights
    split = room.reshape(outs, channels, -1, taps, LINKS).transpose(0, 4, 1, 2, 3)
    size = D.maximum((width.out - 1) * width.stride + (taps - 1) * LINKS * width.dilation + 1, 1)
    out = b.temp(T.F32, (x.known_shape[0], height.size, size, LINKS * channels))
    lines = ["let four = i % p.channels; let line = i / p.channels / p.wide * p.width;"]
    lines.append("let first = i32(i / p.channels % p.wide) - i32(p.before);")
    for k in range(LINKS):
        lines += [
            f"let c{k} = four * {LINKS}u + {k}u; let w{k} = first + i32(c{k} / p.channels * p.dilation);",
            f"let in{k} = u32(w{k}) < p.width;",
            f"let at{k} = (line + select(0u, u32(w{k}), in{k})) * p.channels + c{k} % p.channels;",
            f"let v{k} = select(0.0, load_x(at{k}), in{k});",
        ]
    lines.append("return vec4<f32>(v0, v1, v2, v3);")
    params: dict[str, Dim | float] = {
        "channels": channels, "wide": size, "width": width.size, "before": width.before, "dilation": width.dilation,
    }  # fmt: skip
    b.map(out, "\n".join(lines), reads={"x": x}, params=params, vec={"out": 4}, name="unfold_row")
    axis = replace(width, size=size, kernel=taps, dilation=LINKS * width.dilation, before=0, after=0)
    return out, split.reshape(outs, LINKS * channels, *lead, taps), axis
