"""A body of a branch or a loop in one run, and values on their way between it and the plan around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from webrt.dtypes import BY_NAME
from webrt.errors import PlanError, ShapeError
from webrt.plan import ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import Buffer, Range, Transfer
from webrt.runtime.feeds import bind_host
from webrt.runtime.resolve import node_name
from webrt.runtime.sizes import declared
from webrt.runtime.tensor import HostValue

if TYPE_CHECKING:
    from webrt.runtime.steps import Steps


class Held(NamedTuple):
    """A value on its way between a plan and a sub-plan: bytes on the device, or a host value."""

    shape: tuple[int, ...] | None
    bytes: Range | None
    value: HostValue | None = None


class Inner:
    """A body's steps, which may be run several times. `moved` are the inputs that are copied each time."""

    def __init__(self, around: Steps, index: int, body: int, moved: set[str]) -> None:
        self.around, self.where, self.moved = around, node_name(around.plan, around.plan.steps[index]), moved
        self.steps = around.within(index, body)
        self.inputs = {v.name: v for v in self.steps.plan.inputs}
        self.kept: dict[str, Held] = {}

    def start(self, given: Mapping[str, Held]) -> None:
        """Binds sizes anew and brings values to their inputs; what was given before and is not given now stays."""
        self.kept.update(given)
        self.size_up(self.kept)
        self.steps.settle()
        self._place(given)

    def go_on(self, given: Mapping[str, Held]) -> None:
        """As `start`, for the next iteration: where its sizes are those of the last one, nothing is bound."""
        same = all(self.kept[n].shape == h.shape for n, h in given.items())
        if same and self.steps.scope.steady and not any(self.inputs[n].elements for n in given):
            for name, held in given.items():
                self._move(self.inputs[name], held)
            return
        self.start(given)

    def size_up(self, given: Mapping[str, Held]) -> None:
        """Binds sizes anew."""
        self.steps.renew(self.around)
        for name, held in given.items():
            self._bind(self.inputs[name], held)

    def refusal(self, info: ValueInfo) -> Callable[[str], ShapeError]:
        """What makes the error for a value that has not the shape that it should have."""
        plan = self.steps.plan if info.name in self.inputs else self.around.plan
        return lambda what: ShapeError(f"{self.where}: {info.name!r}: {what}; expected is {declared(plan, info)}")

    def _bind(self, info: ValueInfo, held: Held) -> None:
        steps, value, refuse = self.steps, held.value, self.refusal(info)
        if value is None and (info.place is None or info.elements):
            value = read_back(steps, info, held)
        if value is not None:
            steps.host[info.name] = value
            bind_host(info, value, steps.sizes, refuse)
        elif held.shape is not None:
            steps.sizes.bind(info, held.shape, refuse)

    def _place(self, given: Mapping[str, Held]) -> None:
        """Brings values to the slots of their inputs. Where slots have to grow, states wait elsewhere meanwhile."""
        steps = self.steps
        for name, held in given.items():
            slot = steps.scope.replaceable.get(name)
            need = steps.frame.slots[slot] if slot is not None else None
            if slot is None or need is None or held.bytes is None or name in self.moved:
                continue
            if held.bytes.offset == 0 and held.bytes.buffer.nbytes >= need:
                steps.external[slot] = held.bytes.buffer
        moved = dict(given)
        temporary: list[Buffer] = []
        if not steps.memory.fits(steps.needs):
            moved = {n: self._aside(h, temporary) for n, h in given.items()}
        steps.memory.ensure(steps.needs)
        for name, held in moved.items():
            self._move(self.inputs[name], held)
        if temporary:
            steps.queue.flush()
            for buffer in temporary:
                steps.scope.device.free(buffer)

    def _aside(self, held: Held, temporary: list[Buffer]) -> Held:
        if held.bytes is None or not held.bytes.nbytes:
            return held
        buffer = self.steps.scope.device.alloc(held.bytes.nbytes, "a state while slots grow")
        temporary.append(buffer)
        copy(self.steps, held.bytes, Range(buffer, 0, held.bytes.nbytes))
        return held._replace(bytes=Range(buffer, 0, held.bytes.nbytes))

    def _move(self, info: ValueInfo, held: Held) -> None:
        if info.place is None or info.place[1] in self.steps.external:
            return
        if held.bytes is not None:
            copy(self.steps, held.bytes, self.steps.memory.range(info.place))
        elif held.value is not None:
            self.steps.upload(info, held.value)


def finish(around: Steps, inner: Inner, names: Sequence[str], made: Sequence[Held | None]) -> None:
    """Binds the sizes of a step's outputs and copies these to their places."""
    results = [(around.plan.values[name], held) for name, held in zip(names, made) if name and held is not None]
    for info, held in results:
        around.sizes.bind(info, held.shape or (), inner.refusal(info))
    around.settle()
    around.memory.ensure(around.needs)
    for info, held in results:
        if held.bytes is not None:
            copy(inner.steps, held.bytes, around.range(info))
        elif held.value is not None:
            around.upload(info, held.value)


def held_by(steps: Steps, info: ValueInfo) -> Held:
    """A value of these steps, on the device where it is there."""
    if info.place is not None:
        return Held(steps.sizes.shape(info), steps.range(info))
    if info.constant is not None and steps.memory.has(info.constant):
        whole = steps.memory.range(("c", info.constant))
        return Held(steps.sizes.shape(info), whole._replace(nbytes=steps.plan.constants[info.constant].nbytes))
    if not steps.known(info):
        raise PlanError(f"nothing gives the value {info.name!r}")
    value = steps.host[info.name]
    return Held(T.shape_of(value), None, value)


def scalar(steps: Steps, name: str) -> int:
    return scalar_of(steps, steps.plan.values[name])


def scalar_of(steps: Steps, info: ValueInfo) -> int:
    """The only element of a value, read back where the host does not have it."""
    value = steps.host[info.name] if steps.known(info) else read_back(steps, info, held_by(steps, info))
    elements = T.integers(value)
    if len(elements) != 1:
        raise ShapeError(f"{info.name!r} decides what is run, and has {len(elements)} elements; it must have one")
    return elements[0]


def read_back(steps: Steps, info: ValueInfo, held: Held) -> HostValue:
    if held.bytes is None:
        raise PlanError(f"nothing gives the value {info.name!r}")
    (data,) = steps.queue.submit([held.bytes])
    return T.from_bytes(data, BY_NAME[info.dtype], held.shape or ())


def copy(steps: Steps, source: Range, target: Range) -> None:
    """Whole words, unless they are there already."""
    nbytes = -(-source.nbytes // 4) * 4
    if not nbytes or (source.buffer is target.buffer and source.offset == target.offset):
        return
    if nbytes > target.nbytes and nbytes > target.buffer.nbytes - target.offset:
        raise PlanError(f"{nbytes} bytes do not fit {target.buffer.label!r}")
    steps.queue.add([Transfer(source.buffer, source.offset, target.buffer, target.offset, nbytes, steps.at)])
    steps.stats.copies += 1
