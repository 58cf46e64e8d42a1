"""Sizes as expressions: a Dim is an int or an `Expr` over named dims.

An `Expr` is a polynomial with integer coefficients over atoms; an atom is a variable or one operation that is not
polynomial. The form is canonical: equal polynomials are equal objects, so `2*s*h // (2*s)` is `h`.

A plan holds expressions as a *program* (`DimTable`): a list of instructions `[op, argument, …]`. An argument is an
int literal or `[k]`, the result of instruction k < its own. `evaluate` runs it; web/player.js has its twin, and
tests/unit/dim_cases.json is the table both are tested on.

    var name · add · sub · mul · floordiv · mod (floored) · ceildiv · min · max · eq · lt · select c a b ·
    broadcast · scale_f32 x bits (floor of the f32 product with the f32 of those bits)

Every value is an integer with |x| < 2**53; anything else raises ShapeError, in both evaluators.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, Union
from weakref import WeakValueDictionary

from webrt.errors import PlanError, ShapeError

LIMIT = 2**53
MAX_PROGRAM = 200_000
MAX_WRITTEN = 400
"""Letters after which the text of an expression goes on with a digest of the rest: written out, shared parts double."""
MAX_LEVELS = 128
MAX_TERMS = 1024
MAX_DEGREE = 256
MAX_INT = 1 << 128
"""Bounds of expressions; real models stay below 40 levels and 10 terms."""
MAX_TEXT = 80
"""Letters of a size in a message."""

DimRef: TypeAlias = int | tuple[int]
"""A size in a plan: a literal, or `(k,)`, the result of instruction k of the plan's program."""


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
    return _of_atom(Atom("var", (name,)))


