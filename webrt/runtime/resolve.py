"""What a plan's steps are for one device, and what they are for one set of sizes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from webrt.dims import DimRef, resolve
from webrt.errors import InputError, PlanError, TargetError
from webrt.plan import DRAWN, Copy, Dispatch, HostStep, Place, Plan, Read, Step
from webrt.runtime.choose import Choices
from webrt.runtime.device import Buffer, Command, Layout, padded
from webrt.runtime.segments import Segment, segments
from webrt.runtime.sizes import Key
from webrt.runtime.textures import Content, Schedule, Touch, schedule
from webrt.runtime.tuning import Table
from webrt.subplans import Branch, Loop, copied
from webrt.target import DEFAULT_LIMITS, Target

MAX_RECORDINGS = 4
OFFSET_ALIGN = 256


class Ready(NamedTuple):
    """A step with its numbers: a dispatch's groups, binding offsets, kernel, what it reads through textures as
    (binding, content), and binding sizes; or a copy's (source, target, size)."""

    groups: tuple[int, ...]
    offsets: tuple[int, ...]
    kernel: int = -1
    textures: tuple[tuple[int, Content], ...] = ()
    sizes: tuple[int, ...] = ()


SKIP = Ready((), ())
"""A step that does nothing at these sizes."""

Recording = tuple[int, int, tuple[tuple[int, Buffer], ...]]
"""Segment, generation of the slots, and the caller's buffers that stand in for slots."""


@dataclass
class Frame:
    """All numbers of a plan at one set of sizes, None where one is not known yet: the bytes of each slot, and of what
    comes `after` the input in it. `recorded`: commands made of it."""

    key: Key
    slots: list[int | None]
    after: list[int | None]
    steps: list[Ready | None]
    params: bytes
    recorded: dict[Recording, list[Command]] = field(default_factory=dict)
    schedules: dict[int, Schedule] = field(default_factory=dict)

    def kernel_of(self, step: int) -> int:
        """The kernel of a dispatch; -1 where it does nothing, or its sizes are not known."""
        ready = self.steps[step]
        return ready.kernel if ready else -1

    def schedule(self, plan: Plan, number: int, segment: Segment) -> Schedule:
        """The textures of a device segment; kept."""
        if number not in self.schedules:
            steps = range(segment.start, segment.stop)
            ready = [(i, r) for i in steps if (r := self.steps[i]) is not None and r is not SKIP]
            touches = [_touch(i, plan.steps[i], r) for i, r in ready]
            self.schedules[number] = schedule(touches)
        return self.schedules[number]

    def keep(self, key: Recording, commands: list[Command]) -> list[Command]:
        """Remembers commands; forgets the oldest beyond MAX_RECORDINGS per segment."""
        same = [k for k in self.recorded if k[0] == key[0]]
        if len(same) >= MAX_RECORDINGS:
            del self.recorded[same[0]]
        self.recorded[key] = commands
        return commands


