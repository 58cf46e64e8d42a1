"""ConvTranspose over one, two or three spatial axes: the tiles of a convolution, with taps that run backwards."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op, require
from webrt.ops.conv import kernel_of
from webrt.ops.conv_last import spread_last
from webrt.ops.conv_weights import static_sizes
from webrt.ops.convolution import Convolution, convolve
from webrt.ops.vectors import IDENTITY, Epilogue
from webrt.ops.view import channels_to_first
from webrt.ops.windows import Axis, attribute


def transpose_axes(n: Node, x: Value, w: Value) -> list[Axis]:
    """The windows of a ConvTranspose's node. Source: the formulas of ONNX's text (output_shape decides the padding,
    SAME_UPPER puts the odd element at the end, SAME_LOWER at the beginning)."""
    shape, weights, group = x.known_shape, w.known_shape, int(n.attr("group", 1))
    if len(shape) < 3 or len(weights) != len(shape):
        raise ShapeError(f"a convolution of rank {len(shape)} with weights of rank {len(weights)}")
    if isinstance(shape[1], int) and isinstance(weights[0], int) and (shape[1] != weights[0] or shape[1] % group):
        raise ShapeError(f"{shape[1]} channels in {group} groups, the weights want {weights[0]}")
    rank = len(shape) - 2
    kernel, mode = kernel_of(n, w), str(n.attr("auto_pad", "NOTSET"))
    strides, dilations = attribute(n, "strides", rank, 1), attribute(n, "dilations", rank, 1)
    pads, extra = attribute(n, "pads", rank, 0, per=2), attribute(n, "output_padding", rank, 0)
    wanted = [int(d) for d in n.attr("output_shape") or []][-rank:]
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""):
        raise InvalidModel(f"auto_pad is {mode!r}")
    axes = []
    for i, size in enumerate(shape[2:]):
        full = (size - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i]
        total = wanted[i] if wanted else None
        before, after = _padding(full, size * strides[i], (pads[i], pads[rank + i]), mode, total)
        axes.append(Axis(size, kernel[i], strides[i], dilations[i], before, after, full - before - after))
    return axes


def _padding(full: Dim, same: Dim, pads: tuple[int, int], mode: str, wanted: int | None) -> tuple[Dim, Dim]:
    """(before, after) of a result that has `full` elements without padding."""
    if wanted is None and mode not in ("SAME_UPPER", "SAME_LOWER"):
        return (0, 0) if mode == "VALID" else pads
    total = full - (same if wanted is None else wanted)
    if wanted is None:
        total = D.maximum(total, 0)
    half = D.floordiv(total, 2)
    return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)


def transpose_shape(n: Node) -> list[Info]:
    x, w = n.input(0), n.input(1)
    if x.shape is None or w.shape is None:
        return [(x.dtype, None)]
    channels = D.mul(w.shape[1], int(n.attr("group", 1)))
    return [(x.dtype, (x.shape[0], channels, *(a.out for a in transpose_axes(n, x, w))))]


def _transpose_inputs(n: Node) -> str:
    return "N C *, C M *, M" if n.attr("group", 1) == 1 else "N C *, C _ *, _"


@op("ConvTranspose", shape=transpose_shape, inputs=_transpose_inputs)
def conv_transpose(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    if n.channels_last:
        x = n.input(0)
        seen = Value(x.name, x.dtype, channels_to_first(x.known_shape))
        spread_last(n, b, transpose_axes(n, seen, n.input(1)), epilogue)
        return
    require(n.given(), T.F32, T.F16, T.BF16)
    x, w = n.input(0), n.input(1)
    axes = transpose_axes(n, x, w)
    channels = static_sizes(w)[0]
    b.check(D.eq(x.known_shape[1], channels), f"{x.known_shape[1]} channels, the weights want {channels}")
    for a in axes:
        b.check(D.le(0, a.out), f"a result of {a.out} elements")
    bias = n.input(2) if n.has(2) else None
    group = int(n.attr("group", 1))
    convolve(b, Convolution(x, w, bias, n.output(0), tuple(axes), group, transposed=True, epilogue=epilogue))
