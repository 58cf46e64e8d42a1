"""Einsum of one or two operands: sums over single letters, transposes and a matrix product.

Repeated letters within an operand, ellipses and more than two operands are left to the CPU provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, op, require, strides
from webrt.ops.product import Product, product
from webrt.ops.reduce import accumulator, sum_fold
from webrt.ops.rows import Rows, fold_rows
from webrt.ops.vectors import kind


@dataclass(frozen=True)
class Equation:
    """The letters of each operand and of the result."""

    terms: tuple[str, ...]
    result: str

    @staticmethod
    def of(text: str) -> Equation:
        """Raises UnsupportedOp for an ellipsis. Without an arrow the result has the letters that occur once, sorted."""
        text = text.replace(" ", "")
        if "." in text:
            raise UnsupportedOp("an Einsum with an ellipsis")
        left, arrow, result = text.partition("->")
        terms = tuple(left.split(","))
        if not arrow:
            result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
        return Equation(terms, result)

    def sizes(self, shapes: Sequence[Shape]) -> dict[str, Dim]:
        """The size of each letter; raises ShapeError for ranks that do not fit, or letters that the result invents."""
        out: dict[str, Dim] = {}
        if len(shapes) != len(self.terms):
            raise ShapeError(f"an Einsum of {len(self.terms)} operands has {len(shapes)}")
        for term, shape in zip(self.terms, shapes):
            if len(term) != len(shape):
                raise ShapeError(f"Einsum gives the letters {term!r} to an operand of rank {len(shape)}")
            for letter, size in zip(term, shape):
                out[letter] = D.broadcast(out.get(letter, 1), size)
        if not set(self.result) <= set(out):
            raise ShapeError(f"Einsum's result has letters that no operand has: {self.result!r}")
        return out


def einsum_shape(n: Node) -> list[Info]:
    x = n.input(0)
    if any(v.shape is None for v in n.given()):
        return [(x.dtype, None)]
    equation = Equation.of(str(n.attr("equation")))
    sizes = equation.sizes([v.known_shape for v in n.given()])
    return [(x.dtype, tuple(sizes[c] for c in equation.result))]


@op("Einsum", since=12, shape=einsum_shape)
def einsum(n: Node, b: Builder) -> None:
    operands = n.given()
    require(operands, T.F32, T.F16, T.BF16, T.I32, T.U32)
    equation = Equation.of(str(n.attr("equation")))
    sizes = equation.sizes([v.known_shape for v in operands])
    if len(operands) > 2 or any(len(set(t)) != len(t) for t in (*equation.terms, equation.result)):
        raise UnsupportedOp("an Einsum with repeated letters or more than two operands")
    for v, term in zip(operands, equation.terms):
        for letter, size in zip(term, v.known_shape):
            if size == 1 != sizes[letter]:
                raise UnsupportedOp("an Einsum that broadcasts")
            if size != sizes[letter]:
                b.check(D.eq(size, sizes[letter]), f"Einsum's {letter!r} has sizes {size} and {sizes[letter]}")
    if len(operands) == 1:
        kept = _without(b, operands[0], equation.terms[0], equation.result)
        _arranged(b, kept[0], kept[1], equation.result, sizes, n.output())
        return
    _pair(b, operands, equation, sizes, n.output())


def _pair(b: Builder, operands: Sequence[Value], equation: Equation, sizes: Mapping[str, Dim], out: Value) -> None:
    """Batch letters are in both operands and the result, those summed over in both operands only."""
    left, right = equation.terms
    a, left = _without(b, operands[0], left, equation.result + right)
    w, right = _without(b, operands[1], right, equation.result + left)
    batch = "".join(c for c in left if c in right and c in equation.result)
    summed = "".join(c for c in left if c in right and c not in equation.result)
    rows = "".join(c for c in left if c not in right)
    columns = "".join(c for c in right if c not in left)
    a = _arranged(b, a, left, batch + rows + summed, sizes)
    w = _arranged(b, w, right, batch + summed + columns, sizes)
    m, k, n, z = (D.prod(sizes[c] for c in letters) for letters in (rows, summed, columns, batch))
    order = batch + rows + columns
    result = out if order == equation.result else b.temp(kind(out), tuple(sizes[c] for c in order))
    lead = (z,) if batch else ()
    product(b, Product(m, n, k, lead, lead, lead), a, w, result, name="einsum")
    if result is not out:
        _arranged(b, result, order, equation.result, sizes, out)


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
    target = out if out is not None else b.temp(kind(v), tuple(sizes[c] for c in want))
    step = dict(zip(have, strides([sizes[c] for c in have])))
    lines = ["var rest = i; var at = 0u;"]
    for k in reversed(range(len(want))):
        lines.append(f"at += rest % p.size_{k} * p.step_{k}; rest /= p.size_{k};")
    params: dict[str, Dim | float] = {f"size_{k}": sizes[c] for k, c in enumerate(want)}
    params |= {f"step_{k}": step[c] for k, c in enumerate(want)}
    b.map(target, "\n".join([*lines, "return load_v(at);"]), reads={"v": v}, params=params, name="einsum_transpose")
    return target
