"""ConvInteger and QLinearConv, exact in int32."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op, require
from webrt.ops.conv import conv_axes
from webrt.ops.conv_weights import static_sizes
from webrt.ops.convolution import Convolution, convolve
from webrt.ops.integer import centred, is_scalar, requantize
from webrt.ops.windows import check_fit


def _shape(n: Node, x: Value, w: Value, dtype: T.DType | None) -> list[Info]:
    if x.shape is None or w.shape is None:
        return [(dtype, None)]
    return [(dtype, (x.shape[0], w.shape[0], *(a.out for a in conv_axes(n, x, w))))]


def integer_shape(n: Node) -> list[Info]:
    return _shape(n, n.input(0), n.input(1), T.I32)


def quantized_shape(n: Node) -> list[Info]:
    return _shape(n, n.input(0), n.input(3), n.input(7).dtype)


def _sums(
    n: Node, b: Builder, x: Value, w: Value, zeros: tuple[Value | None, Value | None], bias: Value | None, out: Value
) -> None:
    """The int32 convolution of two quantized tensors."""
    if zeros[0] is not None and not is_scalar(zeros[0]):
        raise UnsupportedOp("a zero point for each channel of the input")
    axes, group = conv_axes(n, x, w), int(n.attr("group", 1))
    check_fit(b, axes)
    outs, channels, *_ = static_sizes(w)
    b.check(D.eq(x.known_shape[1], channels * group), f"the weights want {channels * group} channels")
    source = centred(b, x, zeros[0], "0u")
    weights = centred(b, w, zeros[1], "i / p.own", {"own": D.floordiv(w.elements, outs)})
    convolve(b, Convolution(source, weights, bias, out, tuple(axes), group))


@op("ConvInteger", shape=integer_shape)
def conv_integer(n: Node, b: Builder) -> None:
    zeros = (n.input(2) if n.has(2) else None, n.input(3) if n.has(3) else None)
    _sums(n, b, n.input(0), n.input(1), zeros, None, n.output(0))


@op("QLinearConv", shape=quantized_shape, inputs="N C *, , , M _ *, , , , , M")
def qlinear_conv(n: Node, b: Builder) -> None:
    bias, out = n.input(8) if n.has(8) else None, n.output(0)
    require([bias], T.I32)
    sums = b.temp(T.I32, out.known_shape)
    _sums(n, b, n.input(0), n.input(3), (n.input(2), n.input(5)), bias, sums)
    if not is_scalar(n.input(1)) or not is_scalar(n.input(6)):
        raise UnsupportedOp("a scale for each channel of the input or the result")
    scales = {"a": (n.input(1), "0u"), "b": (n.input(4), "i / p.plane % p.channels"), "y": (n.input(6), "0u")}
    plane: dict[str, Dim] = {"plane": D.prod(out.known_shape[2:]), "channels": out.known_shape[1]}
    requantize(b, sums, out, scales, n.input(7), plane)
