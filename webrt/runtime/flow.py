"""Branches and loops of a run: only what decides is read back; tensors move on the device, between slots.

A body is run by `Steps` of its own, on the memory of its scope. Captured values stand in for its inputs where they can;
states, and the entries of scanned sequences, are copied into its slots; what an iteration makes is copied to its place
in the loop's output, or, while nobody knows how many iterations there will be, to a buffer that grows by half again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from webrt.dtypes import BY_NAME
from webrt.errors import InputError, PlanError, ShapeError
from webrt.plan import ValueInfo
from webrt.runtime import tensor as T
from webrt.runtime.device import Buffer, Range, Transfer
from webrt.runtime.feeds import bind_host
from webrt.runtime.resolve import node_name
from webrt.runtime.sizes import Sizes, declared
from webrt.runtime.tensor import HostValue
from webrt.subplans import Branch, Loop, captured

if TYPE_CHECKING:
    from webrt.runtime.steps import Steps


class Held(NamedTuple):
    """A value on its way between a plan and a sub-plan: bytes on the device, or a host value."""

    shape: tuple[int, ...] | None
    bytes: Range | None
    value: HostValue | None = None


def run_branch(around: Steps, index: int, step: Branch) -> None:
    """Runs one body of a branch."""
    taken = 0 if _scalar(around, step.condition) else 1
    inner = _Inner(around, index, taken, set())
    inner.start({v.name: _held(around, around.plan.values[v.name]) for v in captured(step, step.bodies[taken])})
    inner.steps.run()
    made = [_held(inner.steps, v) if name else None for name, v in zip(step.outputs, inner.steps.plan.outputs)]
    _finish(around, inner, step.outputs, made)


def run_loop(around: Steps, index: int, step: Loop) -> None:
    """Runs the body of a loop as often as it says."""
    _LoopRun(around, index, step).go()


class _Inner:
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
            value = _read(steps, info, held)
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
        if not steps.memory.fits(steps.frame.slots, steps.external):
            moved = {n: self._aside(h, temporary) for n, h in given.items()}
        steps.memory.ensure(steps.frame.slots, steps.external)
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
        _copy(self.steps, held.bytes, Range(buffer, 0, held.bytes.nbytes))
        return held._replace(bytes=Range(buffer, 0, held.bytes.nbytes))

    def _move(self, info: ValueInfo, held: Held) -> None:
        if info.place is None or info.place[1] in self.steps.external:
            return
        if held.bytes is not None:
            _copy(self.steps, held.bytes, self.steps.memory.range(info.place))
        elif held.value is not None:
            self.steps.upload(info, held.value)


class _LoopRun:
    """One run of a loop."""

    def __init__(self, around: Steps, index: int, step: Loop) -> None:
        self.around, self.step = around, step
        moved = {b for _, b in step.state} | {b for _, b, _ in step.elements} | {step.number}
        self.inner = _Inner(around, index, 0, moved)
        self.where = self.inner.where
        plan = self.inner.steps.plan
        first = int(step.again)
        self.carried = plan.outputs[first : first + len(step.state)]
        self.lines = [
            _Line(around, self.inner, k, name, info, backward)
            for k, (name, info, backward) in enumerate(
                zip(step.outputs[len(step.state) :], plan.outputs[first + len(step.state) :], step.lines)
            )
            if name
        ]

    def go(self) -> None:
        step, around = self.step, self.around
        sequences = [(name, _held(around, around.plan.values[a]), b) for a, name, b in step.elements]
        limit = self._limit(sequences)
        alive = not step.condition or bool(_scalar(around, step.condition))
        given = {v.name: _held(around, around.plan.values[v.name]) for v in captured(step, step.body)}
        state = {b: _held(around, around.plan.values[a]) for a, b in step.state}
        done = 0
        exact = None if step.again else limit
        while alive and (limit is None or done < limit):
            now = {**state, **self._entries(sequences, done, limit)}
            if done == 0:
                self.inner.start({**given, **now})
            else:
                self.inner.go_on(now)
            self.inner.steps.run()
            for line in self.lines:
                line.put(done, exact)
            done += 1
            alive = not step.again or bool(_scalar_of(self.inner.steps, self.inner.steps.plan.outputs[0]))
            state = {b: _held(self.inner.steps, v) for (_, b), v in zip(step.state, self.carried)}
        if done == 0:
            self.inner.size_up({**given, **state, **self._entries(sequences, 0, limit)})
            self.inner.steps.sizes.settle()
        names = [*step.outputs[: len(state)], *(line.name for line in self.lines)]
        _finish(around, self.inner, names, [*state.values(), *(line.held(done) for line in self.lines)])
        for line in self.lines:
            line.settle(done)

    def _limit(self, sequences: Sequence[tuple[str, Held, bool]]) -> int | None:
        lengths = {held.shape[0] for _, held, _ in sequences if held.shape}
        if len(lengths) > 1:
            raise InputError(
                f"{self.where}: the scanned inputs have {sorted(lengths)} elements; they must be equally many"
            )
        limits = [*lengths, *([_scalar(self.around, self.step.trips)] if self.step.trips else [])]
        return max(0, min(limits)) if limits else None

    def _entries(self, sequences: Sequence[tuple[str, Held, bool]], done: int, limit: int | None) -> dict[str, Held]:
        """The scanned sequences' entries of an iteration, and its number."""
        out: dict[str, Held] = {}
        for name, held, backward in sequences:
            shape = (held.shape or ())[1:]
            at = (limit or 0) - 1 - done if backward else done
            nbytes = BY_NAME[self.inner.inputs[name].dtype].nbytes(math.prod(shape))
            if held.bytes is None:
                raise PlanError(f"{self.where}: the scanned value is not on the device")
            out[name] = Held(shape, Range(held.bytes.buffer, held.bytes.offset + max(at, 0) * nbytes, nbytes))
        if self.step.number:
            out[self.step.number] = Held((), None, T.from_integers([done], BY_NAME["int64"], ()))
        return out


