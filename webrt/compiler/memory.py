"""Where every value's bytes are: constants, slots that tensors use one after another, or the host.

A tensor has its slot from its first write to its last read (`slots`). A step never reads and writes one slot, since
WebGPU refuses a buffer that is bound read-only and writable in one dispatch. Inputs have theirs from the beginning (a
device tensor of the caller may stand in for it), those of a body to the end, too, as a loop need not bring them again;
outputs keep theirs to the end. Tensors larger than one binding share slots among themselves only, since a slot that is
bound whole must fit one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webrt import dims as D
from webrt.compiler.body import Control
from webrt.compiler.lower import HostNode, Item, Step, alias_roots, last_uses, part_starts, reads, writes
from webrt.compiler.neighbours import side_by_side
from webrt.compiler.slots import Tenant, most_at_once, share, typical
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Graph, Value
from webrt.lowering import Alias, CopyBytes, Launch
from webrt.plan import Place

ALIGN = 16
Kind: TypeAlias = tuple[bool, frozenset[str]]


@dataclass
class Memory:
    """`roots`: alias → the value whose bytes it is; `starts`: of a part of it, the byte that it starts at. `places`:
    of each root that has bytes on the device; `offsets`: where in them it starts, of those that have neighbours there.
    `tenants`: the sizes in bytes that each slot has to hold, `later` those
    that it holds after the input that had it first (none where it was no input's); `labels`: whose it was first.
    `constants`: those on the device, in order of first use. `limit`: bytes of one binding. `early`: variables that the
    feeds bind, before any step. `live`: bytes of the tensors that are needed at one time, where that is most; None
    where sizes are free."""

    limit: int
    early: frozenset[str]
    roots: dict[Value, Value]
    starts: dict[Value, Dim] = field(default_factory=dict)
    places: dict[Value, Place] = field(default_factory=dict)
    offsets: dict[Value, int] = field(default_factory=dict)
    tenants: list[list[Dim]] = field(default_factory=list)
    later: list[list[Dim]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    live: int | None = None

    def root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def place(self, value: Value) -> Place | None:
        """Where the value's bytes are on the device; None where they are not."""
        return self.places.get(self.root(value))

    def start(self, value: Value) -> Dim:
        """The byte of its place that the value starts at."""
        return D.add(self.starts.get(value, 0), self.offsets.get(self.root(value), 0))

    def bound(self, value: Value) -> Dim:
        """How many bytes of its place a kernel binds for it: 0 for all of them."""
        return slot_size(value) if value in self.starts or self.root(value) in self.offsets else 0

    @property
    def slots(self) -> list[Dim]:
        """The size of each slot, in bytes."""
        return [_maximum(sizes) for sizes in self.tenants]

    @property
    def after(self) -> list[Dim]:
        """The size of what each slot holds after an input, in bytes."""
        return [_maximum(sizes) if sizes else 0 for sizes in self.later]

    def kind(self, size: Dim) -> Kind:
        """Sizes of one kind may share a slot: both or neither above the binding limit, and known at the same time."""
        return isinstance(size, int) and size > self.limit, D.variables(size) - self.early


def assign(graph: Graph, items: Sequence[Item], limit: int) -> Memory:
    """Places for every value that a device step touches; `limit` is the target's maxStorageBufferBindingSize."""
    return _assign(graph, items, limit, [], None)


def _assign(
    graph: Graph, items: Sequence[Item], limit: int, constants: list[Value], kept: Iterable[Value] | None
) -> Memory:
    """`constants` are those of the whole plan so far; of a body the values `kept` are on the device whoever reads
    them."""
    for item in items:
        for body in item.step.bodies if isinstance(item.step, Control) else ():
            body.memory = _assign(body.graph, body.items, limit, constants, body.ends)
    memory = Memory(limit, early_variables(graph), alias_roots(items), part_starts(items), constants=constants)
    device = {memory.root(v) for v in (*(kept or ()), *(v for i in items for v in _on_device(i.step)))}
    _constants(items, kept or (), memory)
    last = last_uses(graph, items, memory.roots)
    fed = [v for v in graph.inputs if v in device and v.const is None]
    values = list(dict.fromkeys([*fed, *_written(items, device, memory)]))
    if kept is not None:
        last.update(dict.fromkeys(fed, len(items)))
    tenants = _tenants(fed, values, items, last, memory)
    memory.live = _largest_live(tenants)
    slots, starts = side_by_side(tenants, share(tenants), limit if kept is None else 0)
    memory.offsets = {values[k]: at for k, at in starts.items()}
    for slot, held in slots:
        follow = [k for k in held if k >= len(fed)] if min(held) < len(fed) else []
        later = [D.add(starts.get(k, 0), tenants[k].size) for k in follow]
        place = _new_slot(memory, slot.sizes, later, values[min(held)].name)
        memory.places.update((values[k], place) for k in held)
    return memory


def slot_size(value: Value) -> Dim:
    """The bytes of a value's slot: a multiple of 16, at least 16."""
    return D.maximum(D.mul(D.ceildiv(nbytes(value.dtype, value.elements), ALIGN), ALIGN), ALIGN)


def nbytes(dtype: DType | None, elements: Dim) -> Dim:
    """The bytes of so many elements of a type of at least 8 bits."""
    return D.mul(elements, dtype.bits // 8 if dtype is not None else 0)


def early_variables(graph: Graph) -> frozenset[str]:
    """The variables that the feeds bind, before any step."""
    sizes = [d for v in graph.inputs for d in v.shape or ()]
    elements = [d for v in graph.inputs if v.contents is not None for d in v.contents.flat]
    return frozenset().union(*(D.variables(d) for d in [*sizes, *elements]))


def _on_device(step: Step) -> list[Value]:
    """The values that have to be on the device for a step."""
    if isinstance(step, HostNode):
        return []
    if not isinstance(step, Control):
        return [*reads(step), *writes(step)]
    out = [*writes(step), *step.moved, *(v for v in step.deciding if v.const is None and v.contents is None)]
    for body in step.bodies:
        out += [a for a, b in body.captured if body.memory is not None and body.memory.place(b) is not None]
    return out


def _constants(items: Sequence[Item], kept: Iterable[Value], memory: Memory) -> None:
    known = {v: i for i, v in enumerate(memory.constants)}
    steps = [i.step for i in items if not isinstance(i.step, HostNode)]
    read = [v for s in steps for v in (s.moved if isinstance(s, Control) else reads(s))]
    for value in [*read, *kept]:
        root = memory.root(value)
        if root.const is not None and root not in memory.places:
            if root not in known:
                known[root] = len(memory.constants)
                memory.constants.append(root)
            memory.places[root] = ("c", known[root])


def _written(items: Sequence[Item], device: set[Value], memory: Memory) -> list[Value]:
    """What steps write that has no place yet, in that order."""
    roots = dict.fromkeys(memory.root(v) for item in items for v in writes(item.step))
    return [v for v in roots if v in device and v not in memory.places and v.const is None]


def _tenants(
    fed: Sequence[Value], values: Sequence[Value], items: Sequence[Item], last: Mapping[Value, int], memory: Memory
) -> list[Tenant]:
    """When the values are needed; those that are fed, from before the first step on."""
    first: dict[Value, int] = dict.fromkeys(fed, -1)
    for i, item in enumerate(items):
        for v in writes(item.step):
            first.setdefault(memory.root(v), i)
    index = {v: k for k, v in enumerate(values)}
    alone, apart = _company(items, index, memory)
    made = []
    for k, v in enumerate(values):
        size, end = slot_size(v), last.get(v, len(items))
        single = v in fed or end == len(items) or k in alone
        made.append(Tenant(size, first[v], end, memory.kind(size), typical(size), single, frozenset(apart[k])))
    return made


def _company(items: Sequence[Item], index: Mapping[Value, int], memory: Memory) -> tuple[set[int], list[set[int]]]:
    """The tensors that others than kernels and copies touch; and of each one those that a step touches together with
    it, where it writes one of the two."""
    alone: set[int] = set()
    apart: list[set[int]] = [set() for _ in index]
    for step in (item.step for item in items if not isinstance(item.step, Alias)):
        written = {index[r] for v in writes(step) if (r := memory.root(v)) in index}
        touched = written | {index[r] for v in reads(step) if (r := memory.root(v)) in index}
        if not isinstance(step, (Launch, CopyBytes)):
            alone |= touched
            continue
        for k in written:
            apart[k] |= touched - {k}
        for k in touched - written:
            apart[k] |= written
    return alone, apart


def _largest_live(tenants: Sequence[Tenant]) -> int | None:
    known = [(t.size, t.first, t.last) for t in tenants if isinstance(t.size, int)]
    return most_at_once(known) if len(known) == len(tenants) else None


def _new_slot(memory: Memory, sizes: list[Dim], later: list[Dim], label: str) -> Place:
    memory.tenants.append(sizes)
    memory.later.append(later)
    memory.labels.append(label)
    return ("s", len(memory.tenants) - 1)


def _maximum(sizes: Sequence[Dim]) -> Dim:
    """The largest of the sizes, as a balanced tree, so that no expression nests deeply."""
    if len(sizes) == 1:
        return sizes[0]
    half = len(sizes) // 2
    return D.maximum(_maximum(sizes[:half]), _maximum(sizes[half:]))
