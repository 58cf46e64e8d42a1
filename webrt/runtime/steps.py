"""The steps of a plan, or of a sub-plan, in one run: segments of device and host steps, branches and loops."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from webrt.dtypes import BY_NAME, DType
from webrt.errors import DeviceError, PlanError, ShapeError, WebrtError
from webrt.plan import DRAWN, Copy, Dispatch, HostStep, Read, ValueInfo
from webrt.runtime import flow
from webrt.runtime import tensor as T
from webrt.runtime.device import Buffer, Command, Fill, Launch, Range, Resource, Texture, Transfer, padded
from webrt.runtime.feeds import bind_host
from webrt.runtime.queue import Queue
from webrt.runtime.resolve import SKIP, Frame, Ready, expect, node_name
from webrt.runtime.segments import Segment
from webrt.runtime.sizes import Sizes, declared
from webrt.runtime.tensor import HostValue
from webrt.runtime.textures import Content, Schedule
from webrt.subplans import Branch, Loop

if TYPE_CHECKING:
    from webrt.runtime.scope import Scope


class Steps:
    """State of one run of a plan's steps. `host` holds what was fed or made on the host; `external` buffers that stand
    in for slots, of inputs until others have these. `now` is the step that is run. `at` is the step of the outermost
    plan that a sub-plan belongs to; -1 for the plan itself."""

    def __init__(self, scope: Scope, queue: Queue, at: int = -1) -> None:
        self.scope, self.plan, self.memory, self.queue, self.at = scope, scope.plan, scope.memory, queue, at
        self.stats = queue.stats
        self.sizes = Sizes(self.plan, scope.evaluated)
        self.host: dict[str, HostValue] = {}
        self.external: dict[int, Buffer] = {}
        self.now = 0
        self.memory.before = queue.flush
        self.frame: Frame
        self.renew()

    def renew(self, around: Steps | None = None) -> None:
        """Forgets sizes and host values; the sizes of the steps `around` are known."""
        self.sizes = Sizes(self.plan, self.scope.evaluated, around.sizes if around is not None else None)
        self.host = {}
        if self.scope.resolver.draws:
            self.sizes.known[DRAWN] = int.from_bytes(os.urandom(4), "little")

    def within(self, index: int, body: int) -> Steps:
        """The steps of a body of step `index`."""
        return Steps(self.scope.inner[index][body], self.queue, self.step_of(index))

    def run(self) -> None:
        """All steps, in order; what need not be waited for is left in the queue."""
        for number, segment in enumerate(self.scope.resolver.segments):
            self.queue.control.check()
            self.now = segment.start
            step = self.plan.steps[segment.start]
            if segment.kind == "host":
                self._run_host(segment)
            elif segment.kind == "read":
                self._read_sizes(segment)
            elif isinstance(step, Branch):
                flow.run_branch(self, segment.start, step)
            elif isinstance(step, Loop):
                flow.run_loop(self, segment.start, step)
            else:
                self.queue.add(self._record(number, segment))
        self.now = len(self.plan.steps)

    def settle(self) -> None:
        """New sizes became known."""
        key = self.sizes.settle()
        self.frame = self.scope.frame(key, self.sizes.values)

    def lent(self, step: int) -> dict[int, Buffer]:
        """The buffers that stand in for slots at a step."""
        ends = self.scope.ends
        return {slot: buffer for slot, buffer in self.external.items() if slot not in ends or step < ends[slot]}

    @property
    def needs(self) -> list[int | None]:
        """The bytes that each slot needs of its own."""
        frame = self.frame
        sizes = zip(frame.slots, frame.after)
        return [(after or None) if i in self.external else size for i, (size, after) in enumerate(sizes)]

    def upload(self, info: ValueInfo, value: HostValue) -> None:
        if info.place is None:
            return
        self.queue.write(self.memory.range(info.place), T.to_bytes(value))

    def _record(self, number: int, segment: Segment) -> list[Command]:
        """The commands of a device segment, from an earlier run where sizes and buffers are the same."""
        self.memory.write_params(self.frame.params)
        textures = self.frame.schedule(self.plan, number, segment)
        self.memory.pool.ensure(textures.sizes)
        key = (number, self.memory.generation, tuple(sorted(self.external.items(), key=lambda e: e[0])))
        commands = self.frame.recorded.get(key)
        if commands is None:
            steps = range(segment.start, segment.stop)
            commands = self.frame.keep(key, [c for i in steps for c in self._commands(i, textures)])
        launches = sum(isinstance(c, Launch) for c in commands)
        self.stats.dispatches += launches
        self.stats.copies += len(commands) - launches
        return commands

    def _commands(self, index: int, textures: Schedule) -> list[Command]:
        """What a step needs copied into textures, and the step itself; nothing where it does nothing."""
        ready = self.frame.steps[index]
        if ready is None:
            raise PlanError("a step's size depends on a value that only comes later")
        if ready is SKIP:
            return []
        fills: list[Command] = [self._fill(c, self.memory.pool[t], index) for c, t in textures.fills.get(index, ())]
        try:
            return [*fills, self._command(index, ready, textures)]
        except DeviceError as e:
            e.step = self.step_of(index)
            raise

    def _fill(self, content: Content, texture: Texture, step: int) -> Fill:
        source = self.memory.binding(content.place, content.offset, 16 * content.texels, self.lent(step))
        return Fill(source.buffer, source.offset, texture, content.texels, self.step_of(step))

    def _command(self, index: int, ready: Ready, textures: Schedule) -> Command:
        step = self.plan.steps[index]
        if isinstance(step, Copy):
            lent = self.lent(index)
            source = self.memory.range(step.source, ready.offsets[0], lent)
            target = self.memory.range(step.target, ready.offsets[1], lent)
            size = ready.offsets[2]
            if size > min(source.nbytes, target.nbytes):
                raise PlanError(f"{node_name(self.plan, step)} copies {size} bytes, beyond the end of a tensor")
            return Transfer(source.buffer, source.offset, target.buffer, target.offset, size, self.step_of(index))
        if not isinstance(step, Dispatch):
            raise PlanError(f"step {index} is a {step.kind} step among device steps")
        pipeline, group = self.scope.group(index, ready.kernel, self._resources(step, index, ready, textures))
        x, y, z = ready.groups
        return Launch(pipeline, group, x, y, z, self.step_of(index))

    def _resources(self, step: Dispatch, index: int, ready: Ready, textures: Schedule) -> tuple[Resource, ...]:
        """What a dispatch binds, in order."""
        through, lent = dict(ready.textures), self.lent(index)
        found: list[Resource] = []
        if step.params and self.memory.params is not None:
            found.append(Range(self.memory.params, step.params_offset, padded(4 * len(step.params))))
        for binding, ((place, *_), offset, size) in enumerate(zip(step.bindings, ready.offsets, ready.sizes)):
            if binding not in through:
                found.append(self.memory.binding(place, offset, size, lent))
            elif place[0] == "c":
                found.append(self.memory.texture(through[binding]))
            else:
                found.append(self.memory.pool[textures.reads[index, binding]])
        return tuple(found)

    def step_of(self, index: int) -> int:
        """The step of the outermost plan that step `index` belongs to."""
        return index if self.at < 0 else self.at

    def _run_host(self, segment: Segment) -> None:
        steps = [(i, self.plan.steps[i]) for i in range(segment.start, segment.stop)]
        self._read_operands([s for _, s in steps if isinstance(s, HostStep)])
        for index, step in steps:
            if isinstance(step, HostStep):
                self.queue.control.check()
                self._run_node(index, step)
        self.settle()
        self.memory.ensure(self.needs)
        for _, step in steps:
            for name in step.outputs if isinstance(step, HostStep) else ():
                if name:
                    self.upload(self.plan.values[name], self.host[name])

    def _read_sizes(self, segment: Segment) -> None:
        """Submits what is pending and binds the sizes that it computed."""
        steps = self.plan.steps[segment.start : segment.stop]
        reads = [r for s in steps if isinstance(s, Read) for r in s.reads]
        ranges = [self.memory.range(place, 0, self.lent(self.now))._replace(nbytes=4) for place, _ in reads]
        for (_, name), data in zip(reads, self.queue.submit(ranges)):
            self.sizes.known[name] = int.from_bytes(data, "little", signed=True)
        self.settle()
        self.memory.ensure(self.needs)

    def _read_operands(self, steps: Iterable[HostStep]) -> None:
        """Submits what is pending and fetches what the steps read from the device, in one round trip."""
        made: set[str] = set()
        wanted: dict[str, ValueInfo] = {}
        for step in steps:
            for name in (*step.inputs, *step.outer):
                if name and name not in made and name not in self.host:
                    wanted[name] = self.plan.values[name]
            made |= set(step.outputs)
        fetched = {n: i for n, i in wanted.items() if not self.known(i)}
        ranges = [self.range(i) for i in fetched.values()]
        for info, data in zip(fetched.values(), self.queue.submit(ranges)):
            self.host[info.name] = T.from_bytes(data, dtype_of(info), self.sizes.shape(info))

    def _run_node(self, index: int, step: HostStep) -> None:
        inputs = [self.host[n] if n else None for n in step.inputs]
        outer = {n: self.host[n] for n in step.outer}
        recorder = self.queue.recorder
        with recorder.host(self.step_of(index)) if recorder else nullcontext():
            made = self.scope.handles[index].run(inputs, outer)
        self.stats.host_nodes += 1
        for name, value in zip(step.outputs, made):
            if name:
                self.host[name] = value
                self._bind_made(step, self.plan.values[name], value)

    def _bind_made(self, step: HostStep, info: ValueInfo, value: HostValue) -> None:
        def refuse(what: str) -> WebrtError:
            expected = declared(self.plan, info)
            return ShapeError(f"{node_name(self.plan, step)} made {info.name!r}: {what}; expected is {expected}")

        if T.shape_of(value) is not None and info.dtype and T.dtype_name(value) != info.dtype:
            raise refuse(f"its type is {T.dtype_name(value)}")
        bind_host(info, value, self.sizes, refuse)

    def known(self, info: ValueInfo) -> bool:
        """Whether the host has the value without the device; puts it into `host`."""
        if info.name in self.host:
            return True
        if info.contents is not None:
            values = [expect(r, self.sizes.values, f"the value {info.name!r}") for r in info.contents]
            self.host[info.name] = T.from_integers(values, dtype_of(info), self.sizes.shape(info))
            return True
        index = info.constant
        if index is None and info.place is not None and info.place[0] == "c":
            index = info.place[1]
        if index is not None:
            data = bytearray(self.plan.constant_bytes(index))
            self.host[info.name] = T.from_bytes(data, dtype_of(info), self.plan.constants[index].shape)
            return True
        return False

    def range(self, info: ValueInfo) -> Range:
        if info.place is None:
            raise PlanError(f"nothing gives the value {info.name!r}")
        nbytes = dtype_of(info).nbytes(math.prod(self.sizes.shape(info)))
        where = self.memory.range(info.place, 0, self.lent(self.now))
        return Range(where.buffer, where.offset, nbytes)


def dtype_of(info: ValueInfo) -> DType:
    if info.dtype not in BY_NAME:
        raise PlanError(f"{info.name!r} is no tensor, but a device step has it")
    return BY_NAME[info.dtype]
