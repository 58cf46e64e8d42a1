"""Arithmetic, comparison, logic and bits, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_narrow, wide

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def aligned(call: Call, a: Array, b: Array) -> tuple[Array, Array]:
    """Operands ready for numpy's broadcasting; below opset 7 `axis` says where b's first dimension belongs."""
    if call.opset < 7 and call.get("broadcast", 0) and b.ndim:
        axis = call.integer("axis", a.ndim - b.ndim) % max(a.ndim, 1)
        b = b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))
    return a, b


def _register_unary(name: str, function: Unary) -> None:
    @op(name)
    def run(call: Call, x: Array) -> Array:
        return np.asarray(function(wide(x))).astype(x.dtype, copy=False)


def _round(x: Array) -> Array:
    return np.rint(x) if x.dtype.kind == "f" else x


def _reciprocal(x: Array) -> Array:
    return np.asarray(1 / x, dtype=x.dtype)


_erf_table = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function, in the type of x; large float32 tensors by Eigen's rational approximation (within 4e-7)."""
    if x.dtype != np.float32 or x.size < 64:
        return np.asarray(_erf_table(x)).astype(x.dtype)
    clipped = np.clip(x, -4, 4)
    square = clipped * clipped
    return np.asarray(clipped * _horner(square, _ERF_OVER) / _horner(square, _ERF_UNDER))


_ERF_OVER = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_UNDER = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    result = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        result *= x
        result += np.float32(c)
    return result


_UNARY: dict[str, Unary] = {
    "Abs": np.abs, "Neg": np.negative, "Ceil": np.ceil, "Floor": np.floor, "Round": _round, "Sign": np.sign,
    "Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Reciprocal": _reciprocal, "Sin": np.sin, "Cos": np.cos,
    "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh,
    "Tanh": np.tanh, "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh, "Erf": erf,
    "BitwiseNot": np.bitwise_not, "Not": np.logical_not,
}  # fmt: skip
for _name, _function in _UNARY.items():
    _register_unary(_name, _function)


@op("IsNaN")
def is_nan(call: Call, x: Array) -> Array:
    """Where x is NaN; false in types that have none."""
    return np.isnan(wide(x))


@op("IsInf")
def is_inf(call: Call, x: Array) -> Array:
    """Where x is an infinity of a sign that the attributes ask for."""
    w = wide(x)
    negative, positive = call.integer("detect_negative"), call.integer("detect_positive")
    return np.asarray(np.isinf(w) & (((w < 0) & bool(negative)) | ((w > 0) & bool(positive))))


def _register_binary(name: str, function: Binary) -> None:
    @op(name)
    def run(call: Call, a: Array, b: Array) -> Array:
        a, b = aligned(call, a, b)
        return np.asarray(function(a, b)).astype(a.dtype, copy=False)


def _register_test(name: str, function: Binary) -> None:
    @op(name)
    def run(call: Call, a: Array, b: Array) -> Array:
        a, b = aligned(call, a, b)
        return np.asarray(function(a, b)).astype(np.bool_, copy=False)


def divide(a: Array, b: Array) -> Array:
    """a / b; integers are truncated toward zero, and an integer zero as divisor is an error."""
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if not b.all():
        raise ZeroDivisionError("integer division by zero")
    quotient, remainder = np.divmod(a, b)
    return np.asarray(quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


_BINARY: dict[str, Binary] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": divide, "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
}  # fmt: skip
for _name, _binary in _BINARY.items():
    _register_binary(_name, _binary)

for _name, _test in {
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}.items():  # fmt: skip
    _register_test(_name, _test)


@op("Pow")
def power(call: Call, a: Array, b: Array) -> Array:
    """a to the b, in a's type; an integer base with negative exponents goes through float64."""
    a, b = aligned(call, a, b)
    if a.dtype.kind in "iu" and b.dtype.kind == "i" and bool((b < 0).any()):
        return np.trunc(np.power(a.astype(np.float64), b)).astype(a.dtype)
    if is_narrow(a.dtype) or is_narrow(b.dtype):
        return np.power(wide(a), wide(b)).astype(a.dtype)
    return np.asarray(np.power(a, b)).astype(a.dtype, copy=False)


@op("Mod")
def modulo(call: Call, a: Array, b: Array) -> Array:
    """The remainder with the sign of b, or of a where fmod is set."""
    if a.dtype.kind in "iu" and not b.all():
        raise ZeroDivisionError("integer modulo by zero")
    function = np.fmod if call.integer("fmod") else np.mod
    return np.asarray(function(wide(a), wide(b))).astype(a.dtype, copy=False)


@op("BitShift")
def bit_shift(call: Call, a: Array, b: Array) -> Array:
    """Shifts bits; a shift by the width or more gives 0, or the sign to the right."""
    bits = a.dtype.itemsize * 8
    a, b = np.broadcast_arrays(a, b)
    out, amount = (b < 0) | (b >= bits), np.clip(b, 0, bits - 1).astype(a.dtype)
    if call.text("direction") == "RIGHT":
        return np.asarray(np.where(out, np.where(a < 0, -1, 0).astype(a.dtype), np.right_shift(a, amount)))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    shifted = np.left_shift(a.astype(unsigned), amount.astype(unsigned)).astype(a.dtype)
    return np.where(out, np.zeros((), a.dtype), shifted)


def _register_variadic(name: str, function: Binary) -> None:
    @op(name)
    def run(call: Call, first: Array, *rest: Array) -> Array:
        result = wide(first)
        for x in rest:
            result = np.asarray(function(result, wide(x)))
        return result.astype(first.dtype, copy=not rest)


for _name, _binary in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    _register_variadic(_name, _binary)


@op("Mean")
def mean(call: Call, first: Array, *rest: Array) -> Array:
    """The mean of the inputs, broadcast against each other."""
    total = wide(first)
    for x in rest:
        total = np.asarray(total + wide(x))
    return (total / (1 + len(rest))).astype(first.dtype)


@op("Where")
def where(call: Call, condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y."""
    return np.asarray(np.where(condition, x, y)).astype(x.dtype, copy=False)


@op("Clip", since=6, until=11)
def clip_attributes(call: Call, x: Array) -> Array:
    """x limited by attributes."""
    return _clip(x, np.asarray(call.number("min")), np.asarray(call.number("max")))


@op("Clip", since=11)
def clip(call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """x limited by inputs; the upper limit wins where they cross."""
    for limit in (low, high):
        if limit is not None and limit.size != 1:
            raise ShapeError("min and max must be scalars; reshape them")
    return _clip(x, low, high)


def _clip(x: Array, low: Array | None, high: Array | None) -> Array:
    result = wide(x)
    if low is not None:
        result = np.maximum(result, low.reshape(()).astype(result.dtype))
    if high is not None:
        result = np.minimum(result, high.reshape(()).astype(result.dtype))
    return np.asarray(result).astype(x.dtype, copy=False)
