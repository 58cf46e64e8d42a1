"""Dropout: in inference the input as it is and a mask that keeps every element; in training random masks."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Node
from webrt.lowering import Builder, Info, Operand, op, require
from webrt.ops.random import DRAW, seed_params


def _shape(n: Node) -> list[Info]:
    x = n.input(0)
    return [(x.dtype, x.shape), (x.dtype if n.opset < 10 else T.BOOL, x.shape)][: len(n.outputs)]


@op("Dropout", since=7, shape=_shape)
def dropout(n: Node, b: Builder) -> None:
    if _trains(n):
        _training(n, b)
        return
    if n.wants(0):
        b.alias(n.output(), n.input(0))
    if n.wants(1):
        b.map(n.output(1), "return true;" if n.opset >= 10 else "return 1.0;", name="dropout_mask")


def _training(n: Node, b: Builder) -> None:
    """An element stays where its number in [0, 1) is not below the ratio; what stays is scaled up."""
    x = n.input(0)
    require([x], T.F32, T.F16, T.BF16)
    reads: dict[str, Operand] = {}
    params: dict[str, Dim | float] = seed_params(n)
    if n.has(1) and n.input(1).const is None:
        reads["ratio"] = n.input(1)
    else:
        params["ratio"] = float(n.const(1).item()) if n.has(1) else 0.5
    training = "true"
    if n.input(2).const is None:
        reads["training"], training = n.input(2), "load_training(0u)"
    ratio = "load_ratio(0u)" if "ratio" in reads else "bitcast<f32>(p.ratio)"
    fns = [
        DRAW,
        f"fn ratio_() -> f32 {{ return select(0.0, {ratio}, {training}); }}",
        "fn stays(i: u32) -> bool { return unit_interval(draw(i).x) >= ratio_(); }",
    ]
    if n.wants(0):
        text = "return select(0.0, load_x(i) * (1.0 / (1.0 - ratio_())), stays(i));"
        b.map(n.output(), text, reads={"x": x, **reads}, params=params, fns=fns, use=("philox",), name="dropout")
    if n.wants(1):
        b.map(
            n.output(1), "return stays(i);", reads=reads, params=params, fns=fns, use=("philox",), name="dropout_mask"
        )


def _trains(n: Node) -> bool:
    """Whether elements may be dropped."""
    if not n.has(2) or (n.input(2).const is not None and not bool(n.const(2).item())):
        return False
    return not (n.has(1) and n.input(1).const is not None and float(n.const(1).item()) == 0.0)
