"""Tensors that share slots: never two at once in one, never one that is too small, never worse than in order of use."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrt import dims as D
from webrt.compiler import slots
from webrt.compiler.slots import Assignment, Tenant


@st.composite
def tenants(draw: st.DrawFn) -> list[Tenant]:
    spans = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=24))
    made = []
    for first, length in sorted(spans):
        size = 16 * draw(st.integers(1, 9))
        grown = D.mul(D.var("n"), size) if draw(st.booleans()) else size
        made.append(Tenant(grown, first, first + length, draw(st.sampled_from("ab")), slots.typical(grown)))
    return made


@pytest.mark.parametrize("way", [slots.in_order, slots.by_size, slots.searched, slots.share])
@given(tenants())
def test_no_two_at_once(way: object, given_tenants: list[Tenant]) -> None:
    assert callable(way)
    check(way(given_tenants), given_tenants)


@given(tenants())
def test_the_smaller_way_is_taken(given_tenants: list[Tenant]) -> None:
    taken = total(slots.share(given_tenants))
    found = slots.searched(given_tenants)
    assert total(found) <= total(slots.by_size(given_tenants))
    assert taken == min(total(slots.in_order(given_tenants)), total(found))


def test_other_orders_need_fewer_bytes() -> None:
    spans = [(48, 0, 1), (48, 1, 3), (32, 2, 4), (16, 4, 6), (64, 4, 5)]
    five = [Tenant(size, first, last, "a", size) for size, first, last in spans]
    assert [total(way(five)) for way in (slots.in_order, slots.by_size, slots.searched)] == [160, 144, 128]
    assert total(slots.share(five)) == 128
    assert slots.most_at_once(spans) == 112


def test_many_tenants_are_placed_in_order_only() -> None:
    many = [Tenant(16, i, i, "a", 16) for i in range(slots.MOST_BY_SIZE + 1)]
    assert len(slots.share(many)) == 1


def check(made: Assignment, given_tenants: Sequence[Tenant]) -> None:
    assert sorted(k for _, held in made for k in held) == list(range(len(given_tenants)))
    for slot, held in made:
        here = [given_tenants[k] for k in held]
        assert len({t.kind for t in here}) == 1
        spans = sorted((t.first, t.last) for t in here)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans)), spans
        for n in (1, 3, 100):
            room = max(D.value_at(s, n) for s in slot.sizes)
            assert all(D.value_at(t.size, n) <= room for t in here)


def total(made: Assignment) -> int:
    return sum(slot.typical for slot, _ in made)
