"""Einsum: sums over single letters, transposes and matrix products of two operands at a time; a plain walk over all
letters where an operand repeats one or broadcasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Info, Operand, Shape, op, require, strides
from webrt.ops.matrices import in_lines
from webrt.ops.product import Product, product
from webrt.ops.reduce import accumulator, sum_fold
from webrt.ops.rows import Rows, fold_rows
from webrt.ops.vectors import kind
from webrt.ops.view import View

ELLIPSIS = "0123456789"
"""Stand for the axes of an ellipsis, from the last one on: digits are no letters of an equation."""


@dataclass(frozen=True)
class Equation:
    """The letters of each operand and of the result; the axes of an ellipsis are digits."""

    terms: tuple[str, ...]
    result: str

    @staticmethod
    def of(text: str, ranks: Sequence[int]) -> Equation:
        """Without an arrow the result has the ellipsis's axes, then the letters that occur once, sorted.

        Raises ShapeError where operands are missing, or have fewer axes than letters."""
        left, arrow, result = text.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(ranks) != len(terms):
            raise ShapeError(f"an Einsum of {len(terms)} operands has {len(ranks)}")
        widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
        for term, rank, width in zip(terms, ranks, widths):
            if width < 0 or (width and "..." not in term) or width > len(ELLIPSIS):
                raise ShapeError(f"Einsum gives the letters {term!r} to an operand of rank {rank}")
        most = max((w for t, w in zip(terms, widths) if "..." in t), default=0)
        if not arrow:
            once = sorted(c for c in set(left) - {",", "."} if left.count(c) == 1)
            result = f"...{''.join(once)}"
        plain = tuple(t.replace("...", _axes(w)) for t, w in zip(terms, widths))
        return Equation(plain, result.replace("...", _axes(most)))

    def sizes(self, shapes: Sequence[Shape]) -> dict[str, Dim]:
        """The size of each letter; raises ShapeError for letters that the result invents or repeats."""
        out: dict[str, Dim] = {}
        for term, shape in zip(self.terms, shapes):
            for letter, size in zip(term, shape):
                out[letter] = D.broadcast(out.get(letter, 1), size)
        if not set(self.result) <= set(out):
            raise ShapeError(f"Einsum's result has letters that no operand has: {self.result!r}")
        if len(set(self.result)) != len(self.result):
            raise ShapeError(f"Einsum's result repeats a letter: {self.result!r}")
        return out


def _axes(count: int) -> str:
    return ELLIPSIS[:count][::-1]


def _equation(n: Node) -> Equation:
    return Equation.of(str(n.attr("equation")), [v.rank for v in n.given()])


def einsum_shape(n: Node) -> list[Info]:
    x = n.input(0)
    if any(v.shape is None for v in n.given()):
        return [(x.dtype, None)]
    equation = _equation(n)
    sizes = equation.sizes([v.known_shape for v in n.given()])
    return [(x.dtype, tuple(sizes[c] for c in equation.result))]


@op("Einsum", since=12, shape=einsum_shape)
def einsum(n: Node, b: Builder) -> None:
    operands = n.given()
    require(operands, T.F32, T.F16, T.BF16, T.I32, T.U32)
    equation = _equation(n)
    sizes = equation.sizes([v.known_shape for v in operands])
    spread = False
    for v, term in zip(operands, equation.terms):
        for letter, size in zip(term, v.known_shape):
            same = size == sizes[letter]
            spread |= not same and (size == 1 or letter in ELLIPSIS)
            if not same and size != 1 and letter not in ELLIPSIS:
                b.check(D.eq(size, sizes[letter]), f"Einsum's {letter!r} has sizes {size} and {sizes[letter]}")
    if spread or any(len(set(t)) != len(t) for t in equation.terms):
        _walk(b, operands, equation, sizes, n.output())
    elif len(operands) == 1:
        kept = _without(b, operands[0], equation.terms[0], equation.result)
        _arranged(b, kept[0], kept[1], equation.result, sizes, n.output())
    else:
        _pairs(b, operands, equation, sizes, n.output())


def _pairs(b: Builder, operands: Sequence[Value], equation: Equation, sizes: Mapping[str, Dim], out: Value) -> None:
    """From left to right; what two give has the letters that the result or a later operand has."""
    value, letters = operands[0], equation.terms[0]
    for i, (other, term) in enumerate(zip(operands[1:-1], equation.terms[1:-1]), 2):
        later = {*equation.result, *"".join(equation.terms[i:])}
        made = "".join(c for c in dict.fromkeys(letters + term) if c in later)
        between = b.temp(kind(out), tuple(sizes[c] for c in made))
        _pair(b, [value, other], Equation((letters, term), made), sizes, between)
        value, letters = between, made
    _pair(b, [value, operands[-1]], Equation((letters, equation.terms[-1]), equation.result), sizes, out)


def _walk(b: Builder, operands: Sequence[Value], equation: Equation, sizes: Mapping[str, Dim], out: Value) -> None:
    """Repeated letters and sizes that broadcast: each element of the result sums over all other letters itself."""
    summed = "".join(c for c in dict.fromkeys("".join(equation.terms)) if c not in equation.result)
    terms = D.prod(sizes[c] for c in summed)
    if isinstance(terms, int) and terms >= MAX_ITERATIONS:
        raise UnsupportedOp(f"an Einsum with repeated letters or broadcasting that sums {terms} terms")
    b.check(D.lt(terms, MAX_ITERATIONS), f"an Einsum with repeated letters sums {MAX_ITERATIONS} terms or more")
    order = equation.result + summed
    params: dict[str, Dim | float] = {"terms": terms, **{f"n{k}": sizes[c] for k, c in enumerate(order)}}
    reads, products = dict[str, Operand](), list[str]()
    for i, (v, term) in enumerate(zip(operands, equation.terms)):
        at = ["0u"]
        for a, (letter, size, step) in enumerate(zip(term, v.known_shape, strides(v.known_shape))):
            params[f"o{i}_{a}"] = step if size == sizes[letter] else D.select(D.eq(size, 1), 0, step)
            at.append(f"c{order.index(letter)} * p.o{i}_{a}")
        reads[f"v{i}"] = v
        products.append(f"load_v{i}({' + '.join(at)})")
    lines = [_digits("i", range(len(equation.result)))]
    body = _digits("s", range(len(equation.result), len(order)))
    acc = {"f32": "0.0", "i32": "0i", "u32": "0u"}[accumulator(out.dtype).wgsl]
    lines.append(f"var sum = {acc};\nfor (var s = 0u; s < p.terms; s += 1u) {{\n{body}")
    lines.append(f"sum += {' * '.join(products)};\n}}\nreturn sum;")
    b.map(out, "\n".join(lines), reads=reads, params=params, name="einsum_walk")


def _digits(number: str, letters: range) -> str:
    """c{k} of the letters, the last of which counts fastest, from the number of an element."""
    lines = [f"var r{number} = {number};"]
    lines += [f"let c{k} = r{number} % p.n{k}; r{number} /= p.n{k};" for k in reversed(letters)]
    return "\n".join(lines)


def _pair(b: Builder, operands: Sequence[Value], equation: Equation, sizes: Mapping[str, Dim], out: Value) -> None:
    """Batch letters are in both operands and the result, those summed over in both operands only."""
    left, right = equation.terms
    a, left = _without(b, operands[0], left, equation.result + right)
    w, right = _without(b, operands[1], right, equation.result + left)
    batch = "".join(c for c in left if c in right and c in equation.result)
    summed = "".join(c for c in left if c in right and c not in equation.result)
    rows = "".join(c for c in left if c not in right)
    columns = "".join(c for c in right if c not in left)
    a, a_view = _matrices(b, a, left, (batch, rows, summed), sizes)
    w, b_view = _matrices(b, w, right, (batch, summed, columns), sizes)
    m, k, n = (D.prod(sizes[c] for c in letters) for letters in (rows, summed, columns))
    order = batch + rows + columns
    result = out if order == equation.result else b.temp(kind(out), tuple(sizes[c] for c in order))
    lead = tuple(sizes[c] for c in batch)
    product(b, Product(m, n, k, lead, lead, lead, a_view=a_view, b_view=b_view), a, w, result, name="einsum")
    if result is not out:
        _arranged(b, result, order, equation.result, sizes, out)


def _matrices(
    b: Builder, v: Value, have: str, want: tuple[str, str, str], sizes: Mapping[str, Dim]
) -> tuple[Value, View | None]:
    """The value as matrices of the last two groups of letters, and how they lie in it where it is not moved."""
    order = "".join(want)
    step = dict(zip(have, strides([sizes[c] for c in have])))
    axes = [View(tuple(sizes[c] for c in g), tuple(step[c] for c in g)).collapsed() for g in want[1:]]
    if have != order and v.const is None and all(len(x.shape) < 2 for x in axes) and len(b.windows(v)) == 1:
        pairs = [(sizes[c], step[c]) for c in want[0]] + [((*x.shape, 1)[0], (*x.strides, 0)[0]) for x in axes]
        view = View(tuple(size for size, _ in pairs), tuple(by for _, by in pairs))
        if in_lines(view):
            return v, view
    return _arranged(b, v, have, order, sizes), None


def _without(b: Builder, v: Value, letters: str, used: str) -> tuple[Value, str]:
    """Sums over the letters that nothing else has."""
    gone = [i for i, c in enumerate(letters) if c not in used]
    if not gone:
        return v, letters
    kept = "".join(c for c in letters if c in used)
    out = b.temp(kind(v), tuple(d for i, d in enumerate(v.known_shape) if i not in gone))
    fold_rows(b, out, v, Rows.of(v.known_shape, gone), sum_fold(accumulator(v.dtype), "v"), name="einsum_sum")
    return out, kept


def _arranged(b: Builder, v: Value, have: str, want: str, sizes: Mapping[str, Dim], out: Value | None = None) -> Value:
    """The value with its axes in another order, in `out` where that is given."""
    if have == want:
        if out is not None:
            b.alias(out, v)
        return v
    if v.const is not None and out is None:
        return b.constant(np.ascontiguousarray(v.const.transpose([have.index(c) for c in want])), v.dtype)
    target = out if out is not None else b.temp(kind(v), tuple(sizes[c] for c in want))
    step = dict(zip(have, strides([sizes[c] for c in have])))
    lines = ["var rest = i; var at = 0u;"]
    for k in reversed(range(len(want))):
        lines.append(f"at += rest % p.size_{k} * p.step_{k}; rest /= p.size_{k};")
    params: dict[str, Dim | float] = {f"size_{k}": sizes[c] for k, c in enumerate(want)}
    params |= {f"step_{k}": step[c] for k, c in enumerate(want)}
    b.map(target, "\n".join([*lines, "return load_v(at);"]), reads={"v": v}, params=params, name="einsum_transpose")
    return target
