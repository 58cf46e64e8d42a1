"""MatMul and com.microsoft's FusedMatMul: numpy's rules for 1-D operands and for broadcasting of the leading axes."""

from __future__ import annotations

from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, broadcast_shapes, op, require
from webrt.ops.product import Product, product, transposed
from webrt.ops.vectors import IDENTITY, Epilogue


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
    b: Builder, left: Value, right: Value, out: Value, epilogue: Epilogue = IDENTITY, name: str = "matmul"
) -> None:
    """numpy's matmul of two values."""
    s = operands(left.known_shape, right.known_shape)
    b.check(D.eq(s.k, s.right_k), f"a matrix product over {s.k} and {s.right_k} elements")
    k = s.k if isinstance(s.k, int) else s.right_k
    product(b, Product(s.m, s.n, k, s.batch, s.a_batch, s.b_batch), left, right, out, epilogue, name)


@op("MatMul", shape=matmul_shape)
def matmul(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0), n.input(1)], T.F32, T.F16, T.BF16, T.I32, T.U32)
    multiply(b, n.input(0), n.input(1), n.output(0), epilogue)


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
    left, right = (
        transposed(b, v) if n.attr(f"trans{x}") and v.rank > 1 else v for x, v in (("A", n.input(0)), ("B", n.input(1)))
    )
    alpha = float(n.attr("alpha"))
    if alpha != 1.0:
        epilogue = epilogue.following("v * bitcast<f32>(p.alpha)", {"alpha": alpha})
    multiply(b, left, right, n.output(0), epilogue)
