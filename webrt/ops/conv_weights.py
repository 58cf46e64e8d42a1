"""Weights and biases of convolutions in the order that the kernels read them: constants are repacked at compile time,
others by a dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import NotConstant
from webrt.ir import Value
from webrt.lowering import Builder
from webrt.ops.vectors import kind

BLOCK = 8


def static_sizes(w: Value) -> list[int]:
    """The weights' shape; raises NotConstant where a size is symbolic."""
    shape = w.static_shape
    if shape is None:
        raise NotConstant(f"the shape of the weights {w.name!r} is not known before the run", roots=w.roots)
    return list(shape)


def blocks_of(out_channels: int) -> int:
    """Blocks of 8 output channels in a group, the last one padded with zeros."""
    return -(-out_channels // BLOCK)


def packed_weights(b: Builder, w: Value, groups: int, transposed: bool) -> Value:
    """[group, block, tap, channel, 8] of [group · out, channel, tap…], transposed of [group · channel, out, tap…]."""
    first, second, *kernel = static_sizes(w)
    taps = int(np.prod(kernel, dtype=np.int64))
    channels, outs = (first // groups, second) if transposed else (second, first // groups)
    blocks = blocks_of(outs)
    if w.const is not None:
        array: np.ndarray[Any, Any] = w.const.reshape(groups, channels, outs, taps) if transposed else w.const
        array = array.transpose(0, 2, 1, 3) if transposed else array.reshape(groups, outs, channels, taps)
        array = np.pad(array, ((0, 0), (0, blocks * BLOCK - outs), (0, 0), (0, 0)))
        array = array.reshape(groups, blocks, BLOCK, channels, taps).transpose(0, 1, 4, 3, 2)
        return b.constant(array, w.dtype)
    out = b.temp(kind(w), (groups, blocks, taps, channels, BLOCK))
    forward, backward = "(group * p.outs + o) * p.channels + channel", "(group * p.channels + channel) * p.outs + o"
    lines = [
        f"let channel = i / {BLOCK}u % p.channels; var rest = i / {BLOCK}u / p.channels;",
        "let tap = rest % p.taps; rest /= p.taps;",
        f"let o = rest % p.blocks * {BLOCK}u + i % {BLOCK}u; let group = rest / p.blocks;",
        f"if (o >= p.outs) {{ return Out(); }} return load_w(({backward if transposed else forward}) * p.taps + tap);",
    ]
    params: dict[str, Dim | float] = {"channels": channels, "outs": outs, "taps": taps, "blocks": blocks}
    b.map(out, "\n".join(lines), reads={"w": w}, params=params, name="conv_weights")
    return out


def packed_bias(b: Builder, bias: Value | None, dtype: DType, groups: int, outs: int, block: int = BLOCK) -> Value:
    """[group, block, 8] from [group · out]; zeros where there is no bias."""
    width = -(-outs // block) * block
    if bias is None:
        return b.constant(np.zeros((groups, width), _numpy(dtype)), dtype)
    if bias.const is not None:
        return b.constant(np.pad(bias.const.reshape(groups, outs), ((0, 0), (0, width - outs))), bias.dtype)
    if width == outs:
        return bias
    out = b.temp(dtype, (groups, width))
    text = "let o = i % p.width; if (o >= p.outs) { return Out(); } return load_v(i / p.width * p.outs + o);"
    params: dict[str, Dim | float] = {"width": width, "outs": outs}
    b.map(out, text, reads={"v": bias}, params=params, name="conv_bias")
    return out


def _numpy(dtype: DType) -> Any:
    return np.uint16 if dtype == T.BF16 else np.dtype(dtype.name)
