"""Tensors that lie side by side in one slot, each at a byte of its own, where slots in turn would need more bytes.

WebGPU refuses a buffer that is bound read-only and writable in one dispatch, and a copy within one buffer: tensors of
which one step writes one and touches another are never in one slot at the same time. What else than kernels and copies
touches (inputs, outputs, the host, bodies) has its slot for itself, from the first byte on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webrt.compiler.slots import Assignment, Shared, Tenant, best_found, most_at_once, total_bytes
from webrt.lowering import WINDOW_ALIGN

MOST_TENANTS = 512
"""Above so many tensors slots are taken in turn only."""
MOST_ORDERS = 150
MOST_PLACED = 10_000
"""How many orders are tried, and how many tensors all of these place."""
WORTH = 0.98
"""The share of the bytes of slots in turn that is worth it: a dispatch that finds its operands alone is simpler."""


@dataclass
class _Slot:
    """Its size, and (start, end, index) of its tenants."""

    tenants: Sequence[Tenant]
    size: int = 0
    held: list[tuple[int, int, int]] = field(default_factory=list)

    def room(self, i: int, limit: int) -> int | None:
        """The first byte where tenant i has room as long as it is needed; None where it may not be."""
        own, size = self.tenants[i], self.tenants[i].typical
        at = 0
        for start, end, k in sorted(self.held):
            other = self.tenants[k]
            if other.last < own.first or own.last < other.first:
                continue
            if own.alone or other.alone or k in own.apart:
                return None
            if at + size > start:
                at = max(at, -(-end // WINDOW_ALIGN) * WINDOW_ALIGN)
        return at if at == 0 or at + size <= limit else None

    def hold(self, i: int, at: int) -> None:
        end = at + self.tenants[i].typical
        self.size = max(self.size, end)
        self.held.append((at, end, i))


def side_by_side(tenants: Sequence[Tenant], slots: Assignment, limit: int) -> tuple[Assignment, Mapping[int, int]]:
    """Slots of at most `limit` bytes (or of one tensor that is larger) for tenants of known sizes, and where those
    start that have neighbours; the `slots` in turn and nothing where these are as good, sizes are free, or the limit
    is 0."""
    if not limit or len(tenants) > MOST_TENANTS or not all(isinstance(t.size, int) for t in tenants):
        return slots, {}
    in_turn = sum(slot.typical for slot, _ in slots)
    least = most_at_once((t.typical, t.first, t.last) for t in tenants)
    if least > WORTH * in_turn:
        return slots, {}
    best = best_found(tenants, lambda order: _placed(tenants, order, limit), MOST_ORDERS, MOST_PLACED)
    return _assigned(best) if total_bytes(best) <= WORTH * in_turn else (slots, {})


def _placed(tenants: Sequence[Tenant], order: Iterable[int], limit: int) -> list[_Slot]:
    """Each into the slot that grows least, of these the smallest."""
    made: dict[object, list[_Slot]] = {}
    for i in order:
        same = made.setdefault(tenants[i].kind, [])
        rooms = [(at, k) for k, slot in enumerate(same) if (at := slot.room(i, limit)) is not None]
        found = [(max(0, at + tenants[i].typical - same[k].size), same[k].size, at, k) for at, k in rooms]
        if not found:
            same.append(_Slot(tenants))
        at, k = min(found)[2:] if found else (0, -1)
        same[k].hold(i, at)
    return [slot for same in made.values() for slot in same]


def _assigned(slots: Iterable[_Slot]) -> tuple[Assignment, Mapping[int, int]]:
    made: Assignment = []
    starts: dict[int, int] = {}
    for slot in slots:
        if any(at for at, _, _ in slot.held):
            starts.update((k, at) for at, _, k in slot.held if not slot.tenants[k].alone)
        made.append((Shared([slot.size], slot.size), [k for _, _, k in slot.held]))
    return sorted(made, key=lambda s: min(s[1])), starts
