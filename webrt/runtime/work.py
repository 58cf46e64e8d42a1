"""What a step is, in words and numbers: node, operators, kernel, shapes, bytes, floating-point operations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webrt.dims import resolve
from webrt.dtypes import BY_NAME
from webrt.plan import Dispatch, Plan, Work


@dataclass(frozen=True)
class StepWork:
    """A step at given sizes. `tensors` are "float32[1, 3, 8, 8]" in the order of the bindings, the last ones written;
    `bytes` and `flop` are None where the plan cannot tell; `flop` is the node's, at one of its steps."""

    step: int
    kind: str
    node: str
    op: str
    kernel: str = ""
    variant: str = ""
    groups: tuple[int, ...] = ()
    tensors: tuple[str, ...] = ()
    bytes: int | None = None
    flop: int | None = None

    @property
    def label(self) -> str:
        """A few words for a slice or a bar."""
        return f"{self.op} {self.node}".strip() if self.node else self.op

    def args(self, run: int) -> dict[str, Any]:
        """What a trace says of it."""
        known = {k: v for k, v in self.__dict__.items() if v not in ("", (), None)}
        return {"run": run, **known}


def describe_step(plan: Plan, index: int, kernels: Mapping[int, int], values: Sequence[int | None]) -> StepWork:
    """Step `index` at sizes `values` (of `plan.dims`), where its dispatch runs kernel `kernels[index]`."""
    if not 0 <= index < len(plan.steps):
        return StepWork(index, "copy", "", "copy of an input or an output")
    step = plan.steps[index]
    placed = plan.placement[step.node] if 0 <= step.node < len(plan.placement) else None
    work = plan.work[index] if index < len(plan.work) else Work((), ())
    op = " + ".join(work.ops) or (placed.op if placed else step.kind)
    shapes = [(name, _shape(shape, values)) for name, shape in work.tensors]
    tensors = tuple(f"{name}[{', '.join('?' if d is None else str(d) for d in shape)}]" for name, shape in shapes)
    known = [BY_NAME[name].nbytes(math.prod(d or 0 for d in shape)) for name, shape in shapes if None not in shape]
    kernel, variant, groups = _kernel(plan, index, kernels, values)
    return StepWork(
        index, step.kind, placed.node if placed else "", op, kernel, variant, groups, tensors,
        sum(known) if shapes and len(known) == len(shapes) else None, flop_of(work, values),
    )  # fmt: skip


def flop_of(work: Work, values: Sequence[int | None]) -> int | None:
    """The floating-point operations of a step's node; None where nobody can tell."""
    total = 0
    for product in work.flop:
        factors = _shape(product, values)
        if None in factors:
            return None
        total += math.prod(f or 0 for f in factors)
    return total if work.flop else None


def _shape(shape: Sequence[Any], values: Sequence[int | None]) -> list[int | None]:
    return [resolve(d, values) if isinstance(d, int) or d[0] < len(values) else None for d in shape]


def _kernel(
    plan: Plan, index: int, kernels: Mapping[int, int], values: Sequence[int | None]
) -> tuple[str, str, tuple[int, ...]]:
    step = plan.steps[index]
    if not isinstance(step, Dispatch):
        return "", "", ()
    chosen = kernels.get(index, step.alternatives[0][0])
    position = next((i for i, a in enumerate(step.alternatives) if a[0] == chosen), 0)
    groups = [g for g in _shape(step.alternatives[position][1:], values) if g is not None]
    many = len(step.alternatives) > 1
    variant = f"{position + 1} of {len(step.alternatives)}" if many else ""
    return plan.kernels[chosen].name, variant, tuple(groups)
