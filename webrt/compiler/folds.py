"""Reductions over what elementwise lines make, which is not stored then."""

from __future__ import annotations

from collections.abc import Callable

from webrt.compiler.groups import MAX_STEPS, exact, grow, steps_of
from webrt.compiler.lines import Lines
from webrt.compiler.partition import Placed
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Node
from webrt.lowering import Builder
from webrt.ops.composed import FOLDS, HEADS, source_steps
from webrt.ops.vectors import IDENTITY, Epilogue


def fuse_reductions(lines: Lines) -> None:
    """Elementwise nodes that a reduction alone reads, then the reduction → one kernel."""
    for i in range(len(lines.placed)):
        p = lines.placed[i]
        if p.how == "kernel" and (p.node.domain, p.node.op_type) in FOLDS:
            _merge(lines, i)


def lowering_of(p: Placed) -> Callable[[Node, Builder, Epilogue], None]:
    """The lowering of a line whose kernel can end with formulas; one that begins with formulas goes on to."""
    key, source = (p.node.domain, p.node.op_type), p.source
    if source is None:
        return HEADS[key]
    return lambda n, b, epilogue: FOLDS[key](n, b, epilogue, source)


def _merge(lines: Lines, i: int) -> None:
    node = lines.placed[i].node
    k = lines.maker.get(node.input(0))
    root = lines.formula(k) if k is not None else None
    if k is None or root is None or not exact(root) or not lines.only_for(root.out, {i}):
        return
    members = grow(lines, k, root)
    steps = steps_of(lines, members)
    if len(steps) >= MAX_STEPS:
        return
    builder = Builder(lines.target, f"{i}.{node.op_type}")
    try:
        source = source_steps(steps)
        FOLDS[node.domain, node.op_type](node, builder, IDENTITY, source)
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(i, members, builder)
    lines.placed[i].source = source
