"""The extended passes: nodes that run on WebGPU share kernels.

A fused kernel stands at the place of its last node, which keeps its line in the placement report; the lines of the
others say that they are computed there. Nothing that another node, the graph's outputs or a subgraph reads is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from webrt import dtypes as T
from webrt.compiler.dump import Trace
from webrt.compiler.lines import Lines
from webrt.compiler.norms import fuse_norms
from webrt.compiler.partition import Placed
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Graph, Value
from webrt.lowering import Builder, Elementwise
from webrt.ops.composed import HEADS, epilogue_steps, launch_steps
from webrt.target import Target

MAX_STEPS = 32
"""Formulas in one kernel: pipelines with longer texts take long to make."""

Pass = Callable[[Lines], None]


def fuse(
    graph: Graph, placed: Sequence[Placed], target: Target, enabled: Callable[[str], bool], trace: Trace
) -> list[Placed]:
    """The placed nodes after the enabled PASSES, line by line."""
    kept = {*graph.outputs, *(v for n in graph.nodes for v in n.outer)}
    lines = Lines(list(placed), kept, target)
    for name, run in PASSES:
        if enabled(name):
            trace.extended(name, lines, run)
    return lines.placed


def fuse_elementwise(lines: Lines) -> None:
    """Chains and diamonds of elementwise nodes of one shape → one kernel."""
    _groups(lines, heads=False)


def fuse_epilogues(lines: Lines) -> None:
    """Conv, ConvTranspose, MatMul, Gemm and the elementwise nodes that use nothing else → one kernel."""
    _groups(lines, heads=True)


PASSES: tuple[tuple[str, Pass], ...] = (
    ("fuse_norms", fuse_norms),
    ("fuse_epilogues", fuse_epilogues),
    ("fuse_elementwise", fuse_elementwise),
)
"""The extended passes, in order."""


def _groups(lines: Lines, heads: bool) -> None:
    for last in reversed(range(len(lines.placed))):
        root = lines.formula(last)
        if root is None:
            continue
        members = _grow(lines, last, root)
        head = _head(lines, members, root.out) if heads else None
        if head is not None:
            _merge_with_head(lines, members, head)
        elif len(members) > 1 and not heads:
            _merge(lines, members)


def _grow(lines: Lines, last: int, root: Elementwise) -> list[int]:
    """Lines, in order, whose formulas line `last` can take in: of its shape, and read by none but it and each other."""
    room = lines.target.limit("maxStorageBuffersPerShaderStage") - 1
    members = {last}
    waiting = sorted({lines.maker[v] for v in root.operands.values() if v in lines.maker})
    while waiting and len(members) < MAX_STEPS:
        i = waiting.pop()
        step = lines.formula(i)
        if step is None or i in members or not _fits(step, root.out) or not lines.only_for(step.out, members):
            continue
        if len(_stored(lines, members | {i})) > room:
            continue
        members.add(i)
        waiting = sorted({*waiting, *(lines.maker[v] for v in step.operands.values() if v in lines.maker)})
    return sorted(members)


def _head(lines: Lines, members: Sequence[int], out: Value) -> int | None:
    """The last line that makes a tensor of out's type and shape for these members alone, and can end with a formula."""
    made = {v: lines.maker[v] for v in _stored(lines, members) if v in lines.maker}
    fitting = [
        i
        for v, i in made.items()
        if lines.placed[i].how == "kernel"
        and (lines.placed[i].node.domain, lines.placed[i].node.op_type) in HEADS
        and v.dtype == out.dtype
        and v.shape == out.shape
        and lines.only_for(v, members)
    ]
    return max(fitting, default=None)


def _merge(lines: Lines, members: Sequence[int]) -> None:
    steps, last = _steps(lines, members), members[-1]
    builder = Builder(lines.target, f"{last}.fused")
    try:
        launch_steps(builder, steps[-1].out, steps, "elementwise")
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(last, members[:-1], builder)


def _merge_with_head(lines: Lines, members: Sequence[int], head: int) -> None:
    steps, last, node = _steps(lines, members), members[-1], lines.placed[head].node
    builder = Builder(lines.target, f"{last}.{node.op_type}")
    try:
        epilogue = epilogue_steps(steps, node.output(0))
        HEADS[node.domain, node.op_type](replace(node, outputs=[steps[-1].out]), builder, epilogue)
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(last, [head, *members[:-1]], builder)


def _steps(lines: Lines, members: Sequence[int]) -> list[Elementwise]:
    return [step for i in members if (step := lines.formula(i)) is not None]


def _stored(lines: Lines, members: Iterable[int]) -> set[Value]:
    """The tensors that the members read and none of them makes; constants of one element are parameters."""
    steps = [step for i in sorted(members) if (step := lines.formula(i)) is not None]
    made = {s.out for s in steps}
    reads = (v for s in steps for v in s.operands.values())
    return {v for v in reads if v not in made and not (v.const is not None and v.const.size == 1)}


def _fits(step: Elementwise, out: Value) -> bool:
    """Whether a result need not be stored: it has out's shape, and computing with it is computing with what is stored.

    Halves are computed in f32, so a value that a Cast makes one is stored to be rounded."""
    inner = step.out
    if inner.shape != out.shape or inner.dtype is None:
        return False
    casts = inner.producer is not None and inner.producer.op_type in ("Cast", "CastLike")
    if inner.dtype in (T.F16, T.BF16):
        return not casts
    return inner.dtype == T.BOOL or inner.dtype.bits >= 32 or step.formula.in_range
