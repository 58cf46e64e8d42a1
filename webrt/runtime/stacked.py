"""Outputs of a loop that its iterations make entry by entry, along a new first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webrt.errors import ShapeError
from webrt.plan import ValueInfo
from webrt.runtime.device import Buffer, Range
from webrt.runtime.inner import Held, Inner, copy
from webrt.runtime.sizes import Sizes

if TYPE_CHECKING:
    from webrt.runtime.steps import Steps


class Line:
    """An output of a loop that its iterations make entry by entry, along a new first axis."""

    def __init__(self, around: Steps, inner: Inner, number: int, name: str, info: ValueInfo, backward: bool) -> None:
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
        copy(steps, source, target)

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
            copy(self.inner.steps, whole, target)
            return
        for k in range(done):
            copy(self.inner.steps, self._entry(whole, k), self._entry(target, done - 1 - k))

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
            copy(steps, Range(old, 0, done * self.nbytes), Range(buffer, 0, done * self.nbytes))
            steps.queue.flush()
            steps.scope.device.free(old)
        self.buffer = buffer
        return Range(buffer, 0, buffer.nbytes)

    def _entry(self, whole: Range, k: int) -> Range:
        return Range(whole.buffer, whole.offset + k * self.nbytes, self.nbytes)


def _or_zero(sizes: Sizes, ref: int | tuple[int]) -> int:
    """A size of what no iteration has made; 0 where only an iteration would tell."""
    value = ref if isinstance(ref, int) else sizes.values[ref[0]]
    return 0 if value is None else value
