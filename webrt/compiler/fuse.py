"""The extended passes: nodes that run on WebGPU share kernels.

A fused kernel stands at the place of its last node, which keeps its line in the placement report; the lines of the
others say that they are computed there. Nothing that another node, the graph's outputs or a subgraph reads is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from webrt.compiler.attention import fuse_attention
from webrt.compiler.dump import Trace
from webrt.compiler.folds import fuse_reductions, lowering_of
from webrt.compiler.groups import MAX_STEPS, grow, steps_of, stored
from webrt.compiler.layout import channels_last
from webrt.compiler.lines import Lines
from webrt.compiler.moves import fuse_moves
from webrt.compiler.norms import fuse_norms
from webrt.compiler.partition import Placed
from webrt.compiler.skips import fuse_skips
from webrt.compiler.transposes import fuse_transposes
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Graph, Value
from webrt.lowering import Alias, Builder
from webrt.ops.composed import HEADS, IMAGES, epilogue_steps, launch_steps
from webrt.ops.view import element_type
from webrt.target import Target

Pass = Callable[[Lines], None]


def fuse(
    graph: Graph, placed: Sequence[Placed], target: Target, enabled: Callable[[str], bool], trace: Trace
) -> list[Placed]:
    """The placed nodes after the enabled PASSES, line by line."""
    kept = {*graph.outputs, *(v for n in graph.nodes for v in n.outer)}
    lines = Lines(list(placed), kept, target)
    for name, run in PASSES:
        graph.bounds.check(name)
        if enabled(name):
            trace.extended(name, lines, run)
    return lines.placed


def fuse_elementwise(lines: Lines) -> None:
    """Chains and diamonds of elementwise nodes of one shape → one kernel."""
    _groups(lines, heads=False)


def fuse_epilogues(lines: Lines) -> None:
    """A convolution, product, pool or reduction and the elementwise nodes that use nothing else → one kernel."""
    _groups(lines, heads=True)


PASSES: tuple[tuple[str, Pass], ...] = (
    ("fuse_norms", fuse_norms),
    ("fuse_attention", fuse_attention),
    ("channels_last", channels_last),
    ("fuse_transposes", fuse_transposes),
    ("fuse_reductions", fuse_reductions),
    ("fuse_epilogues", fuse_epilogues),
    ("fuse_moves", fuse_moves),
    ("fuse_elementwise", fuse_elementwise),
    ("fuse_skips", fuse_skips),
)
"""The extended passes, in order."""


def _groups(lines: Lines, heads: bool) -> None:
    far = _from_heads(lines) if heads else [0] * len(lines.placed)
    for last in reversed(range(len(lines.placed))):
        root = lines.formula(last)
        if root is None or far[last] > MAX_STEPS:
            continue
        members = grow(lines, last, root)
        head = _head(lines, members, root.out) if heads else None
        if head is not None:
            _merge_with_head(lines, members, head)
        elif len(members) > 1 and not heads:
            _merge(lines, members)


def _from_heads(lines: Lines) -> list[int]:
    """How many formulas each line is away from a heavy kernel before it; more than MAX_STEPS where there is none."""
    far: list[int] = []
    for i, p in enumerate(lines.placed):
        before = min((far[lines.maker[v]] for v in p.node.given() if lines.maker.get(v, i) < i), default=MAX_STEPS)
        if p.how == "kernel" and (p.node.domain, p.node.op_type) in HEADS:
            far.append(0)
        elif p.how == "alias":
            far.append(before)
        else:
            far.append(before + 1 if lines.formula(i) is not None else MAX_STEPS + 1)
    return far


@dataclass(frozen=True)
class _Head:
    """The line of a heavy kernel, what the formulas read of it, and the lines that only give that another shape."""

    line: int
    value: Value
    shaped: tuple[int, ...] = ()


def _head(lines: Lines, members: Sequence[int], out: Value) -> _Head | None:
    """The last line that makes a tensor of out's type and shape for these members alone, and can end with a formula."""
    found = [
        head
        for v in stored(lines, members)
        if v.dtype == out.dtype and v.shape == out.shape and lines.only_for(v, members)
        if (head := _behind(lines, v)) is not None
    ]
    return max(found, key=lambda h: h.line, default=None)


def _behind(lines: Lines, v: Value) -> _Head | None:
    """The heavy line that makes v, or (of products) what v is another shape of."""
    shaped: list[int] = []
    value, i = v, lines.maker.get(v)
    while i is not None and lines.placed[i].how == "alias" and lines.only_for(value, shaped[-1:] or lines.readers[v]):
        shaped.append(i)
        value = next(s.source for s in lines.placed[i].steps if isinstance(s, Alias))
        i = lines.maker.get(value)
    if i is None or lines.placed[i].how != "kernel" or (shaped and not lines.only_for(value, shaped[-1:])):
        return None
    node = lines.placed[i].node
    if sum(made is not None for made in node.outputs) > 1:
        return None
    heads = HEADS.keys() - IMAGES if shaped else HEADS
    return _Head(i, v, tuple(shaped)) if (node.domain, node.op_type) in heads else None


def _merge(lines: Lines, members: Sequence[int]) -> None:
    steps, last = steps_of(lines, members), members[-1]
    builder = Builder(lines.target, f"{last}.fused")
    try:
        launch_steps(builder, steps[-1].out, steps, "elementwise")
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(last, members[:-1], builder)


def _merge_with_head(lines: Lines, members: Sequence[int], head: _Head) -> None:
    steps, last, node = steps_of(lines, members), members[-1], lines.placed[head.line].node
    builder, out = Builder(lines.target, f"{last}.{node.op_type}"), steps[-1].out
    made = node.output(0)
    try:
        epilogue = epilogue_steps(steps, head.value)
        target = builder.temp(element_type(made), made.known_shape) if head.shaped else out
        lowering_of(lines.placed[head.line])(replace(node, outputs=[target]), builder, epilogue)
        if head.shaped:
            builder.alias(out, target)
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(last, [head.line, *head.shaped[::-1], *members[:-1]], builder)
