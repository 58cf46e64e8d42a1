"""A case on a device: its plan, its outputs, and the executor's counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import Case, classify, compile_case
from tests.kernels.harness import device
from webrt import validate
from webrt.dims import evaluate, variables_of
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.planfile import dump, load
from webrt.runtime.session import Session


@dataclass(frozen=True)
class Result:
    """What a run gave and did."""

    kind: str
    outputs: list[Any] = field(default_factory=list)
    dispatches: int = 0
    copies: int = 0
    host_nodes: int = 0


def run_null(case: Case) -> str:
    """Compiles, saves, loads and validates; evaluates all sizes; returns where the case runs."""
    plan = load(dump(compile_case(case)))
    validate.validate(plan)
    names = variables_of(plan.dims)
    values = evaluate(plan.dims, dict.fromkeys(names, 1))
    assert None not in values
    return classify(plan)


def run_native(case: Case) -> Result:
    """Runs on the native device, with the CPU provider for host steps."""
    return run_plan(compile_case(case), case)


def run_plan(plan: Plan, case: Case) -> Result:
    with Session(plan, device(), CpuProvider()) as session:
        outputs = session.run(None, dict(case.feeds))
        done = session.last_run
        kind = classify(plan)
        if kind == "webgpu" and not done.dispatches + done.copies:
            kind = "metadata"  # nothing is left to do at these sizes
        return Result(kind, outputs, done.dispatches, done.copies, done.host_nodes)
