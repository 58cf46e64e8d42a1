"""How a convolution (or its transpose) runs: as a matrix product, by the depthwise kernel, or by register tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Operand, Variant, Window, grid
from webrt.ops.conv_weights import (
    BLOCK,
    LINKS,
    Packing,
    along_row,
    by_channel,
    packed_bias,
    packed_weights,
    static_sizes,
)
from webrt.ops.depthwise import depthwise
from webrt.ops.product import Product, product, product_transposed
from webrt.ops.taps import tap_functions, tap_params
from webrt.ops.vectors import IDENTITY, Epilogue, finish, kind, load4, through_temp, vec_of
from webrt.ops.windows import Axis


@dataclass(frozen=True)
class Convolution:
    """Operands in NCHW, and windows: in a transposed one too `size` is that of x and `out` that of the result."""

    x: Value
    w: Value
    bias: Value | None
    out: Value
    axes: tuple[Axis, ...]
    groups: int
    transposed: bool = False
    epilogue: Epilogue = IDENTITY

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        first, second, *_ = static_sizes(self.w)
        return first // self.groups if self.transposed else second

    @property
    def out_channels(self) -> int:
        """Output channels of a group."""
        first, second, *_ = static_sizes(self.w)
        return second if self.transposed else first // self.groups

    @property
    def images(self) -> Dim:
        return self.x.known_shape[0]

    @property
    def plane(self) -> Dim:
        return D.prod(a.size for a in self.axes)


def convolve(b: Builder, c: Convolution) -> None:
    """Writes the convolution.

    Raises UnsupportedOp for more than three axes, and for more taps than an invocation may loop over.
    """
    c = replace(c, axes=tuple(a for a in c.axes if not a.trivial) or c.axes[-1:])
    if len(c.axes) > 3:
        raise UnsupportedOp(f"a convolution over {len(c.axes)} axes")
    pointwise = all(a.kernel == 1 and a.stride == 1 and a.before == 0 and a.after == 0 for a in c.axes)
    bound = c.plane == 1 or len(b.windows(c.w)) == 1
    if pointwise and c.groups == 1 and not c.transposed and bound:
        _pointwise(b, c)
    elif c.channels == 1 and c.groups > 1 and not c.transposed and c.out_channels < BLOCK:
        bias = packed_bias(b, c.bias, kind(c.x), c.groups, c.out_channels, block=1)
        depthwise(b, (c.x, c.w, bias), c.out, c.axes, c.out_channels, c.epilogue)
    else:
        _tiles(b, c)


def _pointwise(b: Builder, c: Convolution) -> None:
    """The weights times each image's [channels, pixels], or the pixels of 1×1 images times the weights."""
    one_pixel = c.plane == 1
    epilogue = c.epilogue
    if c.bias is not None:
        at = "i % p.n" if one_pixel else "i / p.n % p.m"
        epilogue = epilogue.following(f"v + load_bias({at})", bias=c.bias)
    outs, channels = c.out_channels, c.channels
    if one_pixel:
        product_transposed(b, Product(c.images, outs, channels), c.x, c.w, c.out, epilogue, "conv_1x1")
        return
    s = Product(outs, c.plane, channels, (c.images,), (1,), (c.images,))
    product(b, s, c.w, c.x, c.out, epilogue, "conv_1x1")


def _tiles(b: Builder, c: Convolution) -> None:
    last = c.axes[-1]
    in_row = not c.transposed and _padded(last.kernel) * c.channels < _padded(c.channels) * last.kernel
    pack = along_row(c.w, c.groups) if in_row else by_channel(c.w, c.groups, c.transposed)
    if pack.taps * (_padded(pack.links) // LINKS + 1) > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution of {pack.taps * pack.links} products in one sum")
    axes = (_channel_axis(c.channels), *c.axes[:-1], replace(last, kernel=1)) if in_row else c.axes
    across = D.ceildiv(last.out, last.stride * BLOCK) if c.transposed else D.ceildiv(last.out, BLOCK)
    columns = D.mul(across, last.stride) if c.transposed else across
    rows = D.prod(a.out for a in c.axes[:-1])
    weights = packed_weights(b, c.w, pack)
    bias = packed_bias(b, c.bias, kind(c.x), c.groups, pack.outs)
    images = D.mul(c.images, c.groups)
    params: dict[str, Dim | float] = {
        "images": images, "groups": c.groups, "outer": rows, "columns": columns,
        "image_size": D.mul(c.plane, c.channels), "out_channels": pack.outs, "taps": pack.taps, "links": pack.links,
        "hop": last.dilation if in_row else c.plane, "width": last.size,
        "step": across if c.transposed else D.mul(across, last.stride), "out_width": last.out,
    }  # fmt: skip
    loads = [load4("w", kind(weights), True), load4("bias", kind(bias), True)]
    out = through_temp(b, c.out)
    words = {**params, **tap_params(axes), **c.epilogue.params}
    for part, first, blocks in _blocks(b, weights, pack):
        variant = Variant(
            "conv_tile",
            grid(D.prod((images, blocks, rows, columns))),
            consts={"ALONG_ROW": in_row},
            fns=[*tap_functions(len(axes), c.transposed), *loads, c.epilogue.fn],
            use=c.epilogue.use,
            vec=vec_of(w=(kind(weights), True), bias=(kind(bias), True)),
        )
        b.launch(
            variant, reads={"x": c.x, "w": part, "bias": bias, **c.epilogue.reads}, writes={"out": out},
            params={**words, "blocks": blocks, "first_block": first},
            name="conv_transpose" if c.transposed else "conv_tile",
        )  # fmt: skip
    finish(b, out, c.out, "conv_transpose" if c.transposed else "conv_tile")


def _blocks(b: Builder, weights: Value, pack: Packing) -> Iterator[tuple[Operand, int, int]]:
    """What is bound of packed weights, its first block of output channels and how many it has: one of all, or windows
    of weights that are larger than a binding, as far as they are of one group."""
    size = kind(weights).nbytes(math.prod(pack.shape[2:]))
    for part in b.windows(weights, math.prod(pack.shape[2:])) if pack.groups == 1 else [weights]:
        if isinstance(part, Window):
            first = part.offset // size
            yield part, first, min(pack.blocks - first, part.size // size)
        else:
            yield part, 0, pack.blocks


def _padded(links: int) -> int:
    return -(-links // LINKS) * LINKS


def _channel_axis(channels: int) -> Axis:
    """The channels as an axis that one window covers."""
    return Axis(channels, channels, 1, 1, 0, 0, 1)