class _Line:
    """An output of a loop that its iterations make entry by entry, along a new first axis."""

    def __init__(self, around: Steps, inner: _Inner, number: int, name: str, info: ValueInfo, backward: bool) -> None:
        self.around, self.inner, self.number, self.name, self.info = around, inner, number, name, info
        self.backward = backward
        self.out = around.plan.values[name]
        self.shape: tuple[int, ...] = ()
        self.nbytes = 0
        self.direct: Range | None = None
        self.buffer: Buffer | None = None

    def put(self, done: int, exact: int | None) -> None:
        """Copies what iteration `done`, of `exact` ones where that is known, has made."""
        steps = self.inner.steps
        source = steps.range(self.info)
        shape = steps.sizes.shape(self.info)
        if done == 0:
            self.shape, self.nbytes = shape, source.nbytes
            self.direct = self._direct(exact)
        elif shape != self.shape:
            raise ShapeError(
                f"{self.inner.where}: the entries of {self.name!r} have shape {list(self.shape)}, then {list(shape)}"
            )
        if not self.nbytes:
            return
        if self.direct is not None and exact is not None:
            target = self._entry(self.direct, exact - 1 - done if self.backward else done)
        else:
            target = self._entry(self._grown(done), done)
        _copy(steps, source, target)

    def held(self, done: int) -> Held:
        """The output as the plan around takes it: in place already, or still to be copied by `settle`."""
        if done == 0:
            sizes = self.inner.steps.sizes
            self.shape = tuple(_or_zero(sizes, ref) for ref in self.info.shape or ())
        return Held((done, *self.shape), None)

    def settle(self, done: int) -> None:
        """Copies what waits elsewhere, once the output has its size."""
        if self.direct is not None or self.buffer is None:
            return
        target = self.around.range(self.out)
        whole = Range(self.buffer, 0, done * self.nbytes)
        if not self.backward:
            _copy(self.inner.steps, whole, target)
            return
        for k in range(done):
            _copy(self.inner.steps, self._entry(whole, k), self._entry(target, done - 1 - k))

    def _direct(self, exact: int | None) -> Range | None:
        """The output's own place, where its size is known before the loop ends."""
        around = self.around
        if exact is None or self.out.place is None or around.frame.slots[self.out.place[1]] is None:
            return None
        target = around.range(self.out)
        return target if target.nbytes == exact * self.nbytes else None

    def _grown(self, done: int) -> Range:
        steps = self.inner.steps
        buffer, old = steps.memory.accumulator(self.number, (done + 1) * self.nbytes)
        if old is not None:
            _copy(steps, Range(old, 0, done * self.nbytes), Range(buffer, 0, done * self.nbytes))
            steps.queue.flush()
            steps.scope.device.free(old)
        self.buffer = buffer
        return Range(buffer, 0, buffer.nbytes)

    def _entry(self, whole: Range, k: int) -> Range:
        return Range(whole.buffer, whole.offset + k * self.nbytes, self.nbytes)


def _finish(around: Steps, inner: _Inner, names: Sequence[str], made: Sequence[Held | None]) -> None:
    """Binds the sizes of a step's outputs and copies these to their places."""
    results = [(around.plan.values[name], held) for name, held in zip(names, made) if name and held is not None]
    for info, held in results:
        around.sizes.bind(info, held.shape or (), inner.refusal(info))
    around.settle()
    around.memory.ensure(around.frame.slots, around.external)
    for info, held in results:
        if held.bytes is not None:
            _copy(inner.steps, held.bytes, around.range(info))
        elif held.value is not None:
            around.upload(info, held.value)


def _held(steps: Steps, info: ValueInfo) -> Held:
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


def _scalar(steps: Steps, name: str) -> int:
    return _scalar_of(steps, steps.plan.values[name])


def _scalar_of(steps: Steps, info: ValueInfo) -> int:
    """The only element of a value, read back where the host does not have it."""
    value = steps.host[info.name] if steps.known(info) else _read(steps, info, _held(steps, info))
    elements = T.integers(value)
    if len(elements) != 1:
        raise ShapeError(f"{info.name!r} decides what is run, and has {len(elements)} elements; it must have one")
    return elements[0]


def _read(steps: Steps, info: ValueInfo, held: Held) -> HostValue:
    if held.bytes is None:
        raise PlanError(f"nothing gives the value {info.name!r}")
    (data,) = steps.queue.submit([held.bytes])
    return T.from_bytes(data, BY_NAME[info.dtype], held.shape or ())


def _copy(steps: Steps, source: Range, target: Range) -> None:
    """Whole words, unless they are there already."""
    nbytes = -(-source.nbytes // 4) * 4
    if not nbytes or (source.buffer is target.buffer and source.offset == target.offset):
        return
    if nbytes > target.nbytes and nbytes > target.buffer.nbytes - target.offset:
        raise PlanError(f"{nbytes} bytes do not fit {target.buffer.label!r}")
    steps.queue.add([Transfer(source.buffer, source.offset, target.buffer, target.offset, nbytes, steps.at)])
    steps.stats.copies += 1


def _or_zero(sizes: Sizes, ref: int | tuple[int]) -> int:
    """A size of what no iteration has made; 0 where only an iteration would tell."""
    value = ref if isinstance(ref, int) else sizes.values[ref[0]]
    return 0 if value is None else value
