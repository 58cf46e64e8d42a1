"""Which tensors use one slot after another. Of several ways the one that needs the fewest bytes is taken.

`in_order` gives slots out in order of first write, the best fitting free one first. `by_size` places the largest tensor
first, each in the slot that is idle for the shortest time around it (the greedy-by-size assignment of shared objects in
Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020). `searched` places them in other
orders near that one, as long as they help.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Protocol, TypeAlias, TypeVar

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.spans import Spans

TYPICAL = 64
"""What a free size is taken to be where two expressions have to be compared beforehand."""
SCAN = 64
"""How many free slots are looked at in order; it keeps the cost linear."""
MOST_BY_SIZE = 2048
"""Above so many tensors they are placed in order only: by size costs the square."""
MOST_ORDERS = 120
"""How many orders are tried."""
MOST_PLACED = 12_000
"""How many tensors are placed by all of these together, so that it takes a tenth of a second."""


@dataclass(frozen=True)
class Tenant:
    """A tensor of `size` bytes, used from step `first` to step `last`. Tenants of one `kind` may share a slot; at one
    time those that are not `alone` and are not `apart` (their indices)."""

    size: Dim
    first: int
    last: int
    kind: Hashable
    typical: int
    alone: bool = True
    apart: frozenset[int] = frozenset()


@dataclass
class Shared:
    """A slot: the sizes it has to hold (those that no other covers)."""

    sizes: list[Dim] = field(default_factory=list)
    typical: int = 0

    def hold(self, tenant: Tenant) -> None:
        """Lets the tenant in; nobody may be there at its steps."""
        if not any(D.at_least(s, tenant.size) for s in self.sizes):
            self.sizes = [s for s in self.sizes if not D.at_least(tenant.size, s)] + [tenant.size]
        self.typical = max(self.typical, tenant.typical)


Assignment: TypeAlias = list[tuple[Shared, list[int]]]
"""Slots, each with the indices of its tenants."""


def share(tenants: Sequence[Tenant]) -> Assignment:
    """Slots for all tenants (which are in order of first use), in order of first use."""
    ways: list[Callable[[Sequence[Tenant]], Assignment]] = [in_order]
    if len(tenants) <= MOST_BY_SIZE:
        ways += [by_size, searched]
    found = [way(tenants) for way in ways]
    best = min(found, key=lambda slots: sum(slot.typical for slot, _ in slots))
    return sorted(best, key=lambda s: min(s[1]))


def typical(size: Dim) -> int:
    """The size with every variable at TYPICAL; a large number where it has no value there."""
    try:
        return D.value_at(size, TYPICAL)
    except ShapeError:
        return D.LIMIT


def most_at_once(sizes: Iterable[tuple[int, int, int]]) -> int:
    """The most bytes that are needed at one step, of (size, first, last)."""
    changes: Counter[int] = Counter()
    for size, first, last in sizes:
        changes[first] += size
        changes[last + 1] -= size
    return max(accumulate(change for _, change in sorted(changes.items())), default=0)


def by_size(tenants: Sequence[Tenant]) -> Assignment:
    """The largest first, into the slot of its kind that is idle for the shortest time before or after it."""
    return _held(tenants, _placed(tenants, _largest_first(tenants)))


def searched(tenants: Sequence[Tenant]) -> Assignment:
    """By size, and then in orders that differ from the best one so far in where a few tenants stand."""
    return _held(tenants, best_found(tenants, lambda order: _placed(tenants, order), MOST_ORDERS, MOST_PLACED))


class Sized(Protocol):
    """A slot while orders are compared."""

    size: int


S = TypeVar("S", bound=Sized)


def best_found(
    tenants: Sequence[Tenant], place: Callable[[Sequence[int]], list[S]], most_orders: int, most_placed: int
) -> list[S]:
    """What `place` makes of the order by size, or of one near it that needs fewer bytes; so many orders are tried at
    most, and so many tenants placed."""
    draw = random.Random(0)
    order = _largest_first(tenants)
    best = place(order)
    least = most_at_once((t.typical, t.first, t.last) for t in tenants)
    for _ in range(min(most_orders, most_placed // max(1, len(tenants)))):
        if total_bytes(best) <= least:
            break
        other = _shuffled(order, draw)
        found = place(other)
        if total_bytes(found) <= total_bytes(best):
            best, order = found, other
    return best


@dataclass
class _Place:
    """A slot while orders are compared: its kind, its size, when it is used, and by whom."""

    kind: Hashable
    size: int = 0
    spans: Spans = field(default_factory=Spans)
    held: list[int] = field(default_factory=list)

    def hold(self, index: int, tenant: Tenant) -> None:
        self.size = max(self.size, tenant.typical)
        self.spans.add(tenant.first, tenant.last)
        self.held.append(index)


def _placed(tenants: Sequence[Tenant], order: Iterable[int]) -> list[_Place]:
    """Each into the slot of its kind that grows least, of these the one that is idle for the shortest time."""
    made: list[_Place] = []
    for i in order:
        tenant = tenants[i]
        found = [
            (max(0, tenant.typical - place.size), gap, k)
            for k, place in enumerate(made)
            if place.kind == tenant.kind and (gap := place.spans.idle(tenant.first, tenant.last)) is not None
        ]
        if not found:
            made.append(_Place(tenant.kind))
        made[min(found)[2] if found else -1].hold(i, tenant)
    return made


def _largest_first(tenants: Sequence[Tenant]) -> list[int]:
    return sorted(range(len(tenants)), key=lambda i: (-tenants[i].typical, i))


def _shuffled(order: Sequence[int], draw: random.Random) -> list[int]:
    """The order with one tenant elsewhere, most likely at the front, or with three a little further to the front."""
    made = list(order)
    if draw.random() < 0.5:
        moved = made.pop(draw.randrange(len(made)))
        made.insert(int(draw.random() ** 2 * len(made)), moved)
        return made
    for _ in range(3):
        i = draw.randrange(len(made))
        made.insert(max(0, i - draw.randrange(1, 6)), made.pop(i))
    return made


def total_bytes(places: Iterable[Sized]) -> int:
    """The bytes of all these slots."""
    return sum(place.size for place in places)


def _held(tenants: Sequence[Tenant], places: Iterable[_Place]) -> Assignment:
    made: Assignment = []
    for place in places:
        slot = Shared()
        for i in place.held:
            slot.hold(tenants[i])
        made.append((slot, place.held))
    return made


def in_order(tenants: Sequence[Tenant]) -> Assignment:
    """Each takes the free slot of its kind that fits best, else the one that grows least, else a new one."""
    made: Assignment = []
    free: dict[Hashable, _Free] = {}
    ends: dict[int, list[int]] = {}
    passed = -1
    for i, tenant in enumerate(tenants):
        for step in range(passed + 1, tenant.first):
            for k in ends.pop(step, ()):
                free[tenants[made[k][1][0]].kind].add(k)
        passed = max(passed, tenant.first - 1)
        taken = free.setdefault(tenant.kind, _Free(made)).take(tenant)
        k = len(made) if taken is None else taken
        if taken is None:
            made.append((Shared(), []))
        made[k][0].hold(tenant)
        made[k][1].append(i)
        ends.setdefault(tenant.last, []).append(k)
    return made


class _Free:
    """The slots of one kind that no tensor uses at the moment; of many, the latest SCAN are looked at."""

    def __init__(self, made: Assignment) -> None:
        self._made = made
        self._free: dict[int, None] = {}
        self._exact: dict[Dim, list[int]] = {}

    def add(self, slot: int) -> None:
        self._free[slot] = None
        for size in self._made[slot][0].sizes:
            self._exact.setdefault(size, []).append(slot)

    def take(self, tenant: Tenant) -> int | None:
        """The slot that fits best; else the one that grows least; None where there is none.

        Sizes that cannot be compared are compared at TYPICAL sizes; the slot is as large as the largest at each run.
        """
        same = self._exact.get(tenant.size, [])
        while same:
            slot = same.pop()
            if slot in self._free:
                del self._free[slot]
                return slot
        if not self._free:
            return None
        slot = self._best(tenant, list(islice(reversed(self._free), SCAN)))
        del self._free[slot]
        return slot

    def _best(self, tenant: Tenant, slots: Sequence[int]) -> int:
        def holds(k: int) -> bool:
            return any(D.at_least(s, tenant.size) for s in self._made[k][0].sizes)

        fitting = [k for k in slots if holds(k)]
        if fitting:
            return min(fitting, key=lambda k: (self._made[k][0].typical, k))
        return min(slots, key=lambda k: (abs(self._made[k][0].typical - tenant.typical), k))
