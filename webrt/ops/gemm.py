"""Gemm: alpha · op(A) · op(B) + beta · C, with C broadcast to the result."""

from __future__ import annotations

from dataclasses import replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, op, require
from webrt.ops.matrices import operand, operand_shape
from webrt.ops.product import Product, product, product_transposed
from webrt.ops.vectors import IDENTITY, Epilogue


def _sizes(n: Node) -> tuple[Dim, Dim, Dim, Dim]:
    """(m, k, k as b has it, n); raises ShapeError unless both are matrices."""
    a, b = operand_shape(n, 0), operand_shape(n, 1)
    if len(a) != 2 or len(b) != 2:
        raise ShapeError(f"Gemm of ranks {len(a)} and {len(b)}, 2 and 2 are needed")
    m, k = reversed(a) if n.attr("transA") else a
    right_k, columns = reversed(b) if n.attr("transB") else b
    return m, k, right_k, columns


def gemm_shape(n: Node) -> list[Info]:
    if n.input(0).shape is None or n.input(1).shape is None:
        return [(n.input(0).dtype, None)]
    m, k, right_k, columns = _sizes(n)
    if n.has(2) and n.input(2).shape is not None and n.input(2).rank > 2:
        raise ShapeError(f"C has rank {n.input(2).rank}, a matrix has rank 2")
    if isinstance(k, int) and isinstance(right_k, int) and k != right_k:
        raise ShapeError(f"Gemm over {k} and {right_k} elements")
    return [(n.input(0).dtype, (m, columns))]


def _step(b: Builder, size: Dim, own: Dim, step: Dim) -> Dim:
    """Elements of C from one row (or column) to the next: 0 where C has only one."""
    if own == size:
        return step
    b.check(D.select(D.eq(own, 1), 1, D.eq(own, size)), f"C of size {own} does not broadcast to {size}")
    return D.select(D.eq(own, 1), 0, step)


def scaled_sum(
    b: Builder, c: Value | None, shape: Shape, alpha: float, beta: float, then: Epilogue = IDENTITY
) -> Epilogue:
    """alpha · v + beta · C before `then`; a factor of 1 is left out."""
    scaled, params = _scaled("alpha", alpha, "v")
    if c is None or beta == 0.0:
        return then.following(scaled, params) if params else then
    rows, columns = (1, 1, *c.known_shape)[-2:]
    if rows == 1 and columns == shape[1]:
        term, more = _scaled("beta", beta, "load_c(i % p.n)")
        return then.following(f"{scaled} + {term}", {**params, **more}, c=c)
    term, more = _scaled("beta", beta, "load_c(i / p.n * p.c_row + i % p.n * p.c_column)")
    steps = {"c_row": _step(b, shape[0], rows, columns), "c_column": _step(b, shape[1], columns, 1)}
    return then.following(f"{scaled} + {term}", {**params, **more, **steps}, c=c)


def _scaled(name: str, factor: float, term: str) -> tuple[str, dict[str, Dim | float]]:
    return (term, {}) if factor == 1.0 else (f"bitcast<f32>(p.{name}) * {term}", {name: factor})


@op("Gemm", shape=gemm_shape)
def gemm(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require(n.given(), T.F32, T.F16, T.BF16, T.I32, T.U32)
    m, k, right_k, columns = _sizes(n)
    b.check(D.eq(k, right_k), f"Gemm over {k} and {right_k} elements")
    left, a_view = operand(b, n, 0, bool(n.attr("transA")))
    c = n.input(2) if n.has(2) else None
    alpha, beta = float(n.attr("alpha")), float(n.attr("beta"))
    if n.input(0).dtype not in T.FLOATS and (alpha != 1.0 or beta not in (0.0, 1.0)):
        raise UnsupportedOp("a Gemm of integers that is scaled")
    epilogue = scaled_sum(b, c, (m, columns), alpha, beta, epilogue)
    sizes = Product(m, columns, k if isinstance(k, int) else right_k, a_view=a_view)
    if n.attr("transB") and 1 not in n.views:
        product_transposed(b, sizes, left, n.input(1), n.output(0), epilogue, "gemm")
        return
    right, b_view = operand(b, n, 1, bool(n.attr("transB")))
    product(b, replace(sizes, b_view=b_view), left, right, n.output(0), epilogue, "gemm")