class Resolver:
    """A plan on a device's target. Raises TargetError where the target does not meet it (both numbers are named).

    `target` has lower limits than the device where the plan was made for less than WebGPU guarantees. `bound` are the
    slots that kernels bind whole. `draws`: whether each run needs a random word. `refused` are the kernels that the
    device's compiler refused, with what it said; `tuned` says which alternatives are the fastest."""

    def __init__(
        self, plan: Plan, target: Target, refused: Mapping[int, str] | None = None, tuned: Table | None = None
    ) -> None:
        self.plan, self.target = plan, _lowered(plan, target)
        _check_target(plan, target)
        self.choices = Choices(plan, self.target, self._name, refused, tuned)
        self.segments = segments(plan)
        self.draws = ["var", DRAWN] in plan.dims
        dispatches = [s for s in plan.steps if isinstance(s, Dispatch)]
        self.bound = {p[1] for s in dispatches for p, _, _, size in s.bindings if p[0] == "s" and not size}
        for step in dispatches:
            self._check_constants(step)
        for i, slot in enumerate(plan.slots):
            self._slot(i, slot.size if isinstance(slot.size, int) else None)

    def constants(self) -> tuple[set[int], set[Content]]:
        """The constants that steps read in buffers, and what is read of constants through textures."""
        plan, (in_buffers, in_textures) = self.plan, self.choices.constants()
        others = [s for s in plan.steps if not isinstance(s, Dispatch)]
        in_buffers |= {index for s in others for (kind, index), _ in places(s) if kind == "c"}
        for control in (s for s in plan.steps if isinstance(s, (Branch, Loop))):
            moved = [plan.values[n] for n in copied(control)] + [v for b in control.bodies for v in b.outputs]
            in_buffers |= {v.constant for v in moved if v.constant is not None}
        return in_buffers, in_textures

    def layout_of(self, kernel: int) -> Layout:
        """A kernel's bind group layout."""
        layout = self.choices.layout(kernel)
        return Layout(layout.words > 0, tuple(layout.access), layout.sampler)

    def frame(self, key: Key, values: Sequence[int | None]) -> Frame:
        """Raises TargetError or InputError for numbers that the device or WebGPU cannot take."""
        slots = [self._slot(i, resolve(s.size, values)) for i, s in enumerate(self.plan.slots)]
        after = [resolve(s.after, values) for s in self.plan.slots]
        params = bytearray(self.plan.params_size)
        steps = [self._step(i, values, params) for i in range(len(self.plan.steps))]
        return Frame(key, slots, after, steps, bytes(params))

    def _check_constants(self, step: Dispatch) -> None:
        limit = self.target.limit("maxStorageBufferBindingSize")
        for (kind, index), _, _, size in step.bindings:
            need = size or (padded(self.plan.constants[index].nbytes) if kind == "c" else 0)
            if isinstance(need, int) and need > limit:
                raise TargetError(
                    f"{self._name(step)} binds {need} bytes of a tensor; "
                    f"the device {self.target.name!r} has maxStorageBufferBindingSize {limit}"
                )

    def _slot(self, index: int, size: int | None) -> int | None:
        if size is None:
            return None
        limits = ["maxBufferSize"] + (["maxStorageBufferBindingSize"] if index in self.bound else [])
        for name in limits:
            if size > self.target.limit(name):
                tensor = f"the tensor {self.plan.slots[index].label!r}"
                raise TargetError(
                    f"{self._user(index)}: {tensor} needs {size} bytes at these sizes; "
                    f"the device {self.target.name!r} has {name} {self.target.limit(name)}"
                )
        return max(size, 16)

    def _user(self, slot: int) -> str:
        """The first step that touches a slot."""
        users = (s for s in self.plan.steps if any(place == ("s", slot) for place, _ in places(s)))
        return next(map(self._name, users), "the plan")

    def _step(self, index: int, values: Sequence[int | None], params: bytearray) -> Ready | None:
        step = self.plan.steps[index]
        if isinstance(step, Dispatch):
            return self._dispatch(step, index, values, params)
        return self._copy(step, values) if isinstance(step, Copy) else SKIP

    def _dispatch(self, step: Dispatch, index: int, values: Sequence[int | None], params: bytearray) -> Ready | None:
        alternative = self.choices.alternative(index, values)
        ready = None if alternative is None else self.ready(step, alternative, values)
        words = [] if ready is SKIP else self.words(step, values)
        if ready is not None and words:
            struct.pack_into(f"<{len(words)}I", params, step.params_offset, *words)
        return None if words is None else ready

    def ready(self, step: Dispatch, alternative: int, values: Sequence[int | None]) -> Ready | None:
        """A dispatch with its numbers, where it takes this alternative; None where one is not known."""
        kernel, *counts = step.alternatives[alternative]
        groups = [resolve(g, values) for g in counts]
        offsets = [resolve(o, values) for _, _, o, _ in step.bindings]
        sizes = [resolve(size, values) for *_, size in step.bindings]
        if 0 in groups:
            return SKIP
        if None in groups or None in offsets or None in sizes:
            return None
        if any(o % OFFSET_ALIGN for o in offsets if o is not None):
            raise PlanError(f"{self._name(step)} binds a buffer from a byte that is no multiple of {OFFSET_ALIGN}")
        self._check_sizes(step, [size or 0 for size in sizes])
        known = tuple(g for g in groups if g is not None)
        limit = self.target.limit("maxComputeWorkgroupsPerDimension")
        for g in known:
            if g < 0:
                raise InputError(f"{self._name(step)} would have {g} workgroups: a size is negative for these inputs")
            if g > limit:
                raise TargetError(
                    f"{self._name(step)} needs {g} workgroups in a dimension at these sizes; "
                    f"the device {self.target.name!r} has maxComputeWorkgroupsPerDimension {limit}"
                )
        textures = tuple(self.choices.contents(step, kernel, values))
        return Ready(known, tuple(o or 0 for o in offsets), kernel, textures, tuple(size or 0 for size in sizes))

    def _check_sizes(self, step: Dispatch, sizes: Sequence[int]) -> None:
        """Of bindings whose sizes the run tells."""
        limit = self.target.limit("maxStorageBufferBindingSize")
        for size in (size for (*_, told), size in zip(step.bindings, sizes) if not isinstance(told, int)):
            if size <= 0 or size % 4:
                raise PlanError(f"{self._name(step)} binds {size} bytes of a tensor, which are no whole words")
            if size > limit:
                raise TargetError(
                    f"{self._name(step)} binds {size} bytes of a tensor at these sizes; "
                    f"the device {self.target.name!r} has maxStorageBufferBindingSize {limit}"
                )

    def words(self, step: Dispatch, values: Sequence[int | None]) -> list[int] | None:
        """A dispatch's parameters; None where one is not known."""
        found = [resolve(p, values) for p in step.params]
        return None if None in found else [self._word(step, w or 0) for w in found]

    def _word(self, step: Dispatch, value: int) -> int:
        if not -(2**31) <= value < 2**32:
            raise TargetError(f"{self._name(step)} needs the number {value}; a kernel takes -2147483648 to 4294967295")
        return value & 0xFFFFFFFF

    def _copy(self, step: Copy, values: Sequence[int | None]) -> Ready | None:
        numbers = [resolve(r, values) for r in (step.source_offset, step.target_offset, step.size)]
        if numbers[2] == 0:
            return SKIP
        known = tuple(n for n in numbers if n is not None)
        if len(known) < 3:
            return None
        if any(n < 0 or n % 4 for n in known):
            raise InputError(f"a copy of {self._name(step)} has bytes {known}, no whole words, for these inputs")
        return Ready((), known)

    def _name(self, step: Step) -> str:
        return node_name(self.plan, step)


