"""Textures that kernels read slots through: what is copied into which, and before which step.

A content is copied after it was written and read from there by the steps that follow, until its slot is written
again. Copies end a compute pass, so each waits for the last place where others are copied too before its first use. Of
a tensor that is read in parts one part is copied at a time, right before the step that reads it: they share a texture.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

from webrt.plan import TEXTURE_WIDTH, Place
from webrt.runtime.device import Texture
from webrt.spans import Spans

NEAR = 4
"""Steps after which a content is copied again rather than kept: a copy costs less than a texture that stays."""


class Content(NamedTuple):
    """`texels` times 16 bytes of a place from `offset` on, as words (u32) or f32."""

    place: Place
    offset: int
    texels: int
    words: bool


class Touch(NamedTuple):
    """What a device step does to places: (binding, content) of each texture that it reads, and the slots it writes.
    `breaks`: no compute pass goes on across it."""

    step: int
    reads: Sequence[tuple[int, Content]]
    writes: Sequence[Place]
    breaks: bool


class TextureId(NamedTuple):
    """A texture of the pool: of its format the one at `number`."""

    words: bool
    number: int


@dataclass
class Schedule:
    """`sizes`: texels of each texture by format. `fills`: by step, what is copied into which texture before it.
    `reads`: the texture of a step's binding."""

    sizes: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})
    fills: dict[int, list[tuple[Content, TextureId]]] = field(default_factory=dict)
    reads: dict[tuple[int, int], TextureId] = field(default_factory=dict)


@dataclass
class _Use:
    """A content between two writes of its slot: after step `ready` it is complete; `readers` are (step, binding).
    `partial`: steps read the slot in parts."""

    content: Content
    ready: int
    readers: list[tuple[int, int]]
    partial: bool

    @property
    def first(self) -> int:
        return self.readers[0][0]

    @property
    def last(self) -> int:
        return self.readers[-1][0]


def schedule(touches: Sequence[Touch]) -> Schedule:
    """The textures of consecutive device steps. Nothing is taken to be in a texture before them."""
    made = Schedule()
    uses = _uses(touches)
    if uses:
        _allocate(made, _placed(uses, touches))
    return made


def _uses(touches: Sequence[Touch]) -> list[_Use]:
    """In order of first use. A part of a tensor is copied for each step that reads it, anything else for steps that are
    no more than NEAR apart."""
    written: dict[Place, int] = {}
    uses: dict[tuple[Content, int], _Use] = {}
    found: list[_Use] = []
    parts = _parts(touches)
    for touch in touches:
        for binding, content in touch.reads:
            ready = written.get(content.place, -1)
            use, partial = uses.get((content, ready)), (content.place, ready) in parts
            if use is None or touch.step - use.last > (0 if partial else NEAR):
                use = uses[content, ready] = _Use(content, ready, [], partial)
                found.append(use)
            use.readers.append((touch.step, binding))
        written.update(dict.fromkeys(touch.writes, touch.step))
    return found


def _parts(touches: Sequence[Touch]) -> set[tuple[Place, int]]:
    """The places, between two writes, that steps read in parts."""
    written: dict[Place, int] = {}
    contents: dict[tuple[Place, int], set[Content]] = {}
    for touch in touches:
        for _, content in touch.reads:
            contents.setdefault((content.place, written.get(content.place, -1)), set()).add(content)
        written.update(dict.fromkeys(touch.writes, touch.step))
    return {key for key, found in contents.items() if len(found) > 1}


def _placed(uses: Iterable[_Use], touches: Sequence[Touch]) -> dict[int, list[_Use]]:
    """Uses by the step before which they are copied: as few places as possible, each as late as possible; parts at
    their first use."""
    places = {touches[0].step}
    for touch, following in pairwise(touches):
        if touch.breaks:
            places |= {touch.step, following.step}
    breaks = sorted(places)
    found: dict[int, list[_Use]] = {}
    for use in uses:
        at = bisect_right(breaks, use.first) - 1
        where = breaks[at]
        if where <= use.ready or use.partial:
            where = use.first
            insort(breaks, where)
        found.setdefault(where, []).append(use)
    return found


def _allocate(made: Schedule, placed: dict[int, list[_Use]]) -> None:
    """The largest first, each into the texture of its format that is idle for the shortest time around it."""
    order = [(step, use) for step in sorted(placed) for use in placed[step]]
    chosen: dict[int, TextureId] = {}
    used: dict[TextureId, Spans] = {}
    for i, (step, use) in sorted(enumerate(order), key=lambda entry: -entry[1][1].content.texels):
        content = use.content
        idle = [(spans.idle(step, use.last), t) for t, spans in used.items() if t.words == content.words]
        free = [(gap, t) for gap, t in idle if gap is not None]
        if not free:
            made.sizes[content.words].append(content.texels)
        number = len(made.sizes[content.words]) - 1
        chosen[i] = min(free)[1] if free else TextureId(content.words, number)
        used.setdefault(chosen[i], Spans()).add(step, use.last)
    for i, (step, use) in enumerate(order):
        made.fills.setdefault(step, []).append((use.content, chosen[i]))
        made.reads.update(dict.fromkeys(use.readers, chosen[i]))


def extent_of(texels: int) -> tuple[int, int]:
    """Width and rows, in texels, of a texture of so many: whole rows, or less than one."""
    return min(texels, TEXTURE_WIDTH), -(-texels // TEXTURE_WIDTH)


class Textures(Protocol):
    """The part of a device that a pool needs."""

    def alloc_texture(self, texels: int, words: bool, label: str) -> Texture: ...

    def free_texture(self, texture: Texture) -> None: ...


class TexturePool:
    """The textures that schedules share; they grow by half again. `changed` is called before one is replaced."""

    def __init__(self, device: Textures, most_rows: int, changed: Callable[[], None]) -> None:
        self._device, self._most, self._changed = device, most_rows, changed
        self._textures: dict[bool, list[Texture]] = {False: [], True: []}

    def __getitem__(self, texture: TextureId) -> Texture:
        return self._textures[texture.words][texture.number]

    def ensure(self, sizes: dict[bool, list[int]]) -> None:
        """Textures of at least these texels."""
        for words, texels in sizes.items():
            kept = self._textures[words]
            for i, need in enumerate(texels):
                rows = -(-need // TEXTURE_WIDTH)
                if i == len(kept):
                    kept.append(self._make(rows, words))
                elif kept[i].rows < rows:
                    rows = max(rows, min(kept[i].rows + kept[i].rows // 2, self._most))
                    self._changed()
                    self._device.free_texture(kept[i])
                    kept[i] = self._make(rows, words)

    def close(self) -> None:
        """Frees everything."""
        for kept in self._textures.values():
            for texture in kept:
                self._device.free_texture(texture)
            kept.clear()

    def _make(self, rows: int, words: bool) -> Texture:
        return self._device.alloc_texture(rows * TEXTURE_WIDTH, words, "a texture operand")
