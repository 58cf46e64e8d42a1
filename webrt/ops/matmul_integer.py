"""MatMulInteger and QLinearMatMul, exact in int32."""

from __future__ import annotations

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op
from webrt.ops.integer import centred, is_scalar, requantize
from webrt.ops.matmul import multiply, operands


def _shape(left: Value, right: Value, dtype: T.DType | None) -> list[Info]:
    known = left.shape is not None and right.shape is not None
    return [(dtype, operands(left.known_shape, right.known_shape).shape if known else None)]


def integer_shape(n: Node) -> list[Info]:
    return _shape(n.input(0), n.input(1), T.I32)


def quantized_shape(n: Node) -> list[Info]:
    return _shape(n.input(0), n.input(3), n.input(7).dtype)


def _products(
    b: Builder, left: Value, right: Value, left_zero: Value | None, right_zero: Value | None, out: Value
) -> None:
    """The int32 product of two quantized tensors."""
    for v, zero in ((left, left_zero), (right, right_zero)):
        if zero is not None and not is_scalar(zero) and (zero.rank != 1 or v.rank < 2):
            raise UnsupportedOp("a zero point for each row of each matrix")
    rows = {"columns": left.known_shape[-1], "rows": (1, *left.known_shape)[-2]}
    a = centred(b, left, left_zero, "i / p.columns % p.rows", rows)
    w = centred(b, right, right_zero, "i % p.columns", {"columns": right.known_shape[-1]})
    multiply(b, a, w, out, name="matmul_integer")


@op("MatMulInteger", shape=integer_shape)
def matmul_integer(n: Node, b: Builder) -> None:
    zeros = [n.input(i) if n.has(i) else None for i in (2, 3)]
    _products(b, n.input(0), n.input(1), zeros[0], zeros[1], n.output(0))


@op("QLinearMatMul", shape=quantized_shape)
def qlinear_matmul(n: Node, b: Builder) -> None:
    left, right, out = n.input(0), n.input(3), n.output(0)
    sums = b.temp(T.I32, out.known_shape)
    _products(b, left, right, n.input(2), n.input(5), sums)
    scales = {"a": (n.input(1), "i / p.columns % p.rows"), "b": (n.input(4), "i % p.columns"), "y": (n.input(6), "0u")}
    if not is_scalar(n.input(6)) or any(not is_scalar(v) and (v.rank != 1 or out.rank < 2) for v, _ in scales.values()):
        raise UnsupportedOp("a scale for each row of each matrix")
    rows: dict[str, Dim] = {"columns": (1, *out.known_shape)[-1], "rows": (1, 1, *out.known_shape)[-2]}
    requantize(b, sums, out, scales, n.input(7), rows)
