"""Sizes: the evaluator on the table that player.js is tested on too, the canonical form against plain integers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrt import dim_programs
from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import PlanError, ShapeError

CASES = json.loads(Path(__file__).with_name("dim_cases.json").read_text(encoding="utf-8"))
NAMES = ("b", "h", "in:k[0]")


@pytest.mark.parametrize("case", CASES, ids=[c["what"] for c in CASES])
def test_table(case: dict[str, Any]) -> None:
    D.check_program(case["program"])
    if "error" in case:
        with pytest.raises(ShapeError, match=case["error"]):
            D.evaluate(case["program"], case["known"])
    else:
        assert D.evaluate(case["program"], case["known"]) == case["values"]


def test_table_is_large() -> None:
    assert len(CASES) >= 150
    assert {op for c in CASES for op, *_ in c["program"]} == {*dim_programs.OPS, "var"}


@pytest.mark.parametrize(
    "program",
    [
        {}, None, "add", [[]], ["add"], [["add", 1]], [["add", 1, 2, 3]], [["select", 1, 2]], [["pow", 1, 2]],
        [["var"]], [["var", 3]], [["var", "a", "b"]], [["add", 1, [0]]], [["add", 1, [1]]], [["add", 1, [-1]]],
        [["add", 1, []]], [["add", 1, 1.5]], [["add", 1, True]], [["add", 1, None]], [["add", 1, "a"]],
        [["add", 1, 2**53]], [[["add"], 1, 2]], [["var", "a"], ["add", [0.0], 1]], [["scale_f32", 1, -1]],
        [["scale_f32", 1, 2**32]], [["var", "a"], ["scale_f32", 1, [0]]], [["__class__", 1, 2]],
    ],
)  # fmt: skip
def test_malformed_programs_are_refused(program: Any) -> None:
    with pytest.raises(PlanError):
        D.check_program(program)


class Tree:
    """An expression built twice: as a Dim, and as a function of plain integers."""

    def __init__(self, dim: Callable[[], Dim], value: Callable[[dict[str, int]], int], label: str) -> None:
        self.dim, self.value, self.label = dim, value, label

    def __repr__(self) -> str:
        return self.label


def _ref_broadcast(a: int, b: int) -> int:
    if a != b and 1 not in (a, b):
        raise ShapeError("do not broadcast")
    return b if a == 1 else a


_PAIRS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "add": (D.add, lambda a, b: a + b),
    "sub": (D.sub, lambda a, b: a - b),
    "mul": (D.mul, lambda a, b: a * b),
    "floordiv": (D.floordiv, lambda a, b: a // b),
    "mod": (D.mod, lambda a, b: a % b),
    "ceildiv": (D.ceildiv, lambda a, b: -(-a // b)),
    "min": (D.minimum, min),
    "max": (D.maximum, max),
    "eq": (D.eq, lambda a, b: int(a == b)),
    "lt": (D.lt, lambda a, b: int(a < b)),
    "broadcast": (D.broadcast, _ref_broadcast),
}


def _pair(op: str, a: Tree, b: Tree) -> Tree:
    build, plain = _PAIRS[op]
    return Tree(lambda: build(a.dim(), b.dim()), lambda e: plain(a.value(e), b.value(e)), f"{op}({a}, {b})")


def _choice(c: Tree, a: Tree, b: Tree) -> Tree:
    def value(e: dict[str, int]) -> int:
        condition, yes, no = c.value(e), a.value(e), b.value(e)
        return yes if condition else no

    return Tree(lambda: D.select(c.dim(), a.dim(), b.dim()), value, f"select({c}, {a}, {b})")


def _literal(n: int) -> Tree:
    return Tree(lambda: n, lambda e: n, str(n))


def _variable(name: str) -> Tree:
    return Tree(lambda: D.var(name), lambda e: e[name], name)


LEAVES = st.one_of(st.integers(-6, 6).map(_literal), st.sampled_from(NAMES).map(_variable))
TREES = st.recursive(
    LEAVES,
    lambda t: st.one_of(st.builds(_pair, st.sampled_from(sorted(_PAIRS)), t, t), st.builds(_choice, t, t, t)),
    max_leaves=10,
)
# Sizes are not negative; elements of a host tensor may be.
ENVS = st.fixed_dictionaries({"b": st.integers(0, 12), "h": st.integers(0, 12), "in:k[0]": st.integers(-12, 12)})


def _value(tree: Tree, env: dict[str, int]) -> int | None:
    """What plain integers give; None where the expression has no value."""
    try:
        return tree.value(env)
    except (ZeroDivisionError, ShapeError):
        return None


def _dim(tree: Tree) -> Dim | None:
    """The expression; None where building it shows that it never has a value."""
    try:
        return tree.dim()
    except ShapeError:
        return None


@given(TREES, ENVS)
def test_canonical_form_keeps_the_value(tree: Tree, env: dict[str, int]) -> None:
    expected, dim = _value(tree, env), _dim(tree)
    if expected is None:
        return
    assert dim is not None
    assert D.substitute(dim, env) == expected
    table = D.DimTable()
    ref = table.ref(dim)
    D.check_program(table.program)
    assert D.resolve(ref, D.evaluate(table.program, env)) == expected


@given(TREES, st.integers(-2, 4), ENVS, st.booleans())
def test_settled_sizes_keep_the_value(tree: Tree, most: int, env: dict[str, int], turned: bool) -> None:
    """min(most, size) with size, either way round; where the size broadcasts at all."""
    pair = _pair("min", _literal(most), tree), tree
    both = _pair("broadcast", *(pair[::-1] if turned else pair))
    expected, dim = _value(both, env), _dim(both)
    if expected is not None and dim is not None:
        assert D.substitute(D.settled(dim), env) == expected


def test_a_slice_of_a_table_settles_on_the_size() -> None:
    s, k = D.var("s"), D.var("k")
    assert D.settled(D.broadcast(D.minimum(512, s), s)) == s
    assert D.settled(D.broadcast(D.minimum(1, s), s)) == s
    assert D.settled(D.broadcast(s, D.minimum(k + 1, s))) == s
    for kept in (D.broadcast(D.minimum(k, s), s), D.broadcast(D.minimum(2, s), k), s + 1):
        assert D.settled(kept) == kept


@given(TREES, ENVS, st.sampled_from(NAMES))
def test_substituting_step_by_step_agrees(tree: Tree, env: dict[str, int], first: str) -> None:
    expected, dim = _value(tree, env), _dim(tree)
    if expected is None or dim is None:
        return
    assert D.substitute(D.substitute(dim, {first: env[first]}), env) == expected


@given(TREES, ENVS)
def test_variables_are_all_that_matters(tree: Tree, env: dict[str, int]) -> None:
    expected, dim = _value(tree, env), _dim(tree)
    if expected is None or dim is None:
        return
    assert D.substitute(dim, {k: env[k] for k in D.variables(dim)}) == expected


@given(TREES, TREES, ENVS)
def test_at_least_is_a_proof(a: Tree, b: Tree, env: dict[str, int]) -> None:
    x, y, p, q = _value(a, env), _value(b, env), _dim(a), _dim(b)
    if None not in (x, y, p, q) and D.at_least(p, q):  # type: ignore[arg-type]
        assert x >= y  # type: ignore[operator]


@given(st.lists(TREES, min_size=2, max_size=4), st.randoms())
def test_order_does_not_matter(trees: list[Tree], random: Any) -> None:
    dims = [d for t in trees if (d := _dim(t)) is not None]
    shuffled = dims[:]
    random.shuffle(shuffled)
    assert sum(dims, 0) == sum(shuffled, 0)
    assert D.prod(dims) == D.prod(shuffled)


@given(TREES, st.sampled_from(NAMES))
def test_multiples_divide_exactly(tree: Tree, name: str) -> None:
    dim = _dim(tree)
    if dim is None:
        return
    n = D.var(name)
    assert (dim * n) // n == dim
    assert (dim * n) % n == 0
    assert D.ceildiv(dim * n * 2, n * 2) == dim


def test_equal_polynomials_are_equal_objects() -> None:
    s, h = D.var("s"), D.var("h")
    assert (s + h) * (s - h) == s * s - h * h
    assert 2 * s * h // (2 * s) == h
    assert (s * s + s * h) // (s + h) == s
    assert hash(s + h) == hash(h + s)
    assert s - s == 0
    assert (6 * s + 3) // 3 == 2 * s + 1
    assert D.eq(s + 1, s) == 0
    assert D.lt(s, s + 1) == 1
    assert D.maximum(s, 0) == s


def test_equal_expressions_are_one_object() -> None:
    def built() -> Dim:
        d: Dim = D.var("n")
        for k in range(2, 12):
            d = D.maximum(D.floordiv(d, k), D.mod(d, k + 1))
        return d

    first = built()
    assert built() is first
    assert D.at_least(built() + 1, first)


def test_text_is_for_people() -> None:
    b, s = D.var("batch"), D.var("s")
    assert str(2 * b + s // 4) == "(s floordiv 4) + 2*batch"
    assert str(D.minimum(b, s)) == "min(batch, s)"


def test_one_instruction_per_subexpression() -> None:
    table = D.DimTable()
    half = D.var("s") // 2
    refs = [table.ref(half + 1), table.ref(half + 2), table.ref(half + 1)]
    assert refs[0] == refs[2]
    assert [op for op, *_ in table.program].count("floordiv") == 1


def test_sizes_beyond_the_limit_are_refused_when_written() -> None:
    with pytest.raises(ShapeError, match="overflows"):
        D.DimTable().ref(2**53)
    with pytest.raises(ShapeError, match="overflows"):
        D.DimTable().ref(2**53 * D.var("s"))
    with pytest.raises(ShapeError, match="overflows"):
        D.scale_f32(10**60, 0.5)


@pytest.mark.parametrize(
    ("x", "bits"),
    [(1.0, 0x3F800000), (-0.0, 0x80000000), (0.1, 0x3DCCCCCD), (1e39, 0x7F800000), (-1e39, 0xFF800000)],
)
def test_f32_bits(x: float, bits: int) -> None:
    assert D.f32_bits(x) == bits


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, -3), (0, -4)])
def test_ceildiv_of_literals_and_symbols_agree(a: int, b: int) -> None:
    s = D.var("in:k[0]")
    assert D.ceildiv(a, b) == -(-a // b)
    assert D.substitute(D.ceildiv(s, b), {"in:k[0]": a}) == -(-a // b)
    assert D.substitute(D.ceildiv(a, s), {"in:k[0]": b}) == -(-a // b)


def test_a_size_that_was_broadcast_already_adds_nothing() -> None:
    a, b, c = D.var("a"), D.var("b"), D.var("c")
    both = D.broadcast(a, b)
    assert D.broadcast(both, b) is both and D.broadcast(a, both) is both
    three = D.broadcast(c, both)
    assert D.broadcast(three, a) is three and three is not both
    assert D.broadcast(D.mul(2, both), b) is not D.mul(2, both)
