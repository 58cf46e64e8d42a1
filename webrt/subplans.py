"""Steps of a plan that hold steps: branches, loops, and the sub-plans that they run.

A sub-plan has sizes, slots and a parameter block of its own; kernels, constants and the placement report are the
plan's. Its size program may use every variable that the plan around it has bound; its own are bound anew each time it
runs. An input of a sub-plan that no role below names is the value of the same name in the plan around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webrt.dims import DimRef

if TYPE_CHECKING:
    from webrt.plan import Slot, Step, ValueInfo


@dataclass(frozen=True)
class SubPlan:
    """Tables as in `webrt.plan.Plan`."""

    dims: list[list[Any]]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    values: Mapping[str, ValueInfo]
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    params_size: int = 0
    checks: tuple[tuple[DimRef, str], ...] = ()


@dataclass(frozen=True)
class Branch:
    """Runs the first body where the value `condition` is true, else the second. `outputs` name `values`, "" is unused;
    each is the output at its place of the body that ran."""

    condition: str
    outputs: tuple[str, ...]
    bodies: tuple[SubPlan, ...]
    node: int = -1
    kind: str = "branch"


@dataclass(frozen=True)
class Loop:
    """Runs its body while fewer iterations are done than the value `trips` says and while the value `condition`, and
    then the body's first output (where `again`), is true; "" for no such bound.

    `state` = ((value, input), …): the input is the value at first, then the body's output at its place behind `again`.
    `elements` = ((value, input, backward), …): the input is an entry of the value along its first axis, whose size is
    a bound of the iterations too; the last one first where backward. `number` is the input that is the iteration's
    number, or "". `outputs` name `values`, "" is unused: the last states, then the further outputs of the body, stacked
    along a new first axis; `lines` tells of each of these whether the last iteration comes first."""

    bodies: tuple[SubPlan, ...]
    trips: str
    condition: str
    number: str
    state: tuple[tuple[str, str], ...]
    elements: tuple[tuple[str, str, bool], ...]
    again: bool
    outputs: tuple[str, ...]
    lines: tuple[bool, ...]
    node: int = -1
    kind: str = "loop"

    @property
    def body(self) -> SubPlan:
        return self.bodies[0]


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, each followed by those within it."""
    for step in steps:
        yield step
        if isinstance(step, (Branch, Loop)):
            for body in step.bodies:
                yield from walk(body.steps)


def operands(step: Branch | Loop) -> list[str]:
    """The values around it that a step needs."""
    roles = _roles(step)
    named = [step.condition] if isinstance(step, Branch) else [step.trips, step.condition]
    named += copied(step)
    named += [v.name for body in step.bodies for v in body.inputs if v.name not in roles]
    return list(dict.fromkeys(n for n in named if n))


def copied(step: Branch | Loop) -> list[str]:
    """The values around it that are copied into a step's bodies: first states and sequences."""
    return [] if isinstance(step, Branch) else [a for a, _ in step.state] + [a for a, _, _ in step.elements]


def captured(step: Branch | Loop, body: SubPlan) -> list[ValueInfo]:
    """The inputs of a body that are values of the same name around it."""
    roles = _roles(step)
    return [v for v in body.inputs if v.name not in roles]


def is_well_formed(step: Branch | Loop) -> bool:
    """Whether a step has as many bodies, names and flags as its kind needs, each of its type."""
    if not (_are(step.bodies, SubPlan) and _are(step.outputs, str) and isinstance(step.condition, str)):
        return False
    counts = {len(b.outputs) for b in step.bodies}
    if isinstance(step, Branch):
        return bool(step.condition) and len(step.bodies) == 2 and counts == {len(step.outputs)}
    pairs = isinstance(step.state, tuple) and all(_are(s, str) and len(s) == 2 for s in step.state)
    triples = isinstance(step.elements, tuple) and all(
        isinstance(e, tuple) and len(e) == 3 and _are(e[:2], str) and type(e[2]) is bool for e in step.elements
    )
    flags = _are(step.lines, bool) and type(step.again) is bool
    if not (pairs and triples and flags and isinstance(step.trips, str) and isinstance(step.number, str)):
        return False
    made = len(step.state) + len(step.lines)
    return len(step.bodies) == 1 and len(step.outputs) == made and counts == {made + int(step.again)}


def _are(xs: Any, kind: type) -> bool:
    return isinstance(xs, tuple) and all(type(x) is kind for x in xs)


def _roles(step: Branch | Loop) -> set[str]:
    if isinstance(step, Branch):
        return set()
    return {b for _, b in step.state} | {b for _, b, _ in step.elements} | {step.number}
