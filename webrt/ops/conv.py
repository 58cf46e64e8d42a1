"""Conv over one, two or three spatial axes."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op, require
from webrt.ops.conv_last import conv_last
from webrt.ops.conv_weights import static_sizes
from webrt.ops.convolution import Convolution, convolve
from webrt.ops.vectors import IDENTITY, Epilogue
from webrt.ops.windows import Axis, check_fit, windows


def kernel_of(n: Node, w: Value) -> list[int]:
    """The taps per axis: the weights' own, else the attribute. Raises InvalidModel where both are known and differ."""
    given = [int(k) for k in n.attr("kernel_shape") or []]
    own = w.known_shape[2:]
    if not given:
        return static_sizes(w)[2:]
    if len(given) != len(own) or any(isinstance(k, int) and k != g for k, g in zip(own, given)):
        raise InvalidModel(f"kernel_shape {given} is not that of the weights, {list(own)}")
    return given


def conv_axes(n: Node, x: Value, w: Value) -> list[Axis]:
    """The windows of a Conv's node; raises ShapeError where x and the weights do not fit."""
    shape, weights, group = x.known_shape, w.known_shape, int(n.attr("group", 1))
    if len(shape) < 3 or len(weights) != len(shape):
        raise ShapeError(f"a convolution of rank {len(shape)} with weights of rank {len(weights)}")
    channels, own, outs = shape[1], weights[1], weights[0]
    if isinstance(channels, int) and isinstance(own, int) and channels != own * group:
        raise ShapeError(f"{channels} channels, the weights want {own} in each of {group} groups")
    if group < 1 or (isinstance(outs, int) and outs % group):
        raise ShapeError(f"{outs} output channels in {group} groups")
    return windows(n, shape[2:], kernel_of(n, w))


def conv_shape(n: Node) -> list[Info]:
    x, w = n.input(0), n.input(1)
    if x.shape is None or w.shape is None:
        return [(x.dtype, None)]
    return [(x.dtype, (x.shape[0], w.shape[0], *(a.out for a in conv_axes(n, x, w))))]


@op("Conv", shape=conv_shape, inputs="N C *, M _ *, M")
def conv(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    if n.channels_last:
        conv_last(n, b, epilogue)
        return
    require(n.given(), T.F32, T.F16, T.BF16)
    x, w = n.input(0), n.input(1)
    axes, group = conv_axes(n, x, w), int(n.attr("group", 1))
    check_fit(b, axes)
    channels: Dim = static_sizes(w)[1] * group
    b.check(D.eq(x.known_shape[1], channels), f"{x.known_shape[1]} channels, the weights want {channels}")
    bias = n.input(2) if n.has(2) else None
    convolve(b, Convolution(x, w, bias, n.output(0), tuple(axes), group, epilogue=epilogue))
