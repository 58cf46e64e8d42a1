"""Tensors that share slots: never two at once in one, never one that is too small, never worse than in order of use."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrt import dims as D
from webrt.compiler import slots
from webrt.compiler.neighbours import side_by_side
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


@st.composite
def neighbours(draw: st.DrawFn) -> list[Tenant]:
    """Tenants of known sizes, some of which want a slot for themselves, some of which are apart from some."""
    spans = sorted(draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=24)))
    sizes = [16 * draw(st.integers(1, 99)) for _ in spans]
    pairs = st.tuples(*[st.integers(0, len(spans) - 1)] * 2)
    apart = {pair for a, b in draw(st.lists(pairs, max_size=20)) if a != b for pair in ((a, b), (b, a))}
    alone = [draw(st.integers(0, 5)) == 0 for _ in spans]
    return [
        Tenant(size, first, first + length, "ab"[k % 7 == 0], size, alone[k], frozenset(b for a, b in apart if a == k))
        for k, (size, (first, length)) in enumerate(zip(sizes, spans))
    ]


@given(neighbours(), st.sampled_from([1024, 4096, 1 << 20]))
def test_neighbours_never_share_a_byte(given_tenants: list[Tenant], limit: int) -> None:
    in_turn = slots.share(given_tenants)
    made, starts = side_by_side(given_tenants, in_turn, limit)
    assert sorted(k for _, held in made for k in held) == list(range(len(given_tenants)))
    assert total(made) <= total(in_turn)
    for slot, held in made:
        assert len({given_tenants[k].kind for k in held}) == 1
        for k in held:
            at, tenant = starts.get(k, 0), given_tenants[k]
            assert at % 256 == 0 and at + tenant.typical <= slot.typical
            assert at == 0 or (at + tenant.typical <= limit and not tenant.alone)
        for i, j in itertools.combinations(held, 2):
            a, b = given_tenants[i], given_tenants[j]
            if a.first <= b.last and b.first <= a.last:
                x, y = starts[i], starts[j]
                assert x + a.typical <= y or y + b.typical <= x
                assert not a.alone and not b.alone and j not in a.apart


def test_a_large_slot_has_room_for_two_small_tensors() -> None:
    spans = [(1024, 0, 1), (1024, 1, 2), (512, 2, 5), (512, 3, 5), (512, 4, 5), (512, 4, 5)]
    apart = [{1}, {0, 2}, {1}, set[int](), set[int](), set[int]()]
    six = [Tenant(size, *span, "a", size, False, frozenset(apart[k])) for k, (size, *span) in enumerate(spans)]
    in_turn = slots.share(six)
    made, starts = side_by_side(six, in_turn, 1 << 20)
    assert (total(in_turn), total(made)) == (3072, 2048)
    assert sorted(starts.values()) == [0, 0, 0, 0, 512, 512]
    free = [Tenant(D.mul(D.var("n"), 16), *span, "a", size, False) for size, *span in spans]
    assert side_by_side(free, in_turn, 1 << 20) == (in_turn, {})


def test_what_is_larger_than_a_binding_has_no_neighbours() -> None:
    pair = [Tenant(2048, 0, 3, "a", 2048, False), Tenant(2048, 2, 5, "a", 2048, False)]
    assert total(side_by_side(pair, slots.share(pair), 1024)[0]) == 4096


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
