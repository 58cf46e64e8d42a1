"""Softmax from the operators that exporters write it with."""

from __future__ import annotations

import onnx

from webrt import dtypes as T
from webrt.compiler.lines import Lines
from webrt.errors import NotConstant
from webrt.ir import Node, Value
from webrt.ops.reduce import reduced_axes

OPSET = 13


def fuse_softmax(lines: Lines, node: Node) -> None:
    """e / sum(e) with e = exp(x - max(x)), sum and largest along one axis → Softmax. Without the largest it overflows
    where Softmax does not, and stays."""
    raised, total = node.input(0), lines.made_by(node.input(1), "ReduceSum")
    exp = lines.made_by(raised, "Exp")
    shifted = exp and lines.made_by(exp.input(0), "Sub")
    top = shifted and lines.made_by(shifted.input(1), "ReduceMax")
    if total is None or exp is None or shifted is None or top is None:
        return
    x, axis = shifted.input(0), _axis(total)
    if total.input(0) is not raised or top.input(0) is not x or axis is None or _axis(top) != axis:
        return
    values = [raised, total.output(), shifted.output(), top.output()]
    if x.dtype in T.FLOATS:
        _rewrite(lines, node, x, axis, values)


def _axis(node: Node) -> int | None:
    """The one axis of a reduction that keeps it with size 1."""
    try:
        axes = reduced_axes(node)
    except NotConstant:
        return None
    return axes[0] if len(axes) == 1 and node.attr("keepdims", 1) else None


def _rewrite(lines: Lines, root: Node, x: Value, axis: int, values: list[Value]) -> None:
    last, others = lines.maker[root.output()], sorted(lines.maker[v] for v in values)
    if any(not lines.only_for(v, {*others, last}) for v in values):
        return
    attrs = {"axis": onnx.helper.make_attribute("axis", axis)}
    node = Node("Softmax", "", root.name, [x], [root.output()], OPSET, attrs, [], root.sources)
    lines.become(last, others, node)
