"""How the matrices of a product's operand lie among its elements: one after another, or as a view has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Operand, Shape, Window, strides
from webrt.ops.vectors import kind
from webrt.ops.view import View, move


@dataclass(frozen=True)
class Matrices:
    """Element (row, column) of matrix z is element first + Σ zᵢ·stepsᵢ + row·line + column of the operand; or, where
    it is `turned`, first + Σ zᵢ·stepsᵢ + column·line + row. `starts`: what is a multiple of 4 where all lines start at
    one."""

    line: Dim
    steps: Shape
    first: Dim = 0
    turned: bool = False
    starts: Shape = ()

    @staticmethod
    def whole(batch: Sequence[Dim], rows: Dim, columns: Dim) -> Matrices:
        """All elements in order."""
        steps = tuple(D.mul(x, D.mul(rows, columns)) for x in strides(batch))
        return Matrices(columns, steps, starts=(columns,))

    @staticmethod
    def of(view: View) -> Matrices:
        """Those of a view [*batch, rows, columns]. Raises UnsupportedOp where neither rows nor columns are whole."""
        (*_, columns), (*steps, row, column) = view.shape, view.strides
        if not in_lines(view):
            raise UnsupportedOp("a product of matrices whose elements are apart along both axes")
        turned = column != 1 and (row == 1 or columns != 1)
        line = column if turned else row
        return Matrices(line, tuple(steps), view.offset, turned, (line, view.offset, *steps))


def in_lines(view: View) -> bool:
    """Whether the rows or the columns of a view [*batch, rows, columns] are neighbours each."""
    return 1 in view.strides[-2:] or 1 in view.shape[-2:]


def operand_shape(n: Node, index: int) -> Shape:
    """The shape of a node's operand, which may be a view of its input."""
    return n.views[index].shape if index in n.views else n.input(index).known_shape


def operand(b: Builder, n: Node, index: int, swap: bool) -> tuple[Value, View | None]:
    """The operand of a node, with its last two axes exchanged if `swap`: a value that is it, or how it is a view of
    one."""
    view, v = n.views.get(index), n.input(index)
    if not swap or len(operand_shape(n, index)) < 2:
        return v, view
    if view is None and v.const is not None:
        return transposed(b, v), None
    return v, turned(View.of(v.known_shape) if view is None else view)


def transposed(b: Builder, v: Operand, shape: Shape | None = None) -> Value:
    """The value (seen as `shape`) with its last two axes exchanged: a constant, or a temporary that is filled first."""
    *lead, rows, columns = shape or (v.value if isinstance(v, Window) else v).known_shape
    if isinstance(v, Value) and v.const is not None:
        seen = v.const if shape is None else v.const.reshape([int(str(d)) for d in shape])
        return b.constant(np.swapaxes(seen, -1, -2), v.dtype)
    out = b.temp(kind(v), (*lead, columns, rows))
    move(b, out, v, turned(View.of((*lead, rows, columns))), "transpose_last")
    return out


def turned(view: View) -> View:
    """The view with its last two axes exchanged."""
    rank = len(view.shape)
    return view.permute([*range(rank - 2), rank - 1, rank - 2])


def as_rows(view: View) -> View | None:
    """A view [*batch, rows, columns] as one matrix [batch · rows, columns]; None where it is no such."""
    lead = View(view.shape[:-1], view.strides[:-1]).collapsed()
    if len(lead.shape) > 1:
        return None
    size, step = (lead.shape or (1,))[0], (lead.strides or (0,))[0]
    return View((size, view.shape[-1]), (step, view.strides[-1]), view.offset)


def batch_axes(batch: Shape, a: Matrices, a_batch: Shape, b: Matrices, b_batch: Shape) -> list[tuple[Dim, Dim, Dim]]:
    """(size, elements from one step to the next in a, in b) per axis; axes are merged where both sides allow it."""
    axes: list[tuple[Dim, Dim, Dim]] = []
    for size, a_size, a_step, b_size, b_step in zip(batch, a_batch, a.steps, b_batch, b.steps, strict=True):
        if size == 1:
            continue
        step_a, step_b = _step(size, a_size, a_step), _step(size, b_size, b_step)
        if axes and axes[-1][1] == D.mul(size, step_a) and axes[-1][2] == D.mul(size, step_b):
            axes[-1] = (D.mul(axes[-1][0], size), step_a, step_b)
        else:
            axes.append((size, step_a, step_b))
    return axes or [(1, 0, 0)]


def _step(size: Dim, own: Dim, step: Dim) -> Dim:
    """0 where the operand has one matrix for all of the axis; known at the run where `own` is symbolic."""
    return step if own == size else D.select(D.eq(own, 1), 0, step)


def batch_offsets(axes: int, shifted: bool) -> str:
    """`batch_offsets(z)`: where a's and b's matrices of the result's matrix z start. `shifted`: with the elements
    a_first and b_first before them. Of a window of b that is where the whole would start: the difference wraps around,
    and the sum with a row's place in the whole is right again."""
    lines = [
        f"at += rest % p.size_{i} * vec2<u32>(p.a_{i}, p.b_{i}); rest /= p.size_{i};" for i in reversed(range(1, axes))
    ]
    return "\n".join(
        ["fn batch_offsets(z: u32) -> vec2<u32> {", "var rest = z; var at = vec2<u32>();", *lines,
         f"return at + rest * vec2<u32>(p.a_0, p.b_0){' + vec2<u32>(p.a_first, p.b_first)' if shifted else ''}; }}"]
    )  # fmt: skip
