"""Measures alternatives on the device, over buffers of their own: a run's tensors are not touched."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from webrt.dims import resolve
from webrt.errors import InputError, OutOfMemory, PlanError, TargetError
from webrt.plan import Dispatch, Place, Plan
from webrt.runtime.device import Buffer, Command, Fill, Launch, Range, Resource, Texture, padded
from webrt.runtime.resolve import SKIP, Ready, node_name
from webrt.runtime.textures import Content
from webrt.runtime.tuning import Entry, Key, Tuning, Work

if TYPE_CHECKING:
    from webrt.runtime.scope import Scope

ROUNDS = 5
LEAST_ROUNDS = 3
"""With fewer nothing is known."""
ENOUGH = 4e-3
"""Seconds that a measurement should take: short work is repeated in one submit."""
MOST_REPEATS = 100
FAR = 3.0
"""A candidate that takes so many times the best one's time is not measured again."""
WORTH = 0.95
"""What another alternative may take of the default's time, to be chosen: at best, and in the median."""


@dataclass
class Job:
    """Dispatches with the same alternatives and about the same sizes: the first of them, and how many they are."""

    key: Key
    step: int
    options: list[int]
    groups: int
    count: int = 1


def tune(scope: Scope, tuning: Tuning, values: Sequence[int | None]) -> bool:
    """Measures what the table lacks of a plan at sizes `values`, the largest first, until the budget is used up.
    Whether the table has more than before."""
    added, refused = False, -1
    while refused != len(scope.refused):
        refused = len(scope.refused)
        jobs = sorted(_jobs(scope, tuning, values).values(), key=lambda j: -j.count * j.groups)
        for number, job in enumerate(jobs):
            tuning.progress(number, len(jobs))
            added |= tuning.budget > 0 and _measured(scope, tuning, job, values)
        if jobs:
            tuning.progress(len(jobs), len(jobs))
    return added


def _measured(scope: Scope, tuning: Tuning, job: Job, values: Sequence[int | None]) -> bool:
    start = tuning.clock()
    try:
        entry = _Candidates(scope, tuning, job, values, start + tuning.budget).entry()
    except (OutOfMemory, TargetError, InputError, PlanError):
        entry = None  # what does not fit beside the session is not measured; a run tells what does not fit at all
    tuning.budget -= tuning.clock() - start
    if entry is not None:
        tuning.table.entries[job.key] = entry
        tuning.jobs.append((job.key, job.count, node_name(scope.plan, scope.plan.steps[job.step])))
    return entry is not None


def _jobs(scope: Scope, tuning: Tuning, values: Sequence[int | None]) -> dict[Key, Job]:
    found: dict[Key, Job] = {}
    choices = scope.resolver.choices
    for i, step in enumerate(scope.plan.steps):
        if not isinstance(step, Dispatch) or len(step.alternatives) < 2:
            continue
        options = choices.options(i, values)
        key = choices.key(i, options, values) if options else None
        groups = prod(resolve(g, values) or 0 for g in step.alternatives[options[0]][1:]) if options else 0
        if key is None or groups <= 0 or key in tuning.table.entries:
            continue
        if key in found:
            found[key].count += 1
        else:
            found[key] = Job(key, i, options, groups)
    return found


