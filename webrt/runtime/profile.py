"""Where the time of runs goes: spans of steps, recorded while a session runs, and what a Chrome trace shows of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webrt.plan import Dispatch, Plan
from webrt.runtime.device import Command, Device, Fill, Launch, Range
from webrt.runtime.work import describe_step

TIMESTAMPS = "timestamp queries"
CPU_CLOCK = "CPU clock: every step is submitted and waited for alone"
DISPATCH, COPY, FILL, HOST = "dispatch", "copy", "fill", "host"


class Span(NamedTuple):
    """A step's time, in nanoseconds of `time.perf_counter_ns`. `kind`: "dispatch", "copy", "fill" (into a texture that
    the step's kernel reads), or "host" for a node of the CPU provider. What runs within a branch or a loop belongs to
    that step."""

    step: int
    begin: int
    end: int
    kind: str = DISPATCH


@dataclass
class Recorded:
    """One run: its sizes (of `plan.dims`, None where not known), the kernel that each dispatch took, and its spans."""

    plan: Plan
    begin: int
    end: int = 0
    clock: str = ""
    kernels: Mapping[int, int] = field(default_factory=dict)
    values: Sequence[int | None] = ()
    spans: list[Span] = field(default_factory=list)
    submits: list[tuple[int, int]] = field(default_factory=list)
    """First begin and last end of what each submit ran on the device."""

    def submitted(self, what: Iterable[tuple[int, str]], times: Sequence[tuple[int, int]], ended: int) -> None:
        """Adds what one submit ran: step and kind of each of its commands, its begin and end on the device's own clock,
        in ns; by the host's clock the last one ended at `ended`."""
        if not times:
            return
        shift = ended - max(end for _, end in times)
        made = [Span(step, b + shift, max(b, e) + shift, kind) for (step, kind), (b, e) in zip(what, times)]
        self.spans += made
        self.submits.append((min(s.begin for s in made), max(s.end for s in made)))


class Recorder:
    """Times one run on a device: what `Session` and `Run` call while a profile is on."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self.run = Recorded(plan, time.perf_counter_ns())
        self._device = device

    def submit(
        self, commands: Sequence[Command], reads: Sequence[Range], timeout: float | None = None
    ) -> list[memoryview]:
        """`Device.submit`, timed."""
        what = [(c.step, _kind(c)) for c in commands]
        stamps = self._device.stamps(len(commands))
        if stamps is None:
            if commands:
                self.run.clock = CPU_CLOCK
                times = self._alone(commands)
                self.run.submitted(what, times, times[-1][1])
            return self._device.submit((), reads, timeout=timeout)
        self.run.clock = TIMESTAMPS
        data = self._device.submit(commands, reads, stamps, timeout)
        ended = time.perf_counter_ns()
        self.run.submitted(what, stamps.read(), ended)
        return data

    @contextmanager
    def host(self, step: int) -> Iterator[None]:
        """Times a node of the host provider."""
        begin = time.perf_counter_ns()
        yield
        self.run.spans.append(Span(step, begin, time.perf_counter_ns(), HOST))

    def done(self, values: Sequence[int | None], kernel_of: Callable[[int], int]) -> Recorded:
        """The finished run; `values` are its sizes, `kernel_of` gives the kernel of a dispatch."""
        self.run.values, self.run.end = list(values), time.perf_counter_ns()
        steps = {s.step for s in self.run.spans if s.step >= 0}
        dispatches = {i for i in steps if isinstance(self.run.plan.steps[i], Dispatch)}
        self.run.kernels = {i: kernel_of(i) for i in dispatches}
        return self.run

    def _alone(self, commands: Sequence[Command]) -> list[tuple[int, int]]:
        """Begin and end of each command by the host's clock: a read-back waits for it."""
        clock = self._device.alloc(16, "a profile's clock")
        times = []
        try:
            for command in commands:
                begin = time.perf_counter_ns()
                self._device.submit([command], [Range(clock, 0, 4)])
                times.append((begin, time.perf_counter_ns()))
        finally:
            self._device.free(clock)
        return times


def of_player(plan: Plan, run: Mapping[str, Any], host: Sequence[Span]) -> Recorded:
    """A run that web/player/profile.js timed, in milliseconds; `host` are the nodes that Python ran meanwhile."""
    mine = [s for s in run["spans"] if s["kind"] != HOST]
    spans = [Span(s["step"], _ns(s["begin"]), _ns(s["end"]), s["kind"]) for s in mine]
    return Recorded(
        plan, _ns(run["begin"]), _ns(run["end"]), run["clock"], {int(k): v for k, v in run["kernels"].items()},
        run["values"], [*spans, *host], [(_ns(begin), _ns(end)) for begin, end in run["submits"]],
    )  # fmt: skip


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _kind(command: Command) -> str:
    return DISPATCH if isinstance(command, Launch) else FILL if isinstance(command, Fill) else COPY


def trace(runs: Sequence[Recorded], adapter: str) -> dict[str, Any]:
    """A trace in Chrome's format (chrome://tracing, ui.perfetto.dev): times in microseconds from the first run on.

    Threads: 1 whole runs, 2 the device (a slice per submit, in it one per step), 3 nodes of the CPU provider.
    """
    zero = min((r.begin for r in runs), default=0)
    events: list[dict[str, Any]] = [_named("process_name", 0, f"webrt on {adapter}")]
    events += [_named("thread_name", i, name) for i, name in ((1, "runs"), (2, "device"), (3, "CPU provider"))]
    for number, run in enumerate(runs):
        events.append(_slice(f"run {number}", "run", 1, run.begin - zero, run.end - run.begin, {"clock": run.clock}))
        for begin, end in run.submits:
            events.append(_slice("submit", "submit", 2, begin - zero, end - begin, {"run": number}))
        for span in run.spans:
            step = describe_step(run.plan, span.step, run.kernels, run.values)
            label = f"texture for {step.label}" if span.kind == FILL else step.label
            where, length = 3 if span.kind == HOST else 2, span.end - span.begin
            events.append(_slice(label, span.kind, where, span.begin - zero, length, step.args(number)))
    clocks = sorted({r.clock for r in runs if r.clock})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"adapter": adapter, "clocks": clocks}}


def trace_text(runs: Sequence[Recorded], adapter: str) -> str:
    """`trace` as the text of a file."""
    made = trace(runs, adapter)
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in made.pop("traceEvents"))
    rest = json.dumps(made, separators=(",", ":"))
    return f'{{"traceEvents":[\n{lines}\n],{rest[1:]}\n'


def _slice(name: str, category: str, thread: int, begin: int, length: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "cat": category, "ph": "X", "ts": begin / 1000, "dur": length / 1000, "pid": 1, "tid": thread,
        "args": dict(args),
    }  # fmt: skip


def _named(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
