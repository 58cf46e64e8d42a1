"""Sizes as expressions: a Dim is an int or an `Expr` over named dims. This is the module that others take sizes from.

webrt/polynomials.py has what is polynomial, webrt/dim_programs.py how plans hold sizes, and their values; here are
comparisons and choices between sizes, what is asked of them, and how they become a program (`DimTable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from webrt.dim_programs import (
    LIMIT,
    MAX_PROGRAM,
    OPS,
    DimRef,
    check_program,
    checked,
    evaluate,
    f32_bits,
    resolve,
    scaled_f32,
    variables_of,
)  # fmt: skip
from webrt.errors import ShapeError
from webrt.polynomials import (
    Atom,
    Dim,
    Expr,
    add,
    ceildiv,
    floordiv,
    mod,
    mul,
    of_atom,
    prod,
    sub,
    text,
    var,
)  # fmt: skip

__all__ = [
    "LIMIT", "MAX_PROGRAM", "Atom", "Dim", "DimRef", "DimTable", "Expr", "add", "at_least", "brief", "broadcast",
    "broadcast_pairs", "broadcastable", "ceildiv", "check_program", "element", "eq", "evaluate", "f32_bits", "floordiv",
    "le", "lt", "maximum", "minimum", "mod", "mul", "prod", "program_of", "resolve", "scale_f32", "select", "settled",
    "sub", "substitute", "text", "value_at", "var", "variables", "variables_of",
]  # fmt: skip

MAX_TEXT = 80
"""Letters of a size in a message."""


def element(name: str, index: int) -> Expr:
    """Element `index` of the host tensor `name`, an integer that is known only when the tensor is."""
    return var(f"in:{name}[{index}]")


def minimum(a: Dim, b: Dim) -> Dim:
    if at_least(a, b):
        return b
    return a if at_least(b, a) else of_atom(Atom("min", _sorted(a, b)))


def maximum(a: Dim, b: Dim) -> Dim:
    if at_least(a, b):
        return a
    return b if at_least(b, a) else of_atom(Atom("max", _sorted(a, b)))


def eq(a: Dim, b: Dim) -> Dim:
    """1 where equal, else 0."""
    difference = sub(a, b)
    if isinstance(difference, int):
        return int(difference == 0)
    if at_least(difference, 1) or at_least(sub(b, a), 1):
        return 0
    return of_atom(Atom("eq", (b, a) if isinstance(a, int) else (a, b)))


def lt(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    if at_least(a, b):
        return 0
    return 1 if at_least(sub(b, a), 1) else of_atom(Atom("lt", (a, b)))


def le(a: Dim, b: Dim) -> Dim:
    """1 where a ≤ b, else 0."""
    return select(lt(b, a), 0, 1)


def broadcastable(a: Dim, b: Dim) -> Dim:
    """Not 0 where the sizes broadcast: they are equal, or one of them is 1."""
    return maximum(eq(a, b), maximum(eq(a, 1), eq(b, 1)))


def select(condition: Dim, a: Dim, b: Dim) -> Dim:
    """a where the condition is not 0, else b."""
    if isinstance(condition, int):
        return a if condition else b
    return a if a == b else of_atom(Atom("select", (condition, a, b)))


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size that a and b broadcast to; evaluation raises where neither is 1 and they differ."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"sizes {a} and {b} do not broadcast")
    if b in _broadcast_together(a):
        return a
    return b if a in _broadcast_together(b) else of_atom(Atom("broadcast", _sorted(a, b)))


@lru_cache(maxsize=65536)
def _broadcast_together(dim: Dim) -> frozenset[Dim]:
    """The sizes that `dim` is the broadcast of, through the levels; none where it is something else."""
    args = _broadcast_pair(dim)
    return frozenset(args).union(*map(_broadcast_together, args))


def settled(dim: Dim) -> Dim:
    """`dim` as it is wherever it has a value: min(x, y) of at least 1 broadcasts with y to y or not at all."""
    pair = _broadcast_pair(dim)
    if not pair:
        return dim
    one, other = map(settled, pair)
    if _settles(one, other):
        return other
    return one if _settles(other, one) else broadcast(one, other)


def _settles(least: Dim, size: Dim) -> bool:
    """Whether `least` is the minimum of `size` and of something that is not below 1."""
    if isinstance(least, int) or len(least.terms) != 1:
        return False
    (monomial, factor), *_ = least.terms
    if factor != 1 or len(monomial) != 1 or monomial[0].op != "min" or size not in monomial[0].args:
        return False
    one, other = monomial[0].args
    return at_least(other if one == size else one, 1)


def broadcast_pairs(dim: Dim, known: Collection[Dim]) -> list[tuple[Dim, Dim]]:
    """The pairs of sizes, inner ones first, that `dim` is the broadcast of, down to sizes that are `known`."""
    pairs: dict[Dim, tuple[Dim, Dim]] = {}

    def follow(d: Dim) -> None:
        pair = () if d in known or d in pairs else _broadcast_pair(d)
        for x in pair:
            follow(x)
        if len(pair) == 2:
            pairs[d] = (pair[0], pair[1])

    follow(dim)
    return list(pairs.values())


def _broadcast_pair(dim: Dim) -> tuple[Dim, ...]:
    """The two sizes that `dim` is the broadcast of; none where it is something else."""
    if isinstance(dim, int) or len(dim.terms) != 1:
        return ()
    (monomial, factor), *_ = dim.terms
    return monomial[0].args if factor == 1 and len(monomial) == 1 and monomial[0].op == "broadcast" else ()


def scale_f32(a: Dim, scale: float) -> Dim:
    """⌊f32(a) · f32(scale)⌋ in float32, as Resize computes its output sizes."""
    bits = f32_bits(scale)
    return scaled_f32(a, bits) if isinstance(a, int) else of_atom(Atom("scale_f32", (a, bits)))


@lru_cache(maxsize=65536)
def at_least(a: Dim, b: Dim) -> bool:
    """Whether a ≥ b for all sizes, as far as that can be proved."""
    difference = sub(a, b)
    if isinstance(difference, int):
        return difference >= 0
    return all(c >= 0 and all(_non_negative(x) for x in m) for m, c in difference.terms)


@lru_cache(maxsize=65536)
def variables(dim: Dim) -> frozenset[str]:
    """The names that a size depends on."""
    if isinstance(dim, int):
        return frozenset()
    atoms = {atom for monomial, _ in dim.terms for atom in monomial}
    named = frozenset(a.args[0] for a in atoms if a.op == "var")
    return named.union(*(variables(x) for a in atoms if a.op != "var" for x in a.args))


def substitute(dim: Dim, known: Mapping[str, Dim]) -> Dim:
    """`dim` with some variables replaced."""
    return _substitute(dim, known, {})


def _substitute(dim: Dim, known: Mapping[str, Dim], done: dict[Dim, Dim]) -> Dim:
    if isinstance(dim, int):
        return dim
    if dim not in done:
        total: Dim = 0
        for monomial, coefficient in dim.terms:
            total = total + coefficient * prod(_substitute_atom(atom, known, done) for atom in monomial)
        done[dim] = total
    return done[dim]


@lru_cache(maxsize=65536)
def value_at(dim: Dim, size: int) -> int:
    """The value of `dim` where every variable is `size`. Raises ShapeError where it has none."""
    if isinstance(dim, int):
        return dim
    return sum(c * math.prod(_atom_at(atom, size) for atom in monomial) for monomial, c in dim.terms)


def brief(dim: Dim) -> str:
    """For messages: the text, or, where that is long, what the size depends on."""
    long = len(text(dim)) > MAX_TEXT
    return f"a size of {', '.join(sorted(variables(dim)))}" if long else text(dim)


class DimTable:
    """Collects Dims into one program; equal subexpressions are one instruction."""

    def __init__(self) -> None:
        self.program: list[list[Any]] = []
        self._known: dict[tuple[Any, ...], DimRef] = {}
        self._atoms: dict[int, tuple[Atom, DimRef]] = {}

    def ref(self, dim: Dim) -> DimRef:
        """The reference that stands for `dim` in a plan."""
        if isinstance(dim, int):
            return checked(dim)
        total: DimRef | None = None
        for monomial, c in dim.terms:
            term: DimRef | None = None
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self._emit("mul", term, factor)
            term = checked(c) if term is None else term if c == 1 else self._emit("mul", term, checked(c))
            total = term if total is None else self._emit("add", total, term)
        return 0 if total is None else total

    def _atom(self, atom: Atom) -> DimRef:
        """By identity: sizes share atoms, and hashing a deep one costs as much as its whole tree."""
        if id(atom) not in self._atoms:
            self._atoms[id(atom)] = (atom, self._new_atom(atom))
        return self._atoms[id(atom)][1]

    def _new_atom(self, atom: Atom) -> DimRef:
        if atom.op == "var":
            return self._emit("var", atom.args[0])
        if atom.op == "scale_f32":
            return self._emit("scale_f32", self.ref(atom.args[0]), atom.args[1])
        return self._emit(atom.op, *(self.ref(x) for x in atom.args))

    def _emit(self, op: str, *args: Any) -> DimRef:
        key = (op, *args)
        if key not in self._known:
            self.program.append([op, *(list(a) if isinstance(a, tuple) else a for a in args)])
            self._known[key] = (len(self.program) - 1,)
        return self._known[key]


def program_of(dim: Dim) -> list[list[Any]]:
    """A program whose last value is `dim`."""
    table = DimTable()
    ref = table.ref(dim)
    return [*table.program, ["add", list(ref) if isinstance(ref, tuple) else ref, 0]]


def _non_negative(atom: Atom) -> bool:
    if atom.op == "var":
        return not str(atom.args[0]).startswith("in:")
    if atom.op in ("eq", "lt"):
        return True
    if atom.op in ("floordiv", "ceildiv"):
        return at_least(atom.args[0], 0) and at_least(atom.args[1], 0)
    if atom.op == "mod":
        return at_least(atom.args[1], 0)
    if atom.op == "max":
        return any(at_least(x, 0) for x in atom.args)
    if atom.op in ("min", "broadcast"):
        return all(at_least(x, 0) for x in atom.args)
    if atom.op == "select":
        return all(at_least(x, 0) for x in atom.args[1:])
    return atom.op == "scale_f32" and at_least(atom.args[0], 0) and atom.args[1] < 1 << 31


def _sorted(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    return (a, b) if text(a) <= text(b) else (b, a)


def _substitute_atom(atom: Atom, known: Mapping[str, Dim], done: dict[Dim, Dim]) -> Dim:
    if atom.op == "var":
        return known.get(atom.args[0], of_atom(atom))
    if atom.op == "scale_f32":
        inner = _substitute(atom.args[0], known, done)
        bits = atom.args[1]
        return scaled_f32(inner, bits) if isinstance(inner, int) else of_atom(Atom("scale_f32", (inner, bits)))
    return _BUILDERS[atom.op](*(_substitute(x, known, done) for x in atom.args))


def _atom_at(atom: Atom, size: int) -> int:
    if atom.op == "var":
        return size
    if atom.op == "scale_f32":
        return scaled_f32(value_at(atom.args[0], size), atom.args[1])
    return OPS[atom.op](*(value_at(x, size) for x in atom.args))


_BUILDERS: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv, "mod": mod, "ceildiv": ceildiv, "min": minimum, "max": maximum,
    "eq": eq, "lt": lt, "select": select, "broadcast": broadcast,
}  # fmt: skip