class _Candidates:
    """The alternatives of a job, over scratch buffers."""

    def __init__(self, scope: Scope, tuning: Tuning, job: Job, values: Sequence[int | None], end: float) -> None:
        """`end` is when the budget is used up, by the clock of `tuning`."""
        step = scope.plan.steps[job.step]
        if not isinstance(step, Dispatch):
            raise PlanError(f"step {job.step} is no dispatch")
        self._scope, self._tuning, self._job, self._step, self._values = scope, tuning, job, step, values
        self._plan, self._device, self._end = scope.plan, scope.device, end

    def entry(self) -> Entry | None:
        """What was measured; None where the time was too short, a kernel was refused, or there is nothing to do."""
        ready = [self._scope.resolver.ready(self._step, i, self._values) for i in self._job.options]
        words = self._scope.resolver.words(self._step, self._values)
        known = [r for r in ready if r is not None and r is not SKIP]
        kernels = [(self._scope, self._job.step, r.kernel) for r in known]
        if len(known) < len(ready) or words is None or any(r.kernel in self._scope.refused for r in known):
            return None
        if self._scope.make_pipelines(lambda: kernels):
            return None
        with ExitStack() as stack:
            buffers = self._buffers(stack)
            params = self._alloc(stack, 4 * len(words), uniform=True) if words else None
            if params is not None:
                self._device.write(params, 0, struct.pack(f"<{len(words)}I", *words))
            commands = [self._commands(stack, r, buffers, params) for r in known]
            out = next(buffers[p] for p, access, *_ in self._step.bindings if access == "w")
            times = self._times([r.kernel for r in known], commands, Range(out, 0, 4))
        return None if times is None else _choose(self._plan, [r.kernel for r in known], times)

    def _buffers(self, stack: ExitStack) -> dict[Place, Buffer]:
        """A buffer for each place that the dispatch binds, of its size."""
        return {p: self._alloc(stack, self._nbytes(p)) for p in dict.fromkeys(p for p, *_ in self._step.bindings)}

    def _nbytes(self, place: Place) -> int:
        kind, index = place
        size = (
            self._plan.constants[index].nbytes if kind == "c" else resolve(self._plan.slots[index].size, self._values)
        )
        if size is None:
            raise PlanError("the size of a slot is not known")
        return padded(size)

    def _alloc(self, stack: ExitStack, nbytes: int, *, uniform: bool = False) -> Buffer:
        made = self._device.alloc(nbytes, "tuning", uniform=uniform)
        stack.callback(self._device.free, made)
        return made

    def _commands(
        self, stack: ExitStack, ready: Ready, buffers: Mapping[Place, Buffer], params: Buffer | None
    ) -> list[Command]:
        """What a run does for an alternative: copies of slots into textures, and the dispatch."""
        found: list[Resource] = [Range(params, 0, params.nbytes)] if params is not None else []
        fills: list[Command] = []
        through = dict(ready.textures)
        most = self._scope.resolver.target.limit("maxStorageBufferBindingSize")
        for i, ((place, *_), offset, size) in enumerate(zip(self._step.bindings, ready.offsets, ready.sizes)):
            buffer = buffers[place]
            if i in through:
                texture = self._texture(stack, through[i])
                found.append(texture)
                if place[0] == "s":
                    fills.append(self._fill(buffer, texture, through[i]))
                continue
            nbytes = size or min(buffer.nbytes - offset, most)
            if not 0 < nbytes <= buffer.nbytes - offset:
                raise PlanError("a dispatch binds what is beyond a tensor")
            found.append(Range(buffer, offset, nbytes))
        pipeline = self._scope.pipeline(ready.kernel)
        return [*fills, Launch(pipeline, self._device.bind(pipeline, found), *ready.groups)]

    def _texture(self, stack: ExitStack, content: Content) -> Texture:
        made = self._device.alloc_texture(content.texels, content.words, "tuning")
        stack.callback(self._device.free_texture, made)
        return made

    def _fill(self, source: Buffer, texture: Texture, content: Content) -> Fill:
        if content.offset + 16 * content.texels > source.nbytes:
            raise PlanError("a texture holds what is beyond a tensor")
        return Fill(source, content.offset, texture, content.texels)

    def _times(
        self, kernels: Sequence[int], commands: Sequence[list[Command]], wait: Range
    ) -> list[list[float]] | None:
        """Seconds of each candidate in rounds through the default and all that are not far behind after the first; None
        where the budget does not last. Each runs once before, unmeasured: drivers finish kernels then."""
        works = [(self._plan.kernels[k], c) for k, c in zip(kernels, commands)]
        for _ in ("to warm up", "first round"):
            found: list[list[float]] = []
            for work in works:
                if self._tuning.clock() >= self._end:
                    return None
                found.append(self._time([work], wait))
        best = min(times[0] for times in found)
        left = [i for i, times in enumerate(found) if i == 0 or times[0] <= FAR * best]
        repeats = max(1, min(MOST_REPEATS, int(ENOUGH / max(best, 1e-9))))
        for _ in range(ROUNDS - 1):
            if self._tuning.clock() >= self._end:
                break
            took = self._time([(works[i][0], works[i][1] * repeats) for i in left], wait)
            for i, seconds in zip(left, took):
                found[i].append(seconds / repeats)
        return found if len(found[0]) >= LEAST_ROUNDS else None

    def _time(self, works: Sequence[Work], wait: Range) -> list[float]:
        self._tuning.measured += len(works)
        return self._tuning.timer(self._device, works, wait, self._tuning.timeout)


def _choose(plan: Plan, kernels: Sequence[int], times: Sequence[Sequence[float]]) -> Entry:
    """The fastest, unless the default is about as fast: other work on the machine is no reason for another."""
    from statistics import median  # it brings decimal and fractions, which a page waits for

    medians = [median(t) for t in times]
    best = min(range(len(times)), key=lambda i: medians[i])
    faster = medians[best] < WORTH * medians[0] and min(times[best]) < WORTH * min(times[0])
    names = tuple(plan.kernels[k].name[:100] for k in kernels)
    hashes = [plan.kernels[k].hash for k in kernels]
    return Entry(names, hashes[best if faster else 0], tuple(round(1e6 * t, 3) for t in medians))
