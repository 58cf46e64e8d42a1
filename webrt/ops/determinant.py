"""Det: determinants of a stack of square matrices, by elimination in f32."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import Builder, Info, Variant, grid, op, require
from webrt.ops.vectors import finish, through_temp

MAX_SIZE = 52
"""Elimination takes about size³ / 3 turns of a loop, fewer than lowering.MAX_ITERATIONS."""


def _shape(n: Node) -> list[Info]:
    shape = n.input(0).known_shape
    if len(shape) < 2 or D.eq(shape[-1], shape[-2]) == 0:
        raise ShapeError(f"the shape {list(shape)} is no stack of square matrices")
    return [(n.input(0).dtype, shape[:-2])]


@op("Det", since=11, shape=_shape)
def det(n: Node, b: Builder) -> None:
    x, out = n.input(0), n.output()
    require([x], *T.FLOATS)
    size, count = x.known_shape[-1], out.elements
    b.check(D.eq(size, x.known_shape[-2]), f"Det of matrices of {x.known_shape[-2]} × {size}, not square")
    if isinstance(size, int) and size > MAX_SIZE:
        raise UnsupportedOp(f"matrices of {size} rows, more than {MAX_SIZE}")
    b.check(D.le(size, MAX_SIZE), f"Det of matrices of more than {MAX_SIZE} rows")
    work = b.temp(T.F32, x.known_shape)
    b.map(work, "return load_x(i);", reads={"x": x}, name="widen")
    written = through_temp(b, out)
    b.launch(
        Variant("determinant", grid(count)), reads={}, writes={"out": written, "work": work},
        params={"count": count, "size": size}, name="determinant",
    )  # fmt: skip
    finish(b, written, out, "determinant")
