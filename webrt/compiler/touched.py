"""Who touches the tensors that devices hold, when their bytes are needed, and how many are at one time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from webrt.compiler.lower import Item, is_sizes, reads, writes
from webrt.compiler.memory import slot_size
from webrt.compiler.slots import typical
from webrt.dims import Dim
from webrt.ir import Graph, Value
from webrt.lowering import Alias, CopyBytes, Launch


@dataclass
class Touched:
    """A tensor and its parts: the items that read any of them and, in order, those that write. `pinned`: some step
    needs it at the start of a slot; `first`, `last`: when its bytes are needed."""

    size: Dim
    first: int
    last: int
    fed: bool = False
    pinned: bool = False
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    def copy(self) -> Touched:
        """The same, with lists of its own."""
        return replace(self, reads=list(self.reads), writes=list(self.writes))

    def take(self, other: Touched, copy: int) -> None:
        """The other is a part of this one, without the copy that made it one."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.reads += other.reads
        k = bisect_left(self.writes, copy)
        if self.writes[k : k + 1] == [copy]:
            del self.writes[k]
        for i in other.writes:
            if i != copy:
                insort(self.writes, i)


def touched(graph: Graph, items: Sequence[Item], roots: Mapping[Value, Value]) -> dict[Value, Touched]:
    """The tensors that kernels and copies touch, without constants and sizes."""
    on_device = [i.step for i in items if isinstance(i.step, (Launch, CopyBytes))]
    found_roots = dict.fromkeys(roots.get(v, v) for step in on_device for v in (*reads(step), *writes(step)))
    made = {v: Touched(slot_size(v), len(items), -1) for v in found_roots if v.const is None and not is_sizes(v)}

    def found(values: Iterable[Value]) -> list[Touched]:
        return [made[r] for r in dict.fromkeys(roots.get(v, v) for v in values) if r in made]

    for t in found(graph.inputs):
        t.fed, t.first = True, -1
    for i, step in enumerate(item.step for item in items):
        if isinstance(step, Alias):
            continue
        for t in found(reads(step)):
            t.reads.append(i)
        for t in found(writes(step)):
            t.writes.append(i)
        for t in found((*reads(step), *writes(step))):
            t.first, t.last = min(t.first, i), i
            t.pinned |= not isinstance(step, (Launch, CopyBytes))
    for t in found(graph.outputs):
        t.pinned, t.last = True, len(items)
    return made


class Live:
    """The bytes that are needed at each item, free sizes at their typical value, and what joining some would change."""

    def __init__(self, tensors: Iterable[Touched], count: int) -> None:
        self._bytes = np.zeros(count + 2)
        self._changes: list[tuple[int, int, int]] = []
        for t in tensors:
            self._add(t, 1)
        self.keep()
        self._most = self._bytes.max()

    def join(self, part: Touched, whole: Touched) -> None:
        """Counts the part as the whole's."""
        self._add(part, -1)
        self._add(whole, -1)
        self._add(replace(whole, first=min(part.first, whole.first), last=max(part.last, whole.last)), 1)

    def fits(self) -> bool:
        """Whether no more bytes are needed at one time than at the beginning."""
        _, changed = self._changed()
        return not len(changed) or bool(changed.max() <= self._most)

    def keep(self) -> None:
        """What was joined stays."""
        start, changed = self._changed()
        self._bytes[start : start + len(changed)] = changed
        self.undo()

    def undo(self) -> None:
        """Forgets what was joined and not kept."""
        self._changes.clear()

    def _changed(self) -> tuple[int, np.ndarray[Any, Any]]:
        """From which item on there are changes, and the bytes from there on as far as there are any."""
        low = min((start for _, start, _ in self._changes), default=0)
        steps = np.zeros(max((end for *_, end in self._changes), default=low) - low + 1)
        for size, start, end in self._changes:
            steps[start - low] += size
            steps[end - low] -= size
        return low, self._bytes[low : low + len(steps) - 1] + steps.cumsum()[:-1]

    def _add(self, t: Touched, sign: int) -> None:
        self._changes.append((sign * typical(t.size), t.first + 1, t.last + 2))
