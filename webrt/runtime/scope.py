"""A plan or a sub-plan on a device: what stays from run to run."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from webrt.errors import KernelError, PlacementError
from webrt.plan import Dispatch, HostStep, Plan, Step
from webrt.runtime import measure
from webrt.runtime.device import BindGroup, Buffer, Device, HostNode, HostProvider, Pipeline, Resource
from webrt.runtime.log import Log
from webrt.runtime.memory import Memory
from webrt.runtime.resolve import Frame, Resolver, node_name, written
from webrt.runtime.sizes import Key
from webrt.runtime.staging import Staging
from webrt.runtime.textures import Content
from webrt.runtime.tuning import Tuning
from webrt.subplans import Branch, Loop

MAX_FRAMES = 8
MAX_GROUPS_PER_STEP = 4
Wanted: TypeAlias = "Iterable[tuple[Scope, int, int]]"
"""Kernels that are needed: (scope, step, kernel)."""

SMALLEST_OUTPUT = 1 << 16
"""Bytes of a buffer for an output that stays on the device."""


class Scope:
    """`inner` are the scopes of the bodies of branches and loops, by step; `handed_out` makes and takes back the
    buffers of outputs that stay on the device, so that a growing cache needs few of them; `refused` are the kernels
    that the device's compiler refused. `open` puts constants and kernels on the device. Raises as `Session` does."""

    memory: Memory

    def __init__(
        self, plan: Plan, device: Device, host: HostProvider | None, around: Scope | None = None,
        tuning: Tuning | None = None, log: Log | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.device, self.tuning = plan, device, tuning
        self._log = log or Log()
        if around is None:
            refuse_host_steps(plan, host)
        self._pipelines: dict[int, Pipeline] = {} if around is None else around._pipelines
        self._root: Scope = self if around is None else around._root
        self.refused: dict[int, str] = {} if around is None else around.refused
        self.resolver = Resolver(plan, device.target, self.refused, tuning.table if tuning else None)
        self.handles = prepare_host(plan.steps, host)
        self.evaluated: dict[Key, list[int | None]] = {}
        self.ends = _ends(plan)
        self.replaceable = _replaceable(plan, self.ends)
        self.inner = {
            i: tuple(Scope(plan.within(body), device, host, self, tuning, log) for body in s.bodies)
            for i, s in enumerate(plan.steps)
            if isinstance(s, (Branch, Loop))
        }
        self.handed_out: Staging[Buffer] = Staging(
            lambda nbytes: device.alloc(nbytes, "an output"), device.free, device.target.limit("maxBufferSize"),
            smallest=SMALLEST_OUTPUT, most=2 * len(plan.outputs),
        )  # fmt: skip
        self._frames: dict[Key, Frame] = {}
        self._groups: dict[int, dict[tuple[int, tuple[Resource, ...]], BindGroup]] = {}

    @property
    def steady(self) -> bool:
        """Whether the steps bind no sizes, read nothing back and draw nothing."""
        return all(s.kind == "device" for s in self.resolver.segments) and not self.resolver.draws

    def open(self) -> None:
        """Uploads the constants of all scopes while their first pipelines are made. Where both fail, the pipelines'
        error is raised. Kernels that are refused leave their place to others, whose constants follow."""
        every = list(self._every())
        for scope in every:
            scope._tune([None] * len(scope.plan.dims))
        wanted = self._constants()
        with contextlib.ExitStack() as stack:
            if any(isinstance(s, Dispatch) for scope in every for s in scope.plan.steps):
                worker = stack.enter_context(ThreadPoolExecutor(1, "webrt-pipelines"))
                stack.callback(worker.submit(self.make_pipelines, self._first_kernels).result)
            self._load(every, *wanted)
            try:
                stack.pop_all().close()
                if self.refused:
                    self.memory.add(*self._constants())
            except BaseException:
                self.close()
                raise

    def _first_kernels(self) -> Wanted:
        for scope in self._every():
            for i, step in enumerate(scope.plan.steps):
                if isinstance(step, Dispatch):
                    yield scope, i, scope.resolver.choices.first(i)

    def _constants(self) -> tuple[set[int], set[Content]]:
        """The constants of all scopes in buffers, and what is read of them through textures."""
        found = [s.resolver.constants() for s in self._every()]
        return set[int]().union(*(c for c, _ in found)), set[Content]().union(*(t for _, t in found))

    def _load(self, every: Sequence[Scope], constants: set[int], contents: set[Content]) -> None:
        own = self.resolver
        for index in set(range(len(self.plan.constants))) - constants - {c.place[1] for c in contents}:
            self.plan.constant_bytes(index)  # a file that is damaged there is refused now, not at some run
        self.memory = Memory(self.plan, self.device, own.target, constants, own.bound, contents)
        try:
            for scope in every[1:]:
                own = scope.resolver
                scope.memory = Memory(scope.plan, self.device, own.target, (), own.bound, (), self.memory)
        except BaseException:
            self.close()
            raise

    def frame(self, key: Key, values: Sequence[int | None]) -> Frame:
        """All numbers of the plan at these sizes; kept for the last few."""
        if key not in self._frames:
            if self.tuning is not None:
                self._tune(values)
                self._root.memory.add(*self._root._constants())  # other sessions may have added to the table
            made = self.resolver.frame(key, values)
            if self.make_pipelines(lambda: self._kernels_of(made)):
                self._root.memory.add(*self._root._constants())
                return self.frame(key, values)
            while len(self._frames) >= MAX_FRAMES:
                del self._frames[next(iter(self._frames))]
            self._frames[key] = made
        return self._frames[key]

    def pipeline(self, kernel: int) -> Pipeline:
        """The pipeline of a kernel, which `make_pipelines` made."""
        return self._pipelines[kernel]

    def _tune(self, values: Sequence[int | None]) -> None:
        """Measures alternatives at these sizes, where that was asked for."""
        if self.tuning is not None and self.tuning.measure and measure.tune(self, self.tuning, values):
            self.tuning.write()

    def _kernels_of(self, frame: Frame) -> Wanted:
        return ((self, i, r.kernel) for i, r in enumerate(frame.steps) if r is not None and r.kernel >= 0)

    def group(self, step: int, kernel: int, resources: tuple[Resource, ...]) -> tuple[Pipeline, BindGroup]:
        """The pipeline of a dispatch's kernel, and its bind group over these resources, which is kept."""
        pipeline = self.pipeline(kernel)
        kept = self._groups.setdefault(step, {})
        if (kernel, resources) not in kept:
            while len(kept) >= MAX_GROUPS_PER_STEP:
                del kept[next(iter(kept))]
            kept[kernel, resources] = self.device.bind(pipeline, resources)
        return pipeline, kept[kernel, resources]

    def close(self) -> None:
        """Frees the device memory."""
        self._frames.clear()
        self._groups.clear()
        self.handed_out.close()
        for scope in (s for inner in self.inner.values() for s in inner):
            scope.close()
        memory = getattr(self, "memory", None)
        if memory is not None:
            memory.close()

    def _every(self) -> Iterator[Scope]:
        yield self
        for inner in self.inner.values():
            for scope in inner:
                yield from scope._every()

    def make_pipelines(self, wanted: Callable[[], Wanted]) -> bool:
        """The pipelines of these kernels, as far as there is none yet. Whether one was refused, and left its place to
        the next alternative: what follows from the choice of alternatives is another then.

        Raises KernelError where no alternative is left."""
        refused = False
        while True:
            every = [w for w in wanted() if w[2] not in self.refused]
            missing = {k: scope for scope, _, k in every if k not in self._pipelines}
            asked = [(self.plan.kernels[k], scope.resolver.layout_of(k)) for k, scope in missing.items()]
            try:
                self._pipelines.update(zip(missing, self.device.pipelines(asked) if asked else []))
                return refused
            except KernelError as e:
                self._refuse(e, every)
                refused = True

    def _refuse(self, error: KernelError, wanted: Wanted) -> None:
        """Leaves a kernel to the alternatives of the dispatches that want it. Raises the error where one has none."""
        found = [(scope, i, k) for scope, i, k in wanted if error.kernel == self.plan.kernels[k].hash]
        if not found:
            raise error
        for scope, i, kernel in found:
            if kernel not in self.refused:
                name, where = self.plan.kernels[kernel].name, node_name(scope.plan, scope.plan.steps[i])
                why = f"the device refused it: {error.said}"
                self._log.warning(f"the kernel {name!r} of {where} is left out: {why}")
            self.refused[kernel] = f"the kernel {self.plan.kernels[kernel].name!r} was refused"
        for scope in self._root._every():
            step = scope.resolver.choices.refresh()
            if step is not None:
                node = scope.plan.steps[step].node
                placed = self.plan.placement[node] if 0 <= node < len(self.plan.placement) else None
                raise (error.at(node=placed.node, op=placed.op) if placed else error) from None


def refuse_host_steps(plan: Plan, host: HostProvider | None) -> None:
    """Raises PlacementError where a plan has host steps and there is no provider."""
    if plan.host_steps and host is None:
        names = ", ".join(node_name(plan, s) for s in plan.host_steps)
        raise PlacementError(f"the plan has nodes for the CPU provider, and none was given: {names}")


def prepare_host(steps: Sequence[Step], host: HostProvider | None) -> dict[int, HostNode]:
    """The nodes of the host steps among these, by step."""
    found = {i: s for i, s in enumerate(steps) if isinstance(s, HostStep)}
    return {i: host.prepare(base64.b64decode(s.proto), s.opsets) for i, s in found.items()} if host else {}


def _ends(plan: Plan) -> dict[int, int]:
    """The first step that writes each slot."""
    found: dict[int, int] = {}
    for i, step in enumerate(plan.steps):
        for kind, index in written(plan, step):
            if kind == "s":
                found.setdefault(index, i)
    return found


def _replaceable(plan: Plan, ends: Mapping[int, int]) -> dict[str, int]:
    """Inputs whose slot a caller's buffer may stand in for: no other input has it, and nothing writes there before the
    input is no longer needed."""
    taken = [i.place for i in plan.inputs]
    return {
        i.name: i.place[1]
        for i in plan.inputs
        if i.place is not None
        and i.place[0] == "s"
        and taken.count(i.place) == 1
        and (i.place[1] not in ends or plan.slots[i.place[1]].after != 0)
    }
