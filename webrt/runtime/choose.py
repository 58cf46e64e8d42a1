"""Which of a dispatch's alternatives runs: on a target, and at given sizes; and what it reads through textures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from webrt.dims import resolve
from webrt.errors import TargetError
from webrt.plan import TEXTURE_WIDTH, Dispatch, Plan
from webrt.runtime.textures import Content
from webrt.target import Target
from webrt.validate import KernelLayout, kernel_layout


class Choices:
    """The kernels that a plan's dispatches may run on a target. Raises TargetError where one has none."""

    def __init__(
        self, plan: Plan, target: Target, name: Callable[[Dispatch], str], refused: Mapping[int, str] | None = None
    ) -> None:
        """`name` is a step for people; `refused` the kernels that the device's compiler refused, with what it said."""
        self._plan, self._target, self._name = plan, target, name
        self._refused = {} if refused is None else refused
        self._unknown: list[int | None] = [None] * len(plan.dims)
        self._found = {i: self._candidates(s) for i, s in enumerate(plan.steps) if isinstance(s, Dispatch)}

    def refresh(self) -> int | None:
        """More kernels were refused. The first step that has no alternative left."""
        for i in self._found:
            try:
                self._found[i] = self._candidates(self._dispatch(i))
            except TargetError:
                return i
        return None

    def first(self, step: int) -> int:
        """The kernel of a dispatch, unless sizes decide for another."""
        return self._dispatch(step).alternatives[self._found[step][0]][0]

    def alternative(self, step: int, values: Sequence[int | None]) -> int | None:
        """The first alternative that applies at these sizes; None while that is not known. Raises TargetError."""
        for i in self._found[step]:
            applies = self._applies(self._dispatch(step), i, values)
            if applies is not False:
                return i if applies else None
        name = self._name(self._dispatch(step))
        said = "".join(f"; {self._refused[k]}" for k, *_ in self._dispatch(step).alternatives if k in self._refused)
        raise TargetError(f"no alternative of {name} runs at these sizes on the device {self._target.name!r}{said}")

    def layout(self, kernel: int) -> KernelLayout:
        """What a kernel binds."""
        return kernel_layout(self._plan.kernels[kernel].wgsl)

    def contents(self, step: Dispatch, kernel: int, values: Sequence[int | None]) -> list[tuple[int, Content]]:
        """(binding, content) of each texture that a kernel reads; without those whose sizes are not known."""
        texels, found = dict(step.textures), []
        for binding, words in self.layout(kernel).textures():
            place, _, offset, _ = step.bindings[binding]
            at, count = resolve(offset, values), resolve(texels[binding], values)
            if at is not None and count is not None:
                found.append((binding, Content(place, at, max(1, count), words)))
        return found

    def constants(self) -> tuple[set[int], set[Content]]:
        """The constants that dispatches may read in buffers, and what they may read of constants through textures."""
        in_buffers: set[int] = set()
        in_textures: set[Content] = set()
        for i, found in self._found.items():
            step = self._dispatch(i)
            for kernel in {step.alternatives[a][0] for a in found}:
                read = [c for _, c in self.contents(step, kernel, self._unknown) if c.place[0] == "c"]
                in_textures.update(read)
                letters = self.layout(kernel).access
                bound = [place for letter, (place, *_) in zip(letters, step.bindings) if letter in "rw"]
                in_buffers.update(index for kind, index in bound if kind == "c")
        return in_buffers, in_textures

    def _candidates(self, step: Dispatch) -> list[int]:
        """The alternatives that may be taken, in order, up to one that runs at all sizes."""
        found, reasons = [], []
        for i, (kernel, *_) in enumerate(step.alternatives):
            reason = self._refused.get(kernel) or self._target.meets(self._plan.kernels[kernel].requires)
            applies = None if reason else self._applies(step, i, self._unknown)
            if reason:
                reasons.append(reason)
            elif applies is not False:
                found.append(i)
            if applies:
                break
        if not found:
            raise TargetError(f"no alternative of {self._name(step)} runs here: {'; '.join(reasons)}")
        return found

    def _applies(self, step: Dispatch, alternative: int, values: Sequence[int | None]) -> bool | None:
        """Whether an alternative's condition holds and its textures fit the target; None while that is not known."""
        when, texels = resolve(step.applies(alternative), values), dict(step.textures)
        textures = self.layout(step.alternatives[alternative][0]).textures()
        sizes = [resolve(texels[binding], values) for binding, _ in textures]
        most = TEXTURE_WIDTH * self._target.limit("maxTextureDimension2D")
        if when == 0 or any(s is not None and s > most for s in sizes):
            return False
        return None if when is None or None in sizes else True

    def _dispatch(self, index: int) -> Dispatch:
        step = self._plan.steps[index]
        if not isinstance(step, Dispatch):
            raise TypeError(f"step {index} is no dispatch")
        return step
