"""A plan's steps in segments: what is recorded at once, run on the host at once, or read back at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from webrt.dims import DimRef
from webrt.plan import HostStep, Place, Plan, ValueInfo


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of one kind ("device", "host" or "read"), or a step of kind "branch" or "loop" alone: `start` …
    `stop` of the plan's list."""

    kind: str
    start: int
    stop: int


def segments(plan: Plan) -> list[Segment]:
    """The segments in order. Operands of a host segment are read before it and its results are uploaded after it, so a
    host step that reads a place that the segment fills, or a size that it makes, starts another one."""
    made_by = {i: _variables(plan, s) for i, s in enumerate(plan.steps) if isinstance(s, HostStep)}
    late = _dependence(plan, frozenset().union(*made_by.values()))
    out: list[Segment] = []
    now = _Made()
    for i, step in enumerate(plan.steps):
        kind = "device" if step.kind in ("dispatch", "copy") else step.kind
        follows = bool(out) and out[-1].kind == kind and kind not in ("branch", "loop")
        if not follows or (isinstance(step, HostStep) and now.needed_by(plan, step, late)):
            out.append(Segment(kind, i, i + 1))
            now = _Made()
        else:
            out[-1] = Segment(kind, out[-1].start, i + 1)
        if isinstance(step, HostStep):
            now.add(plan, step, made_by[i])
    return out


@dataclass
class _Made:
    """What the host steps of a segment have made: values, the places that these fill, variables."""

    names: set[str] = field(default_factory=set)
    places: set[Place] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def add(self, plan: Plan, step: HostStep, variables: frozenset[str]) -> None:
        self.names |= {n for n in step.outputs if n}
        self.places |= {p for n in step.outputs if n and (p := plan.values[n].place) is not None}
        self.variables |= variables

    def needed_by(self, plan: Plan, step: HostStep, late: Mapping[int, frozenset[str]]) -> bool:
        """Whether a host step reads a place or a size of these, and not just a value."""
        for name in (*step.inputs, *step.outer):
            if not name or name in self.names:
                continue
            info = plan.values[name]
            sizes: tuple[DimRef, ...] = (*(info.shape or ()), *(info.contents or ()))
            if info.place in self.places or any(
                isinstance(d, tuple) and late.get(d[0], frozenset()) & self.variables for d in sizes
            ):
                return True
        return False


def _variables(plan: Plan, step: HostStep) -> frozenset[str]:
    """The variables that the results of a host step bind."""
    return frozenset().union(*(binds(plan, plan.values[n]) for n in step.outputs if n))


def binds(plan: Plan, info: ValueInfo) -> frozenset[str]:
    """The variables that a fed or made value gives."""
    named = [plan.dims[d[0]] for d in info.shape or () if isinstance(d, tuple)]
    return frozenset(op[1] for op in named if op[0] == "var") | {f"in:{info.name}[{k}]" for k in range(info.elements)}


def _dependence(plan: Plan, variables: frozenset[str]) -> dict[int, frozenset[str]]:
    """Of each instruction of the size program, which of these variables it depends on, where there are some."""
    out: dict[int, frozenset[str]] = {}
    for k, (op, *args) in enumerate(plan.dims if variables else ()):
        found = frozenset(args) & variables if op == "var" else frozenset[str]()
        for a in args:
            if isinstance(a, list):
                found |= out.get(a[0], frozenset())
        if found:
            out[k] = found
    return out
