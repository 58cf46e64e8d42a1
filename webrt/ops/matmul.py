"""MatMul and com.microsoft's FusedMatMul: numpy's rules for 1-D operands and for broadcasting of the leading axes."""

from __future__ import annotations

from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, broadcast_shapes, op, require
from webrt.ops.matrices import operand
from webrt.ops.product import Product, product
from webrt.ops.vectors import IDENTITY, Epilogue
from webrt.ops.view import View


@dataclass(frozen=True)
class Operands:
    """Sizes of a numpy matmul; `shape` is the result's, without the axes that 1-D operands do not give it."""

    m: Dim
    k: Dim
    n: Dim
    right_k: Dim
    a_batch: Shape
    b_batch: Shape
    shape: Shape

    @property
    def batch(self) -> Shape:
        return broadcast_shapes(self.a_batch, self.b_batch)


def operands(a: Shape, b: Shape) -> Operands:
    """Sizes by numpy's rules; raises ShapeError for scalars and for sizes that are known not to fit."""
    if not a or not b:
        raise ShapeError("a matrix product of a scalar")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    (m, k), (right_k, n) = left[-2:], right[-2:]
    if isinstance(k, int) and isinstance(right_k, int) and k != right_k:
        raise ShapeError(f"a matrix product over {k} and {right_k} elements")
    rank = max(len(left), len(right)) - 2
    a_batch, b_batch = _lead(left[:-2], rank), _lead(right[:-2], rank)
    rows, columns = () if len(a) == 1 else (m,), () if len(b) == 1 else (n,)
    shape = (*broadcast_shapes(a_batch, b_batch), *rows, *columns)
    return Operands(m, k, n, right_k, a_batch, b_batch, shape)


def _lead(batch: Shape, rank: int) -> Shape:
    return (*([1] * (rank - len(batch))), *batch)


def matmul_shape(n: Node) -> list[Info]:
    a, b = n.input(0), n.input(1)
    if a.shape is None or b.shape is None:
        return [(a.dtype, None)]
    return [(a.dtype, operands(a.shape, b.shape).shape)]


def multiply(
    b: Builder, left: Value, right: Value, out: Value, epilogue: Epilogue = IDENTITY, name: str = "matmul",
    views: tuple[View | None, View | None] = (None, None),
) -> None:  # fmt: skip
    """numpy's matmul of two values, or of these views of them."""
    a, w = views
    s = operands(a.shape if a else left.known_shape, w.shape if w else right.known_shape)
    b.check(D.eq(s.k, s.right_k), f"a matrix product over {s.k} and {s.right_k} elements")
    k = s.k if isinstance(s.k, int) else s.right_k
    axes = len(s.batch) + 2
    sizes = Product(
        s.m, s.n, k, s.batch, s.a_batch, s.b_batch, a_view=a and a.of_rank(axes), b_view=w and w.of_rank(axes)
    )
    product(b, sizes, left, right, out, epilogue, name)


@op("MatMul", shape=matmul_shape)
def matmul(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0), n.input(1)], T.F32, T.F16, T.BF16, T.I32, T.U32)
    multiply(b, n.input(0), n.input(1), n.output(0), epilogue, views=(n.views.get(0), n.views.get(1)))


def _turned(shape: Shape, turn: int) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if turn and len(shape) > 1 else shape


def fused_shape(n: Node) -> list[Info]:
    a, b = n.input(0), n.input(1)
    if a.shape is None or b.shape is None:
        return [(a.dtype, None)]
    left, right = _turned(a.shape, n.attr("transA")), _turned(b.shape, n.attr("transB"))
    return [(a.dtype, operands(left, right).shape)]


@op("FusedMatMul", "TransposeMatMul", domain="com.microsoft", shape=fused_shape)
def fused_matmul(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0), n.input(1)], T.F32, T.F16)
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        raise UnsupportedOp("transBatchA and transBatchB")
    left, a = operand(b, n, 0, bool(n.attr("transA")))
    right, w = operand(b, n, 1, bool(n.attr("transB")))
    alpha = float(n.attr("alpha"))
    if alpha != 1.0:
        epilogue = epilogue.following("v * bitcast<f32>(p.alpha)", {"alpha": alpha})
    multiply(b, left, right, n.output(0), epilogue, views=(a, w))
