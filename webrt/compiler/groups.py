"""Groups of elementwise lines that one kernel can compute: what the extended passes grow from their last line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from webrt import dtypes as T
from webrt.compiler.lines import Lines
from webrt.ir import Value
from webrt.lowering import Elementwise

MAX_STEPS = 32
"""Formulas in one kernel: pipelines with longer texts take long to make."""


def grow(lines: Lines, last: int, root: Elementwise) -> list[int]:
    """Lines, in order, whose formulas line `last` can take in: of its shape, and read by none but it and each other."""
    room = lines.target.limit("maxStorageBuffersPerShaderStage") - 1
    members = {last}
    waiting = sorted({lines.maker[v] for v in root.operands.values() if v in lines.maker})
    while waiting and len(members) < MAX_STEPS:
        i = waiting.pop()
        step = lines.formula(i)
        if step is None or i in members or not _fits(step, root.out) or not lines.only_for(step.out, members):
            continue
        if len(stored(lines, members | {i})) > room:
            continue
        members.add(i)
        waiting = sorted({*waiting, *(lines.maker[v] for v in step.operands.values() if v in lines.maker)})
    return sorted(members)


def steps_of(lines: Lines, members: Sequence[int]) -> list[Elementwise]:
    """The members' formulas, in their order."""
    return [step for i in members if (step := lines.formula(i)) is not None]


def stored(lines: Lines, members: Iterable[int]) -> set[Value]:
    """The tensors that the members read and none of them makes; constants of one element are parameters."""
    steps = [step for i in sorted(members) if (step := lines.formula(i)) is not None]
    made = {s.out for s in steps}
    reads = (v for s in steps for v in s.operands.values())
    return {v for v in reads if v not in made and not (v.const is not None and v.const.size == 1)}


def _fits(step: Elementwise, out: Value) -> bool:
    """Whether a result need not be stored: it has out's shape, and computing with it is computing with the same."""
    return step.out.shape == out.shape and exact(step)


def exact(step: Elementwise) -> bool:
    """Whether computing with a formula's result is computing with what is stored of it.

    Halves are computed in f32, so a value that a Cast makes one is stored to be rounded."""
    inner = step.out
    if inner.dtype is None:
        return False
    casts = inner.producer is not None and inner.producer.op_type in ("Cast", "CastLike")
    if inner.dtype in (T.F16, T.BF16):
        return not casts
    return inner.dtype == T.BOOL or inner.dtype.bits >= 32 or step.formula.in_range
