"""Branches and loops of a run: only what decides is read back; tensors move on the device, between slots.

A body is run by `Steps` of its own, on the memory of its scope. Captured values stand in for its inputs where they can;
states, and the entries of scanned sequences, are copied into its slots; what an iteration makes is copied to its place
in the loop's output, or, while nobody knows how many iterations there will be, to a buffer that doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from webrt.dtypes import BY_NAME
from webrt.errors import InputError, PlanError
from webrt.runtime import tensor as T
from webrt.runtime.device import Range
from webrt.runtime.inner import Held, Inner, finish, held_by, scalar, scalar_of
from webrt.runtime.stacked import Line
from webrt.subplans import Branch, Loop, captured

if TYPE_CHECKING:
    from webrt.runtime.steps import Steps


def run_branch(around: Steps, index: int, step: Branch) -> None:
    """Runs one body of a branch."""
    taken = 0 if scalar(around, step.condition) else 1
    inner = Inner(around, index, taken, set())
    inner.start({v.name: held_by(around, around.plan.values[v.name]) for v in captured(step, step.bodies[taken])})
    inner.steps.run()
    made = [held_by(inner.steps, v) if name else None for name, v in zip(step.outputs, inner.steps.plan.outputs)]
    finish(around, inner, step.outputs, made)


def run_loop(around: Steps, index: int, step: Loop) -> None:
    """Runs the body of a loop as often as it says."""
    _LoopRun(around, index, step).go()


class _LoopRun:
    """One run of a loop."""

    def __init__(self, around: Steps, index: int, step: Loop) -> None:
        self.around, self.step = around, step
        moved = {b for _, b in step.state} | {b for _, b, _ in step.elements} | {step.number}
        self.inner = Inner(around, index, 0, moved)
        self.where = self.inner.where
        plan = self.inner.steps.plan
        first = int(step.again)
        self.carried = plan.outputs[first : first + len(step.state)]
        self.lines = [
            Line(around, self.inner, k, name, info, backward)
            for k, (name, info, backward) in enumerate(
                zip(step.outputs[len(step.state) :], plan.outputs[first + len(step.state) :], step.lines)
            )
            if name
        ]

    def go(self) -> None:
        step, around = self.step, self.around
        sequences = [(name, held_by(around, around.plan.values[a]), b) for a, name, b in step.elements]
        limit = self._limit(sequences)
        alive = not step.condition or bool(scalar(around, step.condition))
        given = {v.name: held_by(around, around.plan.values[v.name]) for v in captured(step, step.body)}
        state = {b: held_by(around, around.plan.values[a]) for a, b in step.state}
        done = 0
        exact = None if step.again else limit
        while alive and (limit is None or done < limit):
            around.queue.control.check()
            now = {**state, **self._entries(sequences, done, limit)}
            if done == 0:
                self.inner.start({**given, **now})
            else:
                self.inner.go_on(now)
            self.inner.steps.run()
            for line in self.lines:
                line.put(done, exact)
            done += 1
            alive = not step.again or bool(scalar_of(self.inner.steps, self.inner.steps.plan.outputs[0]))
            state = {b: held_by(self.inner.steps, v) for (_, b), v in zip(step.state, self.carried)}
            self._rest(state)
        if done == 0:
            self.inner.size_up({**given, **state, **self._entries(sequences, 0, limit)})
            self.inner.steps.sizes.settle()
        names = [*step.outputs[: len(state)], *(line.name for line in self.lines)]
        finish(around, self.inner, names, [*state.values(), *(line.held(done) for line in self.lines)])
        for line in self.lines:
            line.settle(done)

    def _rest(self, state: dict[str, Held]) -> None:
        """Does not let the device fall far behind; the outputs of a loop without a state bound it."""
        where = next((held.bytes for held in state.values() if held.bytes and held.bytes.nbytes), None)
        if where is not None:
            self.around.queue.rest(where)

    def _limit(self, sequences: Sequence[tuple[str, Held, bool]]) -> int | None:
        lengths = {held.shape[0] for _, held, _ in sequences if held.shape}
        if len(lengths) > 1:
            raise InputError(
                f"{self.where}: the scanned inputs have {sorted(lengths)} elements; they must be equally many"
            )
        limits = [*lengths, *([scalar(self.around, self.step.trips)] if self.step.trips else [])]
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
