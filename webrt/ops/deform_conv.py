"""DeformConv: the shifted, weighted samples of all taps, then one product for each group. Source: the ONNX text."""

from __future__ import annotations

import itertools
import math

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op, require
from webrt.ops.conv import conv_axes
from webrt.ops.product import Product, product
from webrt.ops.vectors import IDENTITY, Epilogue, widened
from webrt.ops.windows import Axis, check_fit


def _shape(n: Node) -> list[Info]:
    x, w = n.input(0), n.input(1)
    return [(x.dtype, (x.known_shape[0], w.known_shape[0], *(a.out for a in conv_axes(n, x, w))))]


@op("DeformConv", since=19, shape=_shape, inputs="N C *, M _ *, N _ *, M, N _ *")
def deform_conv(n: Node, b: Builder) -> None:
    require(n.given(), *T.FLOATS)
    x, w = n.input(0), n.input(1)
    axes = conv_axes(n, x, w)
    if len(axes) > 3:
        raise UnsupportedOp(f"{len(axes)} spatial axes")
    check_fit(b, axes)
    group, (batch, channels) = int(n.attr("group")), x.known_shape[:2]
    taps, points = math.prod(a.kernel for a in axes), D.prod(a.out for a in axes)
    b.check(D.eq(channels, D.mul(w.known_shape[1], group)), f"X has {channels} channels, W and group do not fit")
    columns = _columns(n, b, axes, taps, points)
    each, filters = D.mul(D.floordiv(channels, group), taps), D.floordiv(w.known_shape[0], group)
    epilogue = IDENTITY
    if n.has(3):
        at = "i / p.bias_points % p.bias_channels"
        params = {"bias_points": points, "bias_channels": w.known_shape[0]}
        epilogue = Epilogue(f"return v + load_bias({at});", {"bias": n.input(3)}, params)
    sizes = Product(filters, points, each, (batch, group), (1, group), (batch, group))
    product(b, sizes, widened(b, w), columns, n.output(), epilogue, "deform_conv")


def _columns(n: Node, b: Builder, axes: list[Axis], taps: int, points: Dim) -> Value:
    """[batch, channels, taps, points]: what each tap of each window samples, linear between neighbours, 0 outside."""
    x, offset = n.input(0), n.input(2)
    shifted, rank, (batch, channels) = int(n.attr("offset_group")), len(axes), x.known_shape[:2]
    b.check(
        D.eq(offset.elements, D.prod((batch, shifted * taps * rank, points))),
        "DeformConv: the offsets do not fit X and W",
    )
    b.check(D.eq(D.mod(channels, shifted), 0), f"{channels} channels in {shifted} groups of offsets")
    out = b.temp(T.F32, (batch, channels, taps, points))
    params: dict[str, Dim | float] = {
        "points": points, "taps": taps, "channels": channels, "each": D.floordiv(channels, shifted), "shifted": shifted,
    }  # fmt: skip
    for a, axis in enumerate(axes):
        params |= {f"size_{a}": axis.size, f"out_{a}": axis.out, f"kernel_{a}": axis.kernel, f"stride_{a}": axis.stride}
        params |= {f"dilation_{a}": axis.dilation, f"pad_{a}": axis.before}
    reads = {"x": x, "offset": offset}
    if n.has(4):
        b.check(D.eq(n.input(4).elements, D.prod((batch, shifted * taps, points))), "DeformConv: the mask does not fit")
        reads["mask"] = n.input(4)
    b.map(out, _sample(rank, n.has(4)), reads=reads, params=params, name="deform_conv_columns")
    return out


def _sample(rank: int, masked: bool) -> str:
    lines = [
        "let point = i % p.points; let tap = (i / p.points) % p.taps; let c = i / (p.points * p.taps);",
        "let place = (c / p.channels * p.shifted + c % p.channels / p.each) * p.taps + tap;",
        "var o = point; var t = tap;",
    ]
    for a in reversed(range(rank)):
        place = f"f32(i32((o % p.out_{a}) * p.stride_{a} + (t % p.kernel_{a}) * p.dilation_{a}) - i32(p.pad_{a}))"
        lines += [
            f"let at{a} = clamp({place} + load_offset((place * {rank}u + {a}u) * p.points + point), -1e9, 1e9);",
            f"let low{a} = i32(floor(at{a})); let rest{a} = at{a} - floor(at{a});",
            f"o /= p.out_{a}; t /= p.kernel_{a};",
        ]
    lines.append("var sum = 0.0;")
    for corner in itertools.product((0, 1), repeat=rank):
        weight = " * ".join(f"rest{a}" if k else f"(1.0 - rest{a})" for a, k in enumerate(corner))
        inside = " && ".join(f"low{a} >= {-k} && low{a} < i32(p.size_{a}) - {k}" for a, k in enumerate(corner))
        at = "c"
        for a, k in enumerate(corner):
            at = f"({at}) * p.size_{a} + u32(low{a} + {k})"
        lines.append(f"if ({inside}) {{ sum += {weight} * load_x({at}); }}")
    lines.append(f"return sum{' * load_mask(place * p.points + point)' if masked else ''};")
    return "\n".join(lines)
