"""Sizes as polynomials with integer coefficients over atoms: variables, and operations that are no polynomials.

The form is canonical: equal polynomials are equal objects, so `2*s*h // (2*s)` is `h`. webrt/dims.py has the operations
that are no polynomials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, Union
from weakref import WeakValueDictionary

from webrt.errors import ShapeError

MAX_WRITTEN = 400
"""Letters after which the text of an expression goes on with a digest of the rest: written out, shared parts double."""
MAX_LEVELS = 128
MAX_TERMS = 1024
MAX_DEGREE = 256
MAX_INT = 1 << 128
"""Bounds of expressions; real models stay below 40 levels and 10 terms."""
KEPT, SHORT = 1024, 16
"""How many results of each operation are kept; of operands that have at most so many atoms."""


@dataclass(frozen=True)
class Atom:
    """A variable (`op` "var", one str argument) or an operation that is no polynomial."""

    op: str
    args: tuple[Any, ...]

    @cached_property
    def key(self) -> str:
        """What products are sorted by."""
        return str(self.args[0]) if self.op == "var" else _shortened(_atom_text(self))

    @cached_property
    def levels(self) -> int:
        """How deep operations are nested in it."""
        inner = (a.levels for x in self.args if isinstance(x, Expr) for monomial, _ in x.terms for a in monomial)
        return 1 + max(inner, default=0)

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.args))

    def __hash__(self) -> int:
        return self._hash


Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Expr:
    """A polynomial: `terms` maps products of atoms (sorted) to coefficients, as a sorted tuple without zeros."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def text(self) -> str:
        """For people: `2*batch + (s floordiv 4)`."""
        (first, factor), *more = self.terms
        if not more and factor == 1 and len(first) == 1:
            return first[0].key
        parts = []
        for monomial, c in self.terms:
            product = "*".join(a.key for a in monomial)
            parts.append(str(c) if not product else product if c == 1 else f"{c}*{product}")
        return _shortened(" + ".join(parts))

    @cached_property
    def is_short(self) -> bool:
        """Whether what is computed of it is kept."""
        return sum(len(monomial) for monomial, _ in self.terms) <= SHORT

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: int) -> Dim:
        return _combine(other, self, -1)

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return _multiply(self, -1)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        return text(self)

    __repr__ = __str__


Dim: TypeAlias = Union[int, Expr]  # noqa: UP007


def var(name: str) -> Expr:
    """The named size `name`."""
    return of_atom(Atom("var", (name,)))


def add(a: Dim, b: Dim) -> Dim:
    return _combine(a, b, 1)


def sub(a: Dim, b: Dim) -> Dim:
    return _combine(a, b, -1)


def mul(a: Dim, b: Dim) -> Dim:
    return _multiply(a, b)


def prod(dims: Iterable[Dim]) -> Dim:
    """The product; 1 for none."""
    out: Dim = 1
    for d in dims:
        out = _multiply(out, d)
    return out


def floordiv(a: Dim, b: Dim) -> Dim:
    """⌊a / b⌋. A constant divisor divides the terms it can; a symbolic one has to divide exactly to simplify."""
    if isinstance(b, int):
        if b == 0:
            raise ShapeError("a size is divided by zero")
        if isinstance(a, int):
            return a // b
        return _floor(a, b) if a.is_short else _floor.__wrapped__(a, b)
    quotient = _exact_quotient(a, b)
    return quotient if quotient is not None else of_atom(Atom("floordiv", (a, b)))


