"""Where: a choice between two tensors of one type, elementwise, all three broadcasting."""

from __future__ import annotations

from webrt.ir import Node
from webrt.lowering import Builder, Formula, Info, op
from webrt.ops.elementwise import broadcast_info, launch


def _shape(n: Node) -> list[Info]:
    return broadcast_info(n, n.input(1).dtype)


@op("Where", since=9, shape=_shape)
def where(n: Node, b: Builder) -> None:
    operands = {"condition": n.input(0), "x": n.input(1), "y": n.input(2)}
    launch(b, n.output(), operands, Formula("return select(y, x, condition);"), "where")