def node_name(plan: Plan, step: Step) -> str:
    """A step's node for people."""
    if 0 <= step.node < len(plan.placement):
        placed = plan.placement[step.node]
        return f"{placed.op} {placed.node!r}"
    return f"a {step.kind} step"


def places(step: Step) -> list[tuple[Place, str]]:
    """The places that a device step touches, with "r" or "w"."""
    if isinstance(step, Dispatch):
        return [(p, access) for p, access, _, _ in step.bindings]
    if isinstance(step, Read):
        return [(p, "r") for p, _ in step.reads]
    return [(step.source, "r"), (step.target, "w")] if isinstance(step, Copy) else []


def written(plan: Plan, step: Step) -> list[Place]:
    """The places that a step writes."""
    if isinstance(step, (HostStep, Branch, Loop)):
        return [p for n in step.outputs if n and (p := plan.values[n].place) is not None]
    return [p for p, access in places(step) if access == "w"]


def _touch(index: int, step: Step, ready: Ready) -> Touch:
    read = [(binding, content) for binding, content in ready.textures if content.place[0] == "s"]
    return Touch(index, read, [p for p, access in places(step) if access == "w"], isinstance(step, Copy))


def expect(ref: DimRef, values: Sequence[int | None], what: str) -> int:
    """A size that must be known by now."""
    value = resolve(ref, values)
    if value is None:
        raise PlanError(f"{what} depends on a size that no value before it gives")
    return value


def _lowered(plan: Plan, target: Target) -> Target:
    """The device's target, or what a plan for less than WebGPU guarantees says: it runs as on so small a device."""
    limits = plan.target.get("limits", {})
    low = {k: v for k, v in limits.items() if not k.startswith("min") and v < DEFAULT_LIMITS.get(k, 0)}
    return target.with_limits(**{k: min(v, target.limit(k)) for k, v in low.items()})


def _check_target(plan: Plan, target: Target) -> None:
    """The plan's target must not promise more than the device has, nor a dispatch bind more buffers."""
    wanted = Target.from_json(plan.target) if plan.target else None
    uses_device = any(not isinstance(s, HostStep) for s in plan.steps)
    if wanted is not None and uses_device:
        wanted.check_features()
        for name, need in wanted.limits.items():
            have = target.limits.get(name, need)
            if have > need if name.startswith("min") else have < need:
                raise TargetError(f"the plan was made for {name} {need}; the device {target.name!r} has {have}")
    limit = target.limit("maxStorageBuffersPerShaderStage")
    for step in plan.steps:
        if isinstance(step, Dispatch) and len(step.bindings) > limit:
            raise TargetError(
                f"{node_name(plan, step)} binds {len(step.bindings)} storage buffers; "
                f"the device {target.name!r} has maxStorageBuffersPerShaderStage {limit}"
            )
