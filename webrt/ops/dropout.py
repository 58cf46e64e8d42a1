"""Dropout in inference: the input as it is, and a mask that keeps every element."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.errors import UnsupportedOp
from webrt.ir import Node
from webrt.lowering import Builder, Info, op


def _shape(n: Node) -> list[Info]:
    x = n.input(0)
    return [(x.dtype, x.shape), (x.dtype if n.opset < 10 else T.BOOL, x.shape)][: len(n.outputs)]


@op("Dropout", since=7, shape=_shape)
def dropout(n: Node, b: Builder) -> None:
    if n.has(2) and bool(n.const(2).item()) and not _keeps_all(n):
        raise UnsupportedOp("training_mode is on: random masks are made on the CPU")
    if n.wants(0):
        b.alias(n.output(), n.input(0))
    if n.wants(1):
        b.map(n.output(1), "return true;" if n.opset >= 10 else "return 1.0;", name="dropout_mask")


def _keeps_all(n: Node) -> bool:
    return n.has(1) and float(n.const(1).item()) == 0.0
