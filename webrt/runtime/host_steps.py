"""The host's side of a plan whose device steps run elsewhere (in a browser): values by name, and steps over them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from webrt.dtypes import BY_NAME
from webrt.errors import PlanError
from webrt.plan import HostStep, Plan, Step, ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import HostProvider
from webrt.runtime.profile import HOST, Span
from webrt.runtime.scope import prepare_host, refuse_host_steps
from webrt.runtime.tensor import HostValue
from webrt.subplans import Branch, Loop, walk


class HostSteps:
    """Host steps of `plan` run by `host`, by their index among all steps, those within other steps included. `infos`
    are the operands that they have; `values` are what the host has in this run; `ran` counts its nodes;
    `spans` are their times, where it is `timed`.

    Raises PlacementError where the plan has host steps and there is no provider.
    """

    def __init__(self, plan: Plan, host: HostProvider | None) -> None:
        self.plan = plan
        self.values: dict[str, HostValue] = {}
        self.ran = 0
        self.timed = False
        self.spans: list[Span] = []
        refuse_host_steps(plan, host)
        self._steps = list(walk(plan.steps))
        self._outermost = [i for i, s in enumerate(plan.steps) for _ in walk([s])]
        self._nodes = prepare_host(self._steps, host)
        self.infos: dict[str, ValueInfo] = {**_within(plan.steps), **plan.values}

    def begin(self, values: Mapping[str, HostValue]) -> None:
        """A new run, which was fed these values."""
        self.values = dict(values)
        self.ran = 0
        self.spans = []

    def run(self, steps: Sequence[int], fetched: Mapping[str, HostValue]) -> dict[str, HostValue]:
        """Runs the steps of these indices, in order; `fetched` came from the device. Returns what they made."""
        self.values.update(fetched)
        out: dict[str, HostValue] = {}
        for index in steps:
            step = self._steps[index]
            if not isinstance(step, HostStep):
                raise PlanError(f"step {index} is no host step")
            inputs = [self._value(n) if n else None for n in step.inputs]
            outer = {n: self._value(n) for n in step.outer}
            begin = time.perf_counter_ns() if self.timed else 0
            made = self._nodes[index].run(inputs, outer)
            if self.timed:
                self.spans.append(Span(self._outermost[index], begin, time.perf_counter_ns(), HOST))
            self.ran += 1
            named = {n: v for n, v in zip(step.outputs, made) if n}
            self.values.update(named)
            out.update(named)
        return out

    def _value(self, name: str) -> Any:
        info = self.infos[name]
        if name not in self.values:
            if info.constant is None:
                raise PlanError(f"nothing gives the value {name!r}")
            data = bytearray(self.plan.constant_bytes(info.constant))
            constant = self.plan.constants[info.constant]
            self.values[name] = T.from_bytes(data, BY_NAME[constant.dtype], constant.shape)
        return self.values[name]


def _within(steps: Sequence[Step]) -> dict[str, ValueInfo]:
    """The operands of the sub-plans of steps."""
    bodies = [b for s in walk(steps) if isinstance(s, (Branch, Loop)) for b in s.bodies]
    return {name: info for b in bodies for name, info in b.values.items()}
