"""Where every value's bytes are: constants, slots that tensors use one after another, or the host.

A slot is given out in order of first write and taken back after the last read. A step never reads and writes one slot,
since WebGPU refuses a buffer that is bound read-only and writable in one dispatch. Inputs keep a slot of their own (a
caller's device tensor may stand in for it); outputs keep theirs to the end. Tensors larger than one binding share slots
among themselves only, since a slot that is bound whole must fit one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from webrt import dims as D
from webrt.compiler.lower import HostNode, Item, reads, writes
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError
from webrt.ir import Graph, Value
from webrt.lowering import Alias
from webrt.plan import Place

ALIGN = 16
SCAN = 64
Kind: TypeAlias = tuple[bool, frozenset[str]]
TYPICAL = 64
"""What a free size is taken to be where two expressions have to be compared beforehand."""


@dataclass
class Memory:
    """`roots`: alias → the value whose bytes it is. `places`: of each root that has bytes on the device. `tenants`: the
    sizes in bytes that each slot has to hold; `labels`: whose it was first. `constants`: those on the device, in order
    of first use. `limit`: bytes of one binding. `early`: variables that the feeds bind, before any step."""

    limit: int
    early: frozenset[str]
    roots: dict[Value, Value]
    places: dict[Value, Place] = field(default_factory=dict)
    tenants: list[list[Dim]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)

    def root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def place(self, value: Value) -> Place | None:
        """Where the value's bytes are on the device; None where they are not."""
        return self.places.get(self.root(value))

    @property
    def slots(self) -> list[Dim]:
        """The size of each slot, in bytes."""
        return [_maximum(sizes) for sizes in self.tenants]

    def kind(self, size: Dim) -> Kind:
        """Sizes of one kind may share a slot: both or neither above the binding limit, and known at the same time."""
        return isinstance(size, int) and size > self.limit, D.variables(size) - self.early


def assign(graph: Graph, items: Sequence[Item], limit: int) -> Memory:
    """Places for every value that a device step touches; `limit` is the target's maxStorageBufferBindingSize."""
    memory = Memory(limit, _early(graph), _alias_roots(items))
    device = {
        memory.root(v) for i in items if not isinstance(i.step, HostNode) for v in (*reads(i.step), *writes(i.step))
    }
    _constants(items, memory)
    for value in graph.inputs:
        if value in device and value.const is None:
            memory.places[value] = _new_slot(memory, slot_size(value), value.name)
    _slots(items, device, _last_use(graph, items, memory), memory)
    return memory


def slot_size(value: Value) -> Dim:
    """The bytes of a value's slot: a multiple of 16, at least 16."""
    return D.maximum(D.mul(D.ceildiv(nbytes(value.dtype, value.elements), ALIGN), ALIGN), ALIGN)


def nbytes(dtype: DType | None, elements: Dim) -> Dim:
    """The bytes of so many elements of a type of at least 8 bits."""
    return D.mul(elements, dtype.bits // 8 if dtype is not None else 0)


def _early(graph: Graph) -> frozenset[str]:
    sizes = [d for v in graph.inputs for d in v.shape or ()]
    elements = [d for v in graph.inputs if v.contents is not None for d in v.contents.flat]
    return frozenset().union(*(D.variables(d) for d in [*sizes, *elements]))


def _alias_roots(items: Sequence[Item]) -> dict[Value, Value]:
    roots: dict[Value, Value] = {}
    for item in items:
        if isinstance(item.step, Alias):
            roots[item.step.out] = roots.get(item.step.source, item.step.source)
    return roots


def _last_use(graph: Graph, items: Sequence[Item], memory: Memory) -> dict[Value, int]:
    last: dict[Value, int] = {}
    for i, item in enumerate(items):
        for value in (*reads(item.step), *writes(item.step)):
            last[memory.root(value)] = i
    for value in graph.outputs:
        last[memory.root(value)] = len(items)
    return last


def _constants(items: Sequence[Item], memory: Memory) -> None:
    for item in items:
        if isinstance(item.step, HostNode):
            continue
        for value in reads(item.step):
            root = memory.root(value)
            if root.const is not None and root not in memory.places:
                memory.places[root] = ("c", len(memory.constants))
                memory.constants.append(root)


def _slots(items: Sequence[Item], device: set[Value], last: dict[Value, int], memory: Memory) -> None:
    free = _FreeSlots(memory)
    ends: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        for value in writes(item.step):
            root = memory.root(value)
            if root in memory.places or root not in device or root.const is not None:
                continue
            size = slot_size(root)
            slot = free.take(size)
            place = _new_slot(memory, size, root.name) if slot is None else ("s", slot)
            memory.places[root] = place
            ends.setdefault(last[root], []).append(place[1])
        for slot in ends.pop(i, []):
            free.add(slot)


class _FreeSlots:
    """The slots that no tensor uses at the moment; of many, the latest SCAN of a kind are looked at."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._kinds: dict[Kind, dict[int, None]] = {}
        self._exact: dict[Dim, list[int]] = {}

    def add(self, slot: int) -> None:
        tenants = self._memory.tenants[slot]
        self._kinds.setdefault(self._memory.kind(tenants[0]), {})[slot] = None
        for size in tenants:
            self._exact.setdefault(size, []).append(slot)

    def take(self, size: Dim) -> int | None:
        """The slot that fits best; else the one that grows least; None where there is none of the kind.

        Sizes that cannot be compared are compared at TYPICAL sizes; the slot is as large as the largest at each run.
        """
        alike = self._kinds.get(self._memory.kind(size), {})
        same = self._exact.get(size, [])
        while same:
            slot = same.pop()
            if slot in alike:
                del alike[slot]
                return slot
        if not alike:
            return None
        slot = self._best(size, list(islice(reversed(alike), SCAN)))
        del alike[slot]
        return slot

    def _best(self, size: Dim, slots: Sequence[int]) -> int:
        tenants = self._memory.tenants
        fitting = [s for s in slots if any(D.at_least(t, size) for t in tenants[s])]
        if fitting:
            return min(fitting, key=lambda s: (_largest(tenants[s]), s))
        need = _typical(size)
        slot = min(slots, key=lambda s: (abs(_largest(tenants[s]) - need), s))
        tenants[slot] = [t for t in tenants[slot] if not D.at_least(size, t)] + [size]
        return slot


def _new_slot(memory: Memory, size: Dim, label: str) -> Place:
    memory.tenants.append([size])
    memory.labels.append(label)
    return ("s", len(memory.tenants) - 1)


def _largest(sizes: Sequence[Dim]) -> int:
    return max(map(_typical, sizes))


def _maximum(sizes: Sequence[Dim]) -> Dim:
    """The largest of the sizes, as a balanced tree, so that no expression nests deeply."""
    if len(sizes) == 1:
        return sizes[0]
    half = len(sizes) // 2
    return D.maximum(_maximum(sizes[:half]), _maximum(sizes[half:]))


def _typical(size: Dim) -> int:
    """The size with every variable at TYPICAL; a large number where it has no value there."""
    try:
        return D.value_at(size, TYPICAL)
    except ShapeError:
        return D.LIMIT
