"""A plan whose y comes from one of two kernels, which tell themselves apart; and what a clock says of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.textured import textured_plan
from webrt.plan import Dispatch, Plan
from webrt.runtime.device import Device, Range
from webrt.runtime.tuning import Work

FIRST, SECOND = "load_t(i) + load_c(i % 4u)", "load_t(i) + load_c(i % 4u) + 100.0"
"""The names of the kernels: the second adds 100 more, and reads in buffers what the first reads through textures."""


def two_ways() -> Plan:
    """The plan: its first alternative for y runs nowhere, then there are FIRST and SECOND (not where n is 5)."""
    return textured_plan("sampled")


def hashes(plan: Plan) -> list[str]:
    """Of FIRST and SECOND."""
    step = plan.steps[1]
    assert isinstance(step, Dispatch)
    return [plan.kernels[k].hash for k, *_ in step.alternatives[1:]]


class Clock:
    """A timer that knows what each kernel takes. `asked` are the kernels that it was asked for."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = {FIRST: seconds.get("first", 1.0), SECOND: seconds.get("second", 1.0), "wrong": 0.1}
        self.asked: list[str] = []

    def __call__(self, device: Device, works: Sequence[Work], wait: Range, timeout: float | None) -> list[float]:
        device.submit([c for _, commands in works for c in commands], [wait], timeout=timeout)
        self.asked += [kernel.name for kernel, _ in works]
        return [self.seconds[kernel.name] * sum(hasattr(c, "x") for c in commands) for kernel, commands in works]
