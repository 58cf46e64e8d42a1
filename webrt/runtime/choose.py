"""Which of a dispatch's alternatives runs: on a target, and at given sizes; and what it reads through textures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from webrt.buckets import bucket_of
from webrt.dims import resolve
from webrt.errors import TargetError
from webrt.kernel_layout import KernelLayout, kernel_layout
from webrt.plan import TEXTURE_WIDTH, Dispatch, Plan
from webrt.runtime.textures import Content
from webrt.runtime.tuning import Key, Table
from webrt.target import Target


class Choices:
    """The kernels that a plan's dispatches may run on a target. Raises TargetError where one has none."""

    def __init__(
        self, plan: Plan, target: Target, name: Callable[[Dispatch], str], refused: Mapping[int, str] | None = None,
        tuned: Table | None = None,
    ) -> None:  # fmt: skip
        """`name` is a step for people; `refused` the kernels that the device's compiler refused, with what it said;
        `tuned` says which of those that may run is the fastest."""
        self._plan, self._target, self._name, self._tuned = plan, target, name, tuned
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
        tuned = self._tuned_choice(step, self._unknown)
        return self._dispatch(step).alternatives[self._found[step][0] if tuned is None else tuned][0]

    def alternative(self, step: int, values: Sequence[int | None]) -> int | None:
        """The alternative to take at these sizes: the fastest, where that was measured, else the first that applies.
        None while that is not known. Raises TargetError."""
        tuned = self._tuned_choice(step, values)
        return self._default(step, values) if tuned is None else tuned

    def options(self, step: int, values: Sequence[int | None]) -> list[int]:
        """All alternatives that may run at these sizes, the default first; none while one of these is not known."""
        found = []
        for i, (kernel, *_) in enumerate(self._dispatch(step).alternatives):
            if not self._may_run(kernel):
                continue
            applies = self._applies(self._dispatch(step), i, values)
            if applies is None:
                return []
            found += [i] if applies else []
        return found

    def key(self, step: int, options: Sequence[int], values: Sequence[int | None]) -> Key | None:
        """What a measurement of these alternatives is kept under; None while sizes are not known, and where there is
        nothing to choose."""
        dispatch = self._dispatch(step)
        hashes = [self._plan.kernels[dispatch.alternatives[i][0]].hash for i in options]
        if len(set(hashes)) < 2 or len(set(hashes)) != len(hashes):
            return None
        sizes = [resolve(x, values) for x in (*dispatch.alternatives[options[0]][1:], *dispatch.params)]
        known = [n for n in sizes if n is not None]
        return (tuple(hashes), bucket_of(known)) if len(known) == len(sizes) else None

    def _tuned_choice(self, step: int, values: Sequence[int | None]) -> int | None:
        if self._tuned is None or len(self._dispatch(step).alternatives) < 2:
            return None
        options = self.options(step, values)
        key = self.key(step, options, values)
        chosen = self._tuned.chosen(key) if key else None
        if key is None or chosen is None:
            return None
        made = options[key[0].index(chosen)]
        groups = [resolve(g, values) for g in self._dispatch(step).alternatives[made][1:]]
        most = self._target.limit("maxComputeWorkgroupsPerDimension")
        return made if all(g is not None and g <= most for g in groups) else None

    def _default(self, step: int, values: Sequence[int | None]) -> int | None:
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
        for i in self._found:
            step = self._dispatch(i)
            for kernel in {step.alternatives[a][0] for a in self._reachable(i)}:
                read = [c for _, c in self.contents(step, kernel, self._unknown) if c.place[0] == "c"]
                in_textures.update(read)
                letters = self.layout(kernel).access
                bound = [place for letter, (place, *_) in zip(letters, step.bindings) if letter in "rw"]
                in_buffers.update(index for kind, index in bound if kind == "c")
        return in_buffers, in_textures

    def _reachable(self, step: int) -> list[int]:
        """The alternatives that may be taken at some sizes."""
        tuned = self._tuned_choice(step, self._unknown)
        if tuned is not None:
            return [tuned]
        if self._tuned is None:
            return self._found[step]
        dispatch = self._dispatch(step)
        hashes = {i: self._plan.kernels[kernel].hash for i, (kernel, *_) in enumerate(dispatch.alternatives)}
        mentioned = self._tuned.mentions(set(hashes.values()))
        others = [i for i, (k, *_) in enumerate(dispatch.alternatives) if hashes[i] in mentioned and self._may_run(k)]
        return [*self._found[step], *others]

    def _may_run(self, kernel: int) -> bool:
        return kernel not in self._refused and not self._target.meets(self._plan.kernels[kernel].requires)

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
            raise TargetError(f"no alternative of {self._name(step)} runs here: {'; '.join(dict.fromkeys(reasons))}")
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