def element(name: str, index: int) -> Expr:
    """Element `index` of the host tensor `name`, an integer that is known only when the tensor is."""
    return var(f"in:{name}[{index}]")


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
        whole = _poly({m: c // b for m, c in a.terms if c % b == 0})
        rest = _poly({m: c for m, c in a.terms if c % b != 0})
        if isinstance(rest, int):
            return whole + rest // b
        return add(whole, _of_atom(Atom("floordiv", (rest, b))))
    quotient = _exact_quotient(a, b)
    return quotient if quotient is not None else _of_atom(Atom("floordiv", (a, b)))


def ceildiv(a: Dim, b: Dim) -> Dim:
    """⌈a / b⌉."""
    if isinstance(b, int):
        return floordiv(a + (b - 1), b) if b > 0 else mul(floordiv(mul(a, -1), b), -1)
    quotient = _exact_quotient(a, b)
    return quotient if quotient is not None else _of_atom(Atom("ceildiv", (a, b)))


def mod(a: Dim, b: Dim) -> Dim:
    """a - b·⌊a / b⌋ (the divisor's sign)."""
    if isinstance(b, int):
        if b == 0:
            raise ShapeError("a size is divided by zero")
        if isinstance(a, int):
            return a % b
        rest = _poly({m: c % b for m, c in a.terms})
        return rest % b if isinstance(rest, int) else _of_atom(Atom("mod", (rest, b)))
    return 0 if _exact_quotient(a, b) is not None else _of_atom(Atom("mod", (a, b)))


def minimum(a: Dim, b: Dim) -> Dim:
    if at_least(a, b):
        return b
    return a if at_least(b, a) else _of_atom(Atom("min", _sorted(a, b)))


def maximum(a: Dim, b: Dim) -> Dim:
    if at_least(a, b):
        return a
    return b if at_least(b, a) else _of_atom(Atom("max", _sorted(a, b)))


def eq(a: Dim, b: Dim) -> Dim:
    """1 where equal, else 0."""
    difference = sub(a, b)
    if isinstance(difference, int):
        return int(difference == 0)
    if at_least(difference, 1) or at_least(sub(b, a), 1):
        return 0
    return _of_atom(Atom("eq", (b, a) if isinstance(a, int) else (a, b)))


def lt(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    if at_least(a, b):
        return 0
    return 1 if at_least(sub(b, a), 1) else _of_atom(Atom("lt", (a, b)))


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
    return a if a == b else _of_atom(Atom("select", (condition, a, b)))


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
    return b if a in _broadcast_together(b) else _of_atom(Atom("broadcast", _sorted(a, b)))


@lru_cache(maxsize=65536)
def _broadcast_together(dim: Dim) -> frozenset[Dim]:
    """The sizes that `dim` is the broadcast of, through the levels; none where it is something else."""
    args = _broadcast_pair(dim)
    return frozenset(args).union(*map(_broadcast_together, args))


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
    return _scale_f32(a, bits) if isinstance(a, int) else _of_atom(Atom("scale_f32", (a, bits)))


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


def text(dim: Dim) -> str:
    """For people: `2*batch + (s floordiv 4)`."""
    return str(dim) if isinstance(dim, int) else dim.text


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
            return _checked(dim)
        total: DimRef | None = None
        for monomial, c in dim.terms:
            term: DimRef | None = None
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self._emit("mul", term, factor)
            term = _checked(c) if term is None else term if c == 1 else self._emit("mul", term, _checked(c))
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


def evaluate(
    program: Sequence[Sequence[Any]], known: Mapping[str, int], failed: list[ShapeError] | None = None
) -> list[int | None]:
    """The value of each instruction; None where it depends on a variable that is not in `known`.

    Raises ShapeError for an overflow, a division by zero or sizes that do not broadcast; with `failed` such an
    instruction is None too, and its error is appended.
    """
    values: list[int | None] = []
    for op, *args in program:
        operands = [known.get(args[0])] if op == "var" else [values[a[0]] if isinstance(a, list) else a for a in args]
        try:
            values.append(None if None in operands else _checked(_OPS[op](*operands)))
        except ShapeError as e:
            if failed is None:
                raise
            failed.append(e)
            values.append(None)
    return values


def variables_of(program: Sequence[Sequence[Any]]) -> list[str]:
    """The names that a program's sizes depend on, in order."""
    return [str(args[0]) for op, *args in program if op == "var"]


def resolve(ref: DimRef, values: Sequence[int | None]) -> int | None:
    """The value of a plan's size."""
    return ref if isinstance(ref, int) else values[ref[0]]


def check_program(program: Any) -> None:
    """Raises PlanError unless `program` is well formed: known operations, arity, arguments that come before."""
    if not isinstance(program, list) or len(program) > MAX_PROGRAM:
        raise PlanError("the size program is not a list, or is longer than allowed")
    for k, instruction in enumerate(program):
        if not isinstance(instruction, list) or not instruction or not isinstance(instruction[0], str):
            raise PlanError(f"size instruction {k} is malformed")
        op, *args = instruction
        if op == "var":
            if len(args) != 1 or not isinstance(args[0], str):
                raise PlanError(f"size instruction {k} names no variable")
        elif op not in _ARITY or len(args) != _ARITY[op] or not all(_is_argument(a, k) for a in args):
            raise PlanError(f"size instruction {k} ({op}) is malformed")
        elif op == "scale_f32" and not (type(args[1]) is int and 0 <= args[1] < 1 << 32):
            raise PlanError(f"size instruction {k} (scale_f32) has no bits of a float32")


def f32_bits(x: float) -> int:
    """The bits of the nearest float32 as an unsigned integer."""
    try:
        packed = struct.pack("<f", x)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, x))
    return int(struct.unpack("<I", packed)[0])


def _is_argument(a: Any, k: int) -> bool:
    if isinstance(a, list):
        return len(a) == 1 and type(a[0]) is int and 0 <= a[0] < k
    return type(a) is int and abs(a) < LIMIT


def _checked(value: int) -> int:
    if not -LIMIT < value < LIMIT:
        raise ShapeError(f"a size overflows: {value} is beyond 2**53")
    return value


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


def _of_atom(atom: Atom) -> Expr:
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
    out = _terms(a)
    for m, c in _terms(b).items():
        out[m] = out.get(m, 0) + sign * c
    return _poly(out)


def _multiply(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return _bounded(a * b)
    out: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        if len(out) > MAX_TERMS:
            _check_bounds(out)
        for n, d in _terms(b).items():
            key = tuple(sorted(m + n, key=lambda atom: atom.key))
            out[key] = out.get(key, 0) + c * d
    return _poly(out)


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
        return known.get(atom.args[0], _of_atom(atom))
    if atom.op == "scale_f32":
        inner = _substitute(atom.args[0], known, done)
        bits = atom.args[1]
        return _scale_f32(inner, bits) if isinstance(inner, int) else _of_atom(Atom("scale_f32", (inner, bits)))
    return _BUILDERS[atom.op](*(_substitute(x, known, done) for x in atom.args))


def _atom_at(atom: Atom, size: int) -> int:
    if atom.op == "var":
        return size
    if atom.op == "scale_f32":
        return _scale_f32(value_at(atom.args[0], size), atom.args[1])
    return _OPS[atom.op](*(value_at(x, size) for x in atom.args))


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


def _floordiv(a: int, b: int) -> int:
    if b == 0:
        raise ShapeError("a size is divided by zero")
    return a // b


def _mod(a: int, b: int) -> int:
    if b == 0:
        raise ShapeError("a size is divided by zero")
    return a % b


def _broadcast(a: int, b: int) -> int:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ShapeError(f"sizes {a} and {b} do not broadcast")


def _scale_f32(a: int, bits: int) -> int:
    """The product of two float32 is exact in a double, so rounding it once gives the float32 product."""
    (scale,) = struct.unpack("<f", struct.pack("<I", bits))
    (x,) = struct.unpack("<f", struct.pack("<f", _checked(a)))
    product = x * scale
    if not math.isfinite(product) or abs(product) >= LIMIT:
        raise ShapeError(f"a size overflows: {a} scaled by {scale}")
    return math.floor(float(struct.unpack("<f", struct.pack("<f", product))[0]))


_OPS: dict[str, Callable[..., int]] = {
    "var": lambda size: size,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": _floordiv,
    "mod": _mod,
    "ceildiv": lambda a, b: -_floordiv(-a, b),
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "lt": lambda a, b: int(a < b),
    "select": lambda c, a, b: a if c else b,
    "broadcast": _broadcast,
    "scale_f32": _scale_f32,
}
_ARITY = {op: 3 if op == "select" else 2 for op in _OPS if op != "var"}
_BUILDERS: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv, "mod": mod, "ceildiv": ceildiv, "min": minimum, "max": maximum,
    "eq": eq, "lt": lt, "select": select, "broadcast": broadcast,
}  # fmt: skip
