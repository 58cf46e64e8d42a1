"""Where every value's bytes are: constants, slots that tensors use one after another, or the host.

A slot is given out in order of first write and taken back after the last read. A step never reads and writes one slot,
since WebGPU refuses a buffer that is bound read-only and writable in one dispatch. Inputs keep a slot of their own (a
caller's device tensor may stand in for it); outputs keep theirs to the end. Tensors larger than one binding share slots
among themselves only, since a slot that is bound whole must fit one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from webrt import dims as D
from webrt.compiler.lower import HostNode, Item, reads, writes
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Graph, Value
from webrt.lowering import Alias
from webrt.plan import Place

ALIGN = 16


@dataclass
class Memory:
    """`roots`: alias → the value whose bytes it is. `places`: of each root that has bytes on the device. `slots`: sizes
    in bytes, with `labels`. `constants`: those on the device, in order of first use. `limit`: bytes of one binding."""

    limit: int
    roots: dict[Value, Value]
    places: dict[Value, Place] = field(default_factory=dict)
    slots: list[Dim] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)

    def root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def place(self, value: Value) -> Place | None:
        """Where the value's bytes are on the device; None where they are not."""
        return self.places.get(self.root(value))

    def beyond(self, size: Dim) -> bool:
        """Whether so many bytes are known not to fit one binding."""
        return isinstance(size, int) and size > self.limit


def assign(graph: Graph, items: Sequence[Item], limit: int) -> Memory:
    """Places for every value that a device step touches; `limit` is the target's maxStorageBufferBindingSize."""
    memory = Memory(limit, _alias_roots(items))
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
    free: list[int] = []
    ends: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        for value in writes(item.step):
            root = memory.root(value)
            if root in memory.places or root not in device or root.const is not None:
                continue
            place = _take(memory, free, slot_size(root), root.name)
            memory.places[root] = place
            ends.setdefault(last[root], []).append(place[1])
        free += ends.pop(i, [])


def _take(memory: Memory, free: list[int], size: Dim, label: str) -> Place:
    """A free slot that fits best, or one that grows to fit, or a new one."""
    alike = [s for s in free if memory.beyond(memory.slots[s]) == memory.beyond(size)]
    fitting = [s for s in alike if D.at_least(memory.slots[s], size)]
    growing = [s for s in alike if D.at_least(size, memory.slots[s])]
    if fitting:
        slot = min(fitting, key=lambda s: _order(memory.slots[s]))
    elif growing:
        slot = max(growing, key=lambda s: _order(memory.slots[s]))
        memory.slots[slot] = size
    else:
        return _new_slot(memory, size, label)
    free.remove(slot)
    return ("s", slot)


def _new_slot(memory: Memory, size: Dim, label: str) -> Place:
    memory.slots.append(size)
    memory.labels.append(label)
    return ("s", len(memory.slots) - 1)


def _order(size: Dim) -> tuple[int, str]:
    return (size, "") if isinstance(size, int) else (1 << 60, D.text(size))
