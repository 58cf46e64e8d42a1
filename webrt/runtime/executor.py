"""One run of a session: feeds, segments of device and host steps, outputs."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from webrt.dtypes import BY_NAME, DType
from webrt.errors import PlanError, ShapeError, WebrtError
from webrt.plan import DRAWN, Copy, Dispatch, HostStep, Read, ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import Buffer, Command, Fill, Launch, Range, Resource, Texture, Transfer, padded
from webrt.runtime.feeds import bind_host, choose_locations, choose_outputs, take
from webrt.runtime.resolve import SKIP, Frame, Ready, expect, node_name
from webrt.runtime.segments import Segment
from webrt.runtime.sizes import Sizes, declared
from webrt.runtime.tensor import HostValue, Tensor
from webrt.runtime.textures import Content, Schedule

if TYPE_CHECKING:
    from webrt.runtime.profile import Recorder
    from webrt.runtime.session import Session


class Run:
    """State of one run. `host` holds what was fed or made on the host; `external` buffers that stand in for slots.
    `recorder` times it."""

    def __init__(
        self,
        session: Session,
        names: Sequence[str] | None,
        location: str | Mapping[str, str],
        recorder: Recorder | None = None,
    ) -> None:
        self.session, self.plan, self.memory, self.recorder = session, session.plan, session.memory, recorder
        self.stats = session.last_run
        self.outputs = choose_outputs(self.plan, names)
        self.on_device = choose_locations(self.plan, self.outputs, location)
        self.sizes = Sizes(self.plan, session.evaluated)
        if session.resolver.draws:
            self.sizes.known[DRAWN] = secrets.randbits(32)
        self.host: dict[str, HostValue] = {}
        self.external: dict[int, Buffer] = {}
        self.pending: list[Command] = []
        self.frame: Frame

    def go(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The asked-for outputs, in order."""
        taken = take(self.plan, self.session.device, feeds, self.sizes)
        self.host, self.stats.down = taken.host, taken.down
        self._settle()
        self._place_tensors(taken.tensors)
        for info in self.plan.inputs:
            if info.name in self.host:
                self._upload(info, self.host[info.name])
        for number, segment in enumerate(self.session.resolver.segments):
            self.session.control.check()
            if segment.kind == "host":
                self._run_host(segment)
            elif segment.kind == "read":
                self._read_sizes(segment)
            else:
                self.pending += self._record(number, segment)
        return self._collect()

    def _place_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Device tensors stand in for their input's slot where nothing writes it; else they are copied there."""
        infos = {i.name: i for i in self.plan.inputs}
        for name, value in tensors.items():
            slot = self.session.replaceable.get(name)
            need = self.frame.slots[slot] if slot is not None else None
            if slot is not None and need is not None and value.buffer.nbytes >= need:
                self.external[slot] = value.buffer
        self.memory.ensure(self.frame.slots, self.external)
        for name, value in tensors.items():
            place = infos[name].place
            if place is not None and place[1] not in self.external and value.nbytes:
                target = self.memory.range(place)
                self.pending.append(Transfer(value.buffer, 0, target.buffer, target.offset, padded(value.nbytes)))
                self.stats.copies += 1

    def _settle(self) -> None:
        """New sizes became known."""
        key = self.sizes.settle()
        self.frame = self.session.frame(key, self.sizes.values)

    def _upload(self, info: ValueInfo, value: HostValue) -> None:
        if info.place is None:
            return
        target = self.memory.range(info.place)
        data = T.to_bytes(value)
        T.upload(self.session.device, target.buffer, data, target.offset)
        self.stats.up += data.nbytes

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
        return [*fills, self._command(index, ready, textures)]

    def _fill(self, content: Content, texture: Texture, step: int) -> Fill:
        source = self.memory.binding(content.place, content.offset, 16 * content.texels, self.external)
        return Fill(source.buffer, source.offset, texture, content.texels, step)

    def _command(self, index: int, ready: Ready, textures: Schedule) -> Command:
        step = self.plan.steps[index]
        if isinstance(step, Copy):
            source = self.memory.range(step.source, ready.offsets[0], self.external)
            target = self.memory.range(step.target, ready.offsets[1], self.external)
            size = ready.offsets[2]
            if size > min(source.nbytes, target.nbytes):
                raise PlanError(f"{node_name(self.plan, step)} copies {size} bytes, beyond the end of a tensor")
            return Transfer(source.buffer, source.offset, target.buffer, target.offset, size, index)
        if not isinstance(step, Dispatch):
            raise PlanError(f"step {index} is a {step.kind} step among device steps")
        pipeline, group = self.session.group(index, ready.kernel, self._resources(step, index, ready, textures))
        x, y, z = ready.groups
        return Launch(pipeline, group, x, y, z, index)

    def _resources(self, step: Dispatch, index: int, ready: Ready, textures: Schedule) -> tuple[Resource, ...]:
        """What a dispatch binds, in order."""
        through = dict(ready.textures)
        found: list[Resource] = []
        if step.params and self.memory.params is not None:
            found.append(Range(self.memory.params, step.params_offset, padded(4 * len(step.params))))
        for binding, ((place, _, _, size), offset) in enumerate(zip(step.bindings, ready.offsets)):
            if binding not in through:
                found.append(self.memory.binding(place, offset, size, self.external))
            elif place[0] == "c":
                found.append(self.memory.texture(through[binding]))
            else:
                found.append(self.memory.pool[textures.reads[index, binding]])
        return tuple(found)

    def _run_host(self, segment: Segment) -> None:
        steps = [(i, self.plan.steps[i]) for i in range(segment.start, segment.stop)]
        self._read_operands([s for _, s in steps if isinstance(s, HostStep)])
        for index, step in steps:
            if isinstance(step, HostStep):
                self.session.control.check()
                self._run_node(index, step)
        self._settle()
        self.memory.ensure(self.frame.slots, self.external)
        for _, step in steps:
            for name in step.outputs if isinstance(step, HostStep) else ():
                if name:
                    self._upload(self.plan.values[name], self.host[name])

    def _read_sizes(self, segment: Segment) -> None:
        """Submits what is pending and binds the sizes that it computed."""
        steps = self.plan.steps[segment.start : segment.stop]
        reads = [r for s in steps if isinstance(s, Read) for r in s.reads]
        ranges = [self.memory.range(place, 0, self.external)._replace(nbytes=4) for place, _ in reads]
        for (_, name), data in zip(reads, self._submit(ranges)):
            self.sizes.known[name] = int.from_bytes(data, "little", signed=True)
        self._settle()
        self.memory.ensure(self.frame.slots, self.external)

    def _read_operands(self, steps: Iterable[HostStep]) -> None:
        """Submits what is pending and fetches what the steps read from the device, in one round trip."""
        made: set[str] = set()
        wanted: dict[str, ValueInfo] = {}
        for step in steps:
            for name in (*step.inputs, *step.outer):
                if name and name not in made and name not in self.host:
                    wanted[name] = self.plan.values[name]
            made |= set(step.outputs)
        fetched = {n: i for n, i in wanted.items() if not self._known(i)}
        ranges = [self._range(i) for i in fetched.values()]
        for info, data in zip(fetched.values(), self._submit(ranges)):
            self.host[info.name] = T.from_bytes(data, _dtype(info), self.sizes.shape(info))

    def _run_node(self, index: int, step: HostStep) -> None:
        inputs = [self.host[n] if n else None for n in step.inputs]
        outer = {n: self.host[n] for n in step.outer}
        with self.recorder.host(index) if self.recorder else nullcontext():
            made = self.session.handles[index].run(inputs, outer)
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

    def _known(self, info: ValueInfo) -> bool:
        """Whether the host has the value without the device; puts it into `host`."""
        if info.name in self.host:
            return True
        if info.contents is not None:
            values = [expect(r, self.sizes.values, f"the value {info.name!r}") for r in info.contents]
            self.host[info.name] = T.from_integers(values, _dtype(info), self.sizes.shape(info))
            return True
        index = info.constant
        if index is None and info.place is not None and info.place[0] == "c":
            index = info.place[1]
        if index is not None:
            data = bytearray(self.plan.constant_bytes(index))
            self.host[info.name] = T.from_bytes(data, _dtype(info), self.plan.constants[index].shape)
            return True
        return False

    def _range(self, info: ValueInfo) -> Range:
        if info.place is None:
            raise PlanError(f"nothing gives the value {info.name!r}")
        nbytes = _dtype(info).nbytes(math.prod(self.sizes.shape(info)))
        where = self.memory.range(info.place, 0, self.external)
        return Range(where.buffer, where.offset, nbytes)

    def _submit(self, ranges: Sequence[Range]) -> list[memoryview]:
        if not self.pending and not any(r.nbytes for r in ranges):
            return [memoryview(bytearray()) for _ in ranges]
        self.session.control.check()
        commands, self.pending = self.pending, []
        data = (self.recorder or self.session.device).submit(commands, ranges, timeout=self.session.control.left)
        self.stats.submits += 1
        self.stats.down += sum(r.nbytes for r in ranges)
        return data

    def _collect(self) -> list[Any]:
        """Reads outputs in the last submit, or copies them into tensors of their own."""
        out: list[Any] = []
        try:
            self._gather(out)
        except BaseException:
            for made in out:
                if isinstance(made, Tensor):
                    made.close()
            raise
        return out

    def _gather(self, out: list[Any]) -> None:
        reads: list[tuple[int, ValueInfo]] = []
        for at, (info, on_device) in enumerate(zip(self.outputs, self.on_device)):
            if self._known(info):
                value = self.host[info.name]
                out.append(Tensor.from_numpy(value, self.session.device) if on_device else T.copy(value))
            elif on_device:
                out.append(self._hand_out(info))
            else:
                out.append(None)
                reads.append((at, info))
        data = self._submit([self._range(info) for _, info in reads])
        for (at, info), view in zip(reads, data):
            out[at] = T.from_bytes(view, _dtype(info), self.sizes.shape(info))

    def _hand_out(self, info: ValueInfo) -> Tensor:
        made = Tensor.empty(_dtype(info), self.sizes.shape(info), self.session.device)
        if made.nbytes:
            source = self._range(info)
            self.pending.append(Transfer(source.buffer, source.offset, made.buffer, 0, padded(made.nbytes)))
            self.stats.copies += 1
        return made


def _dtype(info: ValueInfo) -> DType:
    if info.dtype not in BY_NAME:
        raise PlanError(f"{info.name!r} is no tensor, but a device step has it")
    return BY_NAME[info.dtype]