@lru_cache(KEPT)
def _floor(a: Expr, b: int) -> Dim:
    whole = _poly({m: c // b for m, c in a.terms if c % b == 0})
    rest = _poly({m: c for m, c in a.terms if c % b != 0})
    if isinstance(rest, int):
        return whole + rest // b
    return add(whole, of_atom(Atom("floordiv", (rest, b))))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """⌈a / b⌉."""
    if isinstance(b, int):
        return floordiv(a + (b - 1), b) if b > 0 else mul(floordiv(mul(a, -1), b), -1)
    quotient = _exact_quotient(a, b)
    return quotient if quotient is not None else of_atom(Atom("ceildiv", (a, b)))


def mod(a: Dim, b: Dim) -> Dim:
    """a - b·⌊a / b⌋ (the divisor's sign)."""
    if isinstance(b, int):
        if b == 0:
            raise ShapeError("a size is divided by zero")
        if isinstance(a, int):
            return a % b
        rest = _poly({m: c % b for m, c in a.terms})
        return rest % b if isinstance(rest, int) else of_atom(Atom("mod", (rest, b)))
    return 0 if _exact_quotient(a, b) is not None else of_atom(Atom("mod", (a, b)))


def text(dim: Dim) -> str:
    """For people: `2*batch + (s floordiv 4)`."""
    return str(dim) if isinstance(dim, int) else dim.text


def _poly(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if set(kept) == {()}:
        return _bounded(kept[()])
    ordered = tuple(sorted(kept.items(), key=lambda t: ([a.key for a in t[0]], t[1])))
    if ordered not in _exprs:
        _check_bounds(kept)
    return _expr(ordered)


def _check_bounds(terms: Mapping[Monomial, int]) -> None:
    """Raises ShapeError where an expression is larger than any that a model needs."""
    atoms = [atom for monomial in terms for atom in monomial]
    if len(terms) > MAX_TERMS or max(map(len, terms)) > MAX_DEGREE or max(atom.levels for atom in atoms) > MAX_LEVELS:
        raise ShapeError("a size is too long an expression of the free sizes; fix some of these")
    for c in terms.values():
        _bounded(c)


def _bounded(x: int) -> int:
    if not -MAX_INT < x < MAX_INT:
        raise ShapeError("a size overflows, far beyond 2**53")
    return x


def _terms(a: Dim) -> dict[Monomial, int]:
    return {(): a} if isinstance(a, int) else dict(a.terms)


def of_atom(atom: Atom) -> Expr:
    key = (atom.op, atom.args)
    if key not in _atoms:
        _check_bounds({(atom,): 1})
    return _expr((((_atoms.setdefault(key, atom),), 1),))


def _expr(terms: tuple[tuple[Monomial, int], ...]) -> Expr:
    """The one object of its value: comparisons stay short however deep expressions are that share parts."""
    return _exprs.setdefault(terms, Expr(terms))


_atoms: WeakValueDictionary[tuple[str, tuple[Any, ...]], Atom] = WeakValueDictionary()
_exprs: WeakValueDictionary[tuple[tuple[Monomial, int], ...], Expr] = WeakValueDictionary()


def _combine(a: Dim, b: Dim, sign: int) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return _bounded(a + sign * b)
    short = (isinstance(a, int) or a.is_short) and (isinstance(b, int) or b.is_short)
    return _sum(a, b, sign) if short else _sum.__wrapped__(a, b, sign)


@lru_cache(KEPT)
def _sum(a: Dim, b: Dim, sign: int) -> Dim:
    out = _terms(a)
    for m, c in _terms(b).items():
        out[m] = out.get(m, 0) + sign * c
    return _poly(out)


def _multiply(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int):
        return _scaled(b, a)
    if isinstance(b, int):
        return _scaled(a, b)
    return _product(a, b) if a.is_short and b.is_short else _product.__wrapped__(a, b)


@lru_cache(KEPT)
def _product(a: Expr, b: Expr) -> Dim:
    out: dict[Monomial, int] = {}
    for m, c in a.terms:
        if len(out) > MAX_TERMS:
            _check_bounds(out)
        for n, d in b.terms:
            key = tuple(sorted(m + n, key=lambda atom: atom.key))
            out[key] = out.get(key, 0) + c * d
    return _poly(out)


def _scaled(a: Dim, factor: int) -> Dim:
    """a · factor. A positive one leaves the terms in their order."""
    if isinstance(a, int) or factor == 0:
        return _bounded(a * factor) if isinstance(a, int) else 0
    if factor < 0:
        return _poly({m: c * factor for m, c in a.terms})
    return a if factor == 1 else _expr(tuple((m, _bounded(c * factor)) for m, c in a.terms))


def _exact_quotient(a: Dim, b: Expr) -> Dim | None:
    """a / b where b divides a as a polynomial with a one-term quotient, or b is one term dividing each of a's."""
    if a == 0:
        return 0
    if len(b.terms) == 1:
        quotient: Dim = 0
        for m, c in _terms(a).items():
            term = _divide_term((m, c), b.terms[0])
            if term is None:
                return None
            quotient = quotient + term
        return quotient
    first = _divide_term(next(iter(_terms(a).items())), b.terms[0])
    return first if first is not None and mul(first, b) == a else None


def _divide_term(a: tuple[Monomial, int], b: tuple[Monomial, int]) -> Dim | None:
    rest = list(a[0])
    for atom in b[0]:
        if atom not in rest:
            return None
        rest.remove(atom)
    return None if a[1] % b[1] else _poly({tuple(rest): a[1] // b[1]})


def _shortened(text: str) -> str:
    if len(text) <= MAX_WRITTEN:
        return text
    return f"{text[:MAX_WRITTEN]}…{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


def _atom_text(atom: Atom) -> str:
    if atom.op == "var":
        return str(atom.args[0])
    if atom.op in ("floordiv", "ceildiv", "mod"):
        return f"({text(atom.args[0])} {atom.op} {text(atom.args[1])})"
    return f"{atom.op}({', '.join(text(x) for x in atom.args)})"
