"""Weights and biases of convolutions in the order that the kernels read them: constants are repacked at compile time,
others by a dispatch."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
LINKS = 4


@dataclass(frozen=True)
class Packing:
    """How weights become [group, block, tap, link, 8]: sizes, and elements between groups, outputs, taps and links."""

    groups: int
    outs: int
    taps: int
    links: int
    steps: tuple[int, int, int, int]

    @property
    def blocks(self) -> int:
        """Blocks of 8 output channels in a group, the last one padded with zeros."""
        return -(-self.outs // BLOCK)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        return (self.groups, self.blocks, self.taps, -(-self.links // LINKS) * LINKS, BLOCK)


def static_sizes(w: Value) -> list[int]:
    """The weights' shape; raises NotConstant where a size is symbolic."""
    shape = w.static_shape
    if shape is None:
        raise NotConstant(f"the shape of the weights {w.name!r} is not known before the run", roots=w.roots)
    return list(shape)


def by_channel(w: Value, groups: int, transposed: bool) -> Packing:
    """A link is a channel. Weights are [group · out, channel, tap…], transposed ones [group · channel, out, tap…]."""
    first, second, *kernel = static_sizes(w)
    taps = math.prod(kernel)
    if transposed:
        channels, outs = first // groups, second
        return Packing(groups, outs, taps, channels, (channels * outs * taps, taps, 1, outs * taps))
    outs, channels = first // groups, second
    return Packing(groups, outs, taps, channels, (outs * channels * taps, channels * taps, 1, taps))


def along_row(w: Value, groups: int) -> Packing:
    """A link is an element of the kernel's last axis, a tap a channel's line of the kernel."""
    first, channels, *kernel = static_sizes(w)
    taps, links = channels * math.prod(kernel[:-1]), kernel[-1]
    return Packing(groups, first // groups, taps, links, (first // groups * taps * links, taps * links, links, 1))


def packed_weights(b: Builder, w: Value, pack: Packing) -> Value:
    """The weights in the packing's order, of the weights' own type."""
    if w.const is not None:
        return b.constant(_packed(np.ascontiguousarray(w.const), pack), w.dtype)
    out = b.temp(kind(w), pack.shape)
    lines = [
        f"let link = i / {BLOCK}u % p.padded; var rest = i / {BLOCK}u / p.padded;",
        "let tap = rest % p.taps; rest /= p.taps;",
        f"let o = rest % p.blocks * {BLOCK}u + i % {BLOCK}u; let group = rest / p.blocks;",
        "if (o >= p.outs || link >= p.links) { return Out(); }",
        "return load_w(group * p.group_step + o * p.out_step + tap * p.tap_step + link * p.link_step);",
    ]
    names = ("group_step", "out_step", "tap_step", "link_step")
    params: dict[str, Dim | float] = {
        "outs": pack.outs, "taps": pack.taps, "blocks": pack.blocks, "links": pack.links, "padded": pack.shape[3],
        **dict(zip(names, pack.steps)),
    }  # fmt: skip
    b.map(out, "\n".join(lines), reads={"w": w}, params=params, name="conv_weights")
    return out


def _packed(w: np.ndarray[Any, Any], pack: Packing) -> np.ndarray[Any, Any]:
    steps = tuple(w.itemsize * s for s in pack.steps)
    seen = np.lib.stride_tricks.as_strided(w, (pack.groups, pack.outs, pack.taps, pack.links), steps, writeable=False)
    groups, blocks, taps, links, _ = pack.shape
    out = np.zeros((groups, blocks * BLOCK, taps, links), w.dtype)
    out[:, : pack.outs, :, : pack.links] = seen
    return out.reshape(groups, blocks, BLOCK, taps, links).transpose(0, 1, 3, 4, 2)


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


def packed_last(
    weights: np.ndarray[Any, Any], bias: np.ndarray[Any, Any], groups: int, block: int, dotted: bool = False
) -> Any:
    """[group · block, (tap, four, input channel, output channel) and then biases] of [group · out, channel, tap …];
    `dotted`: the input channel comes last."""
    outs, channels = weights.shape[0] // groups, weights.shape[1]
    blocks, fours = -(-outs // block), -(-channels // 4)
    taps = weights.reshape(groups, outs, channels, -1)
    room = np.zeros((groups, blocks * block, fours * 4, taps.shape[-1]), np.float32)
    room[:, :outs, :channels] = taps
    split = room.reshape(groups * blocks, block, fours, 4, -1)
    ordered = split.transpose((0, 4, 2, 1, 3) if dotted else (0, 4, 2, 3, 1)).reshape(groups * blocks, -1)
    last = np.zeros((groups, blocks * block), np.float32)
    last[:, :outs] = bias.reshape(groups, outs)
    return np.concatenate([ordered, last.reshape(groups * blocks, block)], axis=1)


def _numpy(dtype: DType) -> Any:
    return np.uint16 if dtype == T.BF16 else np.dtype(dtype.name)
