"""Products read the operands of which a Transpose, or another move of elements, gives them another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from webrt.compiler.lines import Lines
from webrt.compiler.seen import Seen, source_of
from webrt.ir import Node, Value
from webrt.ops.matrices import in_lines
from webrt.ops.view import View
from webrt.schemas import MS_DOMAIN

PRODUCTS = ("MatMul", "Gemm", f"{MS_DOMAIN}:FusedMatMul")
"""Operators that read views of their first two operands."""


@dataclass(frozen=True)
class _Operand:
    """What a product's operand is a view of, and the lines that are not needed then."""

    x: Value
    view: View
    lines: frozenset[int] = frozenset()


def fuse_transposes(lines: Lines) -> None:
    """Transpose, and Reshape, Slice, Split or Expand before and after it, then a product that alone reads what they
    make → the product, which reads the elements where they are."""
    for i, p in enumerate(lines.placed):
        if p.how == "kernel" and p.node.op in PRODUCTS:
            found = {k: x for k in (0, 1) if (x := _operand(lines, i, p.node, k)) is not None}
            for some in (found, *({k: x} for k, x in found.items() if len(found) > 1)):
                if some and _merge(lines, i, some):
                    break


def _operand(lines: Lines, i: int, node: Node, index: int) -> _Operand | None:
    """The farthest tensor of which the operand is a view that a product reads, where that saves a kernel."""
    v = node.input(index)
    if v.shape is None or v.rank < 2 or v.const is not None or index in node.views:
        return None
    found, taken, seen = None, frozenset({i}), Seen(v, View.of(v.shape))
    while lines.only_for(seen.x, taken):
        maker, further = lines.maker.get(seen.x), source_of(lines, seen)
        if maker is None or further is None:
            break
        taken, seen = taken | {maker}, further
        if _reads(lines, seen, taken - {i}):
            found = _Operand(seen.x, seen.view, taken - {i})
    return found


def _reads(lines: Lines, seen: Seen, taken: frozenset[int]) -> bool:
    """Whether a product may read the view, and there is a Transpose among the lines that are not needed then."""
    return seen.x.const is None and in_lines(seen.view) and any(_transposes(lines, k) for k in taken)


def _transposes(lines: Lines, k: int) -> bool:
    return lines.placed[k].node.op == "Transpose" and lines.placed[k].how != "alias"


def _merge(lines: Lines, i: int, operands: Mapping[int, _Operand]) -> bool:
    """Whether the product could be made to read so."""
    node = lines.placed[i].node
    inputs = [operands[k].x if k in operands else v for k, v in enumerate(node.inputs)]
    views = {k: x.view for k, x in operands.items()}
    others = sorted(frozenset[int]().union(*(x.lines for x in operands.values())))
    lines.become(i, others, replace(node, inputs=inputs, views=views))
    p = lines.placed[i]
    p.parts = [n for n in p.parts if n is not node]
    return p.node is not node
