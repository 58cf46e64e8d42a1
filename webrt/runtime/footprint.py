"""The bytes that a device would hold for a plan, without any device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from webrt.dims import evaluate
from webrt.errors import ShapeError
from webrt.plan import Plan
from webrt.runtime.memory import arenas
from webrt.runtime.resolve import Resolver
from webrt.runtime.textures import TexturePool, extent_of
from webrt.subplans import Branch, Loop
from webrt.target import Target


class Footprint(NamedTuple):
    """Bytes of constants (in buffers and in textures), of slots, and of the textures that slots are copied into."""

    constants: int
    slots: int
    textures: int

    @property
    def total(self) -> int:
        return sum(self)


def footprint(plan: Plan, target: Target) -> Footprint | None:
    """What a session holds on such a device after a run, without parameters, staging, and what loops gather of their
    iterations; None where sizes are free. Raises TargetError where the device does not meet the plan."""
    in_buffers: set[int] = set()
    tally = _Tally()
    slots = _add(plan, target, in_buffers, tally)
    if slots is None:
        return None
    constants = sum(arena.nbytes for arena in arenas(plan, target, sorted(in_buffers)))
    return Footprint(constants + sum(tally.contents.values()), slots, tally.nbytes)


@dataclass(eq=False)
class _Texture:
    """A texture that nobody made."""

    rows: int
    nbytes: int


@dataclass
class _Tally:
    """Counts what a device would be asked for; `contents` are the bytes of constants' textures."""

    nbytes: int = 0
    contents: dict[object, int] = field(default_factory=dict)

    def alloc_texture(self, texels: int, words: bool, label: str) -> _Texture:
        made = _Texture(extent_of(texels)[1], texture_bytes(texels))
        self.nbytes += made.nbytes
        return made

    def free_texture(self, texture: object) -> None:
        if isinstance(texture, _Texture):
            self.nbytes -= texture.nbytes


def texture_bytes(texels: int) -> int:
    """The bytes of a texture of so many texels: whole rows, or less than one."""
    width, rows = extent_of(texels)
    return 16 * width * rows


def _add(plan: Plan, target: Target, in_buffers: set[int], tally: _Tally) -> int | None:
    """Adds the constants and textures of a plan and of those within it; returns the bytes of their slots."""
    resolver = Resolver(plan, target)
    constants, contents = resolver.constants()
    in_buffers |= constants
    tally.contents.update((c, texture_bytes(c.texels)) for c in contents)
    try:
        frame = resolver.frame((), evaluate(plan.dims, {}))
    except ShapeError:
        return None
    if None in frame.slots or None in frame.steps:
        return None
    slots = sum(size or 0 for size in frame.slots)
    pool = TexturePool(tally, target.limit("maxTextureDimension2D"), lambda: None)
    for number, segment in enumerate(resolver.segments):
        if segment.kind == "device":
            pool.ensure(frame.schedule(plan, number, segment).sizes)
    for step in plan.steps:
        for body in step.bodies if isinstance(step, (Branch, Loop)) else ():
            inner = _add(plan.within(body), target, in_buffers, tally)
            if inner is None:
                return None
            slots += inner
    return slots
