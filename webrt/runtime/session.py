"""A plan on a device: constants resident, runs repeated."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from webrt import validate
from webrt.errors import DeviceError, DeviceLost, KernelError, PlacementError
from webrt.plan import Copy, Dispatch, HostStep, Plan
from webrt.runtime.control import Control
from webrt.runtime.device import BindGroup, Device, HostNode, HostProvider, Pipeline, Resource
from webrt.runtime.executor import Run
from webrt.runtime.memory import Memory
from webrt.runtime.profile import Recorded, Recorder
from webrt.runtime.resolve import Frame, Resolver, node_name, places
from webrt.runtime.sizes import Key

MAX_FRAMES = 8
MAX_GROUPS_PER_STEP = 4


@dataclass
class RunStats:
    """What the last run did. `buffers` and `pipelines` were created while it lasted; `up` and `down` are bytes."""

    dispatches: int = 0
    copies: int = 0
    host_nodes: int = 0
    up: int = 0
    down: int = 0
    buffers: int = 0
    pipelines: int = 0
    submits: int = 0


class Session:
    """Runs a plan. May be used from several threads, one run at a time; the device may be shared. While `profile` is a
    list, each run is timed step by step and added to it.

    Raises PlanError for a plan that breaks a rule of validate.py, TargetError where the device does not meet the plan,
    PlacementError where the plan has host steps and no `host` provider is given, KernelError, OutOfMemory, DeviceLost.
    """

    def __init__(self, plan: Plan, device: Device, host: HostProvider | None = None) -> None:
        validate.validate(plan)
        self.plan, self.device = plan, device
        self.last_run = RunStats()
        self.profile: list[Recorded] | None = None
        self.control = Control()
        self._closed = False
        self.lock = threading.RLock()
        self.resolver = Resolver(plan, device.target)
        self.handles = prepare_host(plan, host)
        self.evaluated: dict[Key, list[int | None]] = {}
        self.replaceable = _replaceable(plan)
        self._frames: dict[Key, Frame] = {}
        self._groups: dict[int, dict[tuple[int, tuple[Resource, ...]], BindGroup]] = {}
        self._pipelines: dict[int, Pipeline] = {}
        self.memory = self._load()

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        output_location: str | Mapping[str, str] = "cpu",
        control: Control | None = None,
    ) -> list[Any]:
        """Runs once. `feeds` maps input names to arrays, device Tensors, lists or dicts; `output_location` is "cpu" or
        "device", for all or by name; `control` may end it. Returns one value per name (all outputs where None).

        Raises InputError for feeds that do not fit, TargetError where these sizes are beyond the device, RunTerminated
        where `control` ended the run, and DeviceLost where the device is gone or was given up.
        """
        with self.lock:
            if self.device.lost:
                name = self.device.target.name
                raise DeviceLost(f"the device {name!r} was closed or lost; recover the session, or make a new one")
            if self._closed:
                raise DeviceError("the session was closed; make a new one")
            self.control = control or Control()
            before = self.device.counters
            created, pipelines = before.created, before.pipelines
            self.last_run = RunStats()
            try:
                return self._go(output_names, output_location, feeds)
            finally:
                self.last_run.buffers = self.device.counters.created - created
                self.last_run.pipelines = self.device.counters.pipelines - pipelines

    def _go(
        self, output_names: Sequence[str] | None, location: str | Mapping[str, str], feeds: Mapping[str, Any]
    ) -> list[Any]:
        if self.profile is None:
            return Run(self, output_names, location).go(feeds)
        recorder = Recorder(self.plan, self.device)
        run = Run(self, output_names, location, recorder)
        outputs = run.go(feeds)
        self.profile.append(recorder.done(run.sizes.values, run.frame.kernel_of))
        return outputs

    def frame(self, key: Key, values: Sequence[int | None]) -> Frame:
        """All numbers of the plan at these sizes; kept for the last few."""
        if key not in self._frames:
            made = self.resolver.frame(key, values)
            self._make_pipelines({i: r.kernel for i, r in enumerate(made.steps) if r is not None and r.kernel >= 0})
            while len(self._frames) >= MAX_FRAMES:
                del self._frames[next(iter(self._frames))]
            self._frames[key] = made
        return self._frames[key]

    def group(self, step: int, kernel: int, resources: tuple[Resource, ...]) -> tuple[Pipeline, BindGroup]:
        """The pipeline of a dispatch's kernel, and its bind group over these resources, which is kept."""
        pipeline = self._pipelines[kernel]
        kept = self._groups.setdefault(step, {})
        if (kernel, resources) not in kept:
            while len(kept) >= MAX_GROUPS_PER_STEP:
                del kept[next(iter(kept))]
            kept[kernel, resources] = self.device.bind(pipeline, resources)
        return pipeline, kept[kernel, resources]

    def close(self) -> None:
        """Frees the session's device memory; may be called again. Tensors that runs handed out live on."""
        with self.lock:
            self._closed = True
            self._frames.clear()
            self._groups.clear()
            self.memory.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        memory = getattr(self, "memory", None)
        if memory is not None and not self._closed:
            memory.close()

    def _load(self) -> Memory:
        """Uploads the constants while pipelines are made. Where both fail, the pipelines' error is raised."""
        choices = self.resolver.choices
        kernels = {i: choices.first(i) for i, s in enumerate(self.plan.steps) if isinstance(s, Dispatch)}
        with contextlib.ExitStack() as stack:
            if kernels:
                worker = stack.enter_context(ThreadPoolExecutor(1, "webrt-pipelines"))
                stack.callback(worker.submit(self._make_pipelines, kernels).result)
            memory = Memory(
                self.plan, self.device, self.resolver.target, self.resolver.constants, self.resolver.bound,
                self.resolver.contents,
            )  # fmt: skip
            try:
                stack.pop_all().close()
            except BaseException:
                memory.close()
                raise
        return memory

    def _make_pipelines(self, kernels: Mapping[int, int]) -> None:
        """The pipelines of these kernels, by step, as far as there is none yet."""
        missing = list(dict.fromkeys(k for k in kernels.values() if k not in self._pipelines))
        if not missing:
            return
        wanted = [(self.plan.kernels[k], self.resolver.layout_of(k)) for k in missing]
        try:
            self._pipelines.update(zip(missing, self.device.pipelines(wanted)))
        except KernelError as e:
            for i, k in kernels.items():
                if e.kernel and self.plan.kernels[k].hash == e.kernel:
                    node = self.plan.steps[i].node
                    placed = self.plan.placement[node] if 0 <= node < len(self.plan.placement) else None
                    raise (e.at(node=placed.node, op=placed.op) if placed else e) from None
            raise


def prepare_host(plan: Plan, host: HostProvider | None) -> dict[int, HostNode]:
    """The nodes of a plan's host steps, by step. Raises PlacementError where there are some and no provider."""
    steps = {i: s for i, s in enumerate(plan.steps) if isinstance(s, HostStep)}
    if steps and host is None:
        names = ", ".join(node_name(plan, s) for s in steps.values())
        raise PlacementError(f"the plan has nodes for the CPU provider, and none was given: {names}")
    return {i: host.prepare(base64.b64decode(s.proto), s.opsets) for i, s in steps.items()} if host else {}


def _replaceable(plan: Plan) -> dict[str, int]:
    """Inputs whose slot a caller's buffer may stand in for: nothing ever writes there, and no other input has it."""
    written = {p for s in plan.steps for p, access in places(s) if access == "w" and isinstance(s, (Dispatch, Copy))}
    made = {n for s in plan.host_steps for n in s.outputs if n}
    written |= {place for n in made if n in plan.values and (place := plan.values[n].place)}
    taken = [i.place for i in plan.inputs]
    return {
        i.name: i.place[1]
        for i in plan.inputs
        if i.place is not None and i.place[0] == "s" and i.place not in written and taken.count(i.place) == 1
    }
