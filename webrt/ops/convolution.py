"""How a convolution (or its transpose) runs: as a matrix product, by a depthwise kernel, or by register tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid
from webrt.ops.conv_weights import BLOCK, blocks_of, packed_bias, packed_weights, static_sizes
from webrt.ops.product import Product, product, transposed
from webrt.ops.taps import tap_functions, tap_params
from webrt.ops.vectors import IDENTITY, Epilogue, finish, kind, load4, through_temp, vec_of
from webrt.ops.windows import Axis

MAX_CHUNK = 8


@dataclass(frozen=True)
class Convolution:
    """Operands in NCHW and windows. For a transposed one the axes are those of the convolution that it reverses, with
    `size` and `out` exchanged: `size` is the size of x, `out` that of the result."""

    x: Value
    w: Value
    bias: Value | None
    out: Value
    axes: tuple[Axis, ...]
    groups: int
    transposed: bool = False
    epilogue: Epilogue = IDENTITY

    @property
    def kind(self) -> DType:
        if self.x.dtype is None:
            raise UnsupportedType(f"{self.x.name!r} is no tensor")
        return self.x.dtype

    @property
    def batches(self) -> Dim:
        return self.x.known_shape[0]

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
    def taps(self) -> int:
        out = 1
        for a in self.axes:
            out *= a.kernel
        return out

    @property
    def plane(self) -> Dim:
        return D.prod(a.size for a in self.axes)


def convolve(b: Builder, c: Convolution) -> None:
    """Writes the convolution.

    Raises UnsupportedOp for more than three axes, and for more taps than an invocation may loop over.
    """
    axes = tuple(a for a in c.axes if not a.trivial) or c.axes[-1:]
    c = replace(c, axes=axes)
    if len(axes) > 3:
        raise UnsupportedOp(f"a convolution over {len(axes)} axes")
    pointwise = all(a.kernel == 1 and a.stride == 1 and a.before == 0 and a.after == 0 for a in axes)
    if pointwise and c.groups == 1 and not c.transposed:
        _pointwise(b, c)
    elif c.channels == 1 and c.groups > 1 and not c.transposed and c.out_channels < BLOCK:
        _depthwise(b, c)
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
        weights = transposed(b, c.w, (outs, channels))
        product(b, Product(c.batches, outs, channels), c.x, weights, c.out, epilogue, "conv_1x1")
        return
    s = Product(outs, c.plane, channels, (c.batches,), (1,), (c.batches,))
    product(b, s, c.w, c.x, c.out, epilogue, "conv_1x1")


def _tiles(b: Builder, c: Convolution) -> None:
    channels, outs, last = c.channels, c.out_channels, c.axes[-1]
    if c.taps * (channels // 4 + channels % 4 + 1) > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution of {channels} channels with {c.taps} taps in one sum")
    across = D.ceildiv(last.out, last.stride * BLOCK) if c.transposed else D.ceildiv(last.out, BLOCK)
    columns = D.mul(across, last.stride) if c.transposed else across
    rows = D.prod(a.out for a in c.axes[:-1])
    weights = packed_weights(b, c.w, c.groups, c.transposed)
    bias = packed_bias(b, c.bias, c.kind, c.groups, outs)
    params: dict[str, Dim | float] = {
        "batches": c.batches, "groups": c.groups, "blocks": blocks_of(outs), "outer": rows, "columns": columns,
        "channels": channels, "out_channels": outs, "taps": c.taps, "plane": c.plane, "width": last.size,
        "step": across if c.transposed else D.mul(across, last.stride), "out_width": last.out,
    }  # fmt: skip
    loads = [load4("w", kind(weights), True), load4("bias", kind(bias), True)]
    variant = Variant(
        "conv_tile",
        grid(D.prod((c.batches, c.groups, blocks_of(outs), rows, columns))),
        fns=[*tap_functions(len(c.axes), c.transposed), *loads, c.epilogue.fn],
        vec=vec_of(w=(kind(weights), True), bias=(kind(bias), True)),
    )
    _launch(b, c, variant, (weights, bias), params)


def _depthwise(b: Builder, c: Convolution) -> None:
    last = c.axes[-1]
    chunk = max(k for k in range(1, MAX_CHUNK + 1) if last.kernel % k == 0)
    lines = c.taps // last.kernel
    if c.taps + lines > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution with {c.taps} taps in one sum")
    rows, columns = D.prod(a.out for a in c.axes[:-1]), D.ceildiv(last.out, BLOCK)
    total = c.groups * c.out_channels
    bias = packed_bias(b, c.bias, c.kind, c.groups, c.out_channels, block=1)
    params: dict[str, Dim | float] = {
        "batches": c.batches, "channels": total, "multiplier": c.out_channels, "outer": rows, "columns": columns,
        "lines": lines, "runs": last.kernel // chunk, "width": last.size, "plane": c.plane, "out_width": last.out,
    }  # fmt: skip
    variant = Variant(
        "conv_depthwise",
        grid(D.prod((c.batches, total, rows, columns))),
        consts={"CHUNK": chunk},
        fns=[*tap_functions(len(c.axes)), _tap_row(chunk, last.stride, last.dilation), c.epilogue.fn],
    )
    _launch(b, c, variant, (c.w, bias), params)


def _launch(
    b: Builder, c: Convolution, variant: Variant, operands: tuple[Value, Value], params: dict[str, Dim | float]
) -> None:
    weights, bias = operands
    out = through_temp(b, c.out)
    reads = {"x": c.x, "w": weights, "bias": bias, **c.epilogue.reads}
    words = {**params, **tap_params(c.axes), **c.epilogue.params}
    name = "conv_transpose" if c.transposed else variant.body
    b.launch(variant, reads=reads, writes={"out": out}, params=words, name=name)
    finish(b, out, c.out, name)


def _tap_row(chunk: int, stride: int, dilation: int) -> str:
    """Adds `chunk` taps of a row to 8 pixels; each input that they share is loaded once."""
    at = [[pixel * stride + tap * dilation for pixel in range(8)] for tap in range(chunk)]
    lines = [f"let x{k} = pixel(line, first + {k});" for k in sorted({k for tap in at for k in tap})]
    for tap, places in enumerate(at):
        low, high = (", ".join(f"x{k}" for k in half) for half in (places[:4], places[4:]))
        lines += [f"let w{tap} = load_w(weights + {tap}u);"]
        lines += [f"low += w{tap} * vec4<Out>({low}); high += w{tap} * vec4<Out>({high});"]
    head = "fn tap_row(sum: Pixels, line: u32, first: i32, weights: u32) -> Pixels {"
    return "\n".join([head, "var low = sum.low; var high = sum.high;", *lines, "return Pixels(low, high); }"])
