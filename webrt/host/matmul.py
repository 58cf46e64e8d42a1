"""Matrix products. Narrow floats accumulate in float32; 8-bit integers go through exact float products."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_narrow, wide


def product(a: Array, b: Array) -> Array:
    """numpy's matmul, accumulated wide and returned in a's type; raises ShapeError where inner sizes differ."""
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError("a matrix product takes no scalars; reshape them to [1, 1]")
    inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise ShapeError(f"inner sizes differ: {a.shape[-1]} and {inner}; check the model's shapes")
    return np.asarray(np.matmul(wide(a), wide(b))).astype(a.dtype, copy=False)


def integer_product(a: Array, b: Array) -> Array:
    """The int32 product of integer matrices (values within ±2^16), by floats that hold every partial sum exactly."""
    bound = a.shape[-1] * _largest(a) * _largest(b)
    dtype = np.float32 if bound < 2**24 else np.float64
    if bound >= 2**53:
        return np.asarray(np.matmul(a.astype(np.int64), b.astype(np.int64))).astype(np.int32)
    exact = np.matmul(a.astype(dtype), b.astype(dtype))
    return np.asarray(exact).astype(np.int64).astype(np.int32)


def _largest(x: Array) -> int:
    return max(int(np.max(x, initial=0)), -int(np.min(x, initial=0)))


def centered(x: Array, zero: Array | None, axis: int = -1) -> Array:
    """x minus its zero point as int32; a vector of zero points lies along `axis`."""
    wide_x = x.astype(np.int32)
    if zero is None:
        return wide_x
    z = zero.astype(np.int32)
    if z.ndim == 1 and z.size != 1 and axis != -1:
        z = z.reshape(z.shape + (1,) * (x.ndim - 1 - axis % x.ndim))
    return wide_x - (z.reshape(()) if z.size == 1 else z)


@op("MatMul")
def matmul(call: Call, a: Array, b: Array) -> Array:
    """The product of matrices, batches broadcast."""
    return product(a, b)


@op("Gemm")
def gemm(call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    """alpha A' B' + beta C."""
    a = a.T if call.integer("transA") else a
    b = b.T if call.integer("transB") else b
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(f"cannot multiply {a.shape} by {b.shape}; both must be matrices with equal inner sizes")
    integer = a.dtype.kind in "iu"
    result = np.asarray(np.matmul(wide(a), wide(b)))
    alpha, beta = call.number("alpha"), call.number("beta")
    if alpha != 1:
        result = result * alpha
    if c is not None and beta != 0:
        result = result + (wide(c) * beta if beta != 1 else wide(c))
    if result.shape != (a.shape[0], b.shape[1]):
        raise ShapeError(
            f"C {() if c is None else c.shape} does not broadcast to {(a.shape[0], b.shape[1])}; check its shape"
        )
    return np.trunc(result).astype(a.dtype) if integer else result.astype(a.dtype, copy=False)


@op("MatMulInteger")
def matmul_integer(call: Call, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """The int32 product of 8-bit matrices; a's zero points per row, b's per column."""
    return integer_product(_per_row(a, a_zero), _per_column(b, b_zero))


def _per_row(a: Array, zero: Array | None) -> Array:
    if zero is not None and zero.ndim == 1 and zero.size > 1 and a.ndim > 1:
        zero = zero[:, None]
    return a.astype(np.int32) - _operand(zero)


def _per_column(b: Array, zero: Array | None) -> Array:
    return b.astype(np.int32) - _operand(zero)


def _operand(zero: Array | None) -> Array:
    if zero is None:
        return np.zeros((), np.int32)
    return zero.astype(np.int32).reshape(()) if zero.size == 1 else zero.astype(np.int32)


@op("QLinearMatMul")
def qlinear_matmul(
    call: Call, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array,
    y_zero: Array,
) -> Array:  # fmt: skip
    """The product of quantised matrices, requantised. Scales per tensor, per row of a, or per column of b."""
    exact = integer_product(_per_row(a, a_zero), _per_column(b, b_zero))
    left = wide(a_scale)
    if left.ndim == 1 and left.size > 1 and a.ndim > 1:
        left = left[:, None]
    scale = np.asarray(left * wide(b_scale) / wide(y_scale), np.float32)
    return requantize(exact.astype(np.float32) * (scale.reshape(()) if scale.size == 1 else scale), y_zero)


def requantize(x: Array, zero: Array, dtype: np.dtype[np.generic] | None = None) -> Array:
    """Real steps rounded half to even, moved by the zero point, saturated to its type."""
    target = dtype or zero.dtype
    info = np.iinfo(target)
    z = zero.astype(np.float32)
    return np.asarray(np.clip(np.rint(x) + (z.reshape(()) if z.size == 1 else z), info.min, info.max)).astype(target)


@op("Einsum")
def einsum(call: Call, *inputs: Array) -> Array:
    """Einstein's summation of any number of tensors."""
    equation = call.text("equation").replace(" ", "")
    dtype = inputs[0].dtype
    operands = [wide(x) for x in inputs]
    path = "greedy" if len(operands) > 2 else dtype.kind not in "iu" and not is_narrow(dtype)
    return np.asarray(np.einsum(equation, *operands, optimize=path)).astype(dtype)


@op("Det")
def det(call: Call, x: Array) -> Array:
    """Determinants of square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{x.shape} is no stack of square matrices; the last two sizes must be equal")
    return np.asarray(np.linalg.det(wide(x))).astype(x.dtype)
