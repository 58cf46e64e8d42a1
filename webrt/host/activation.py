"""Activation functions. Narrow floats are computed in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webrt.host.elementwise import erf
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x) without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + e), e / (1 + e))).astype(x.dtype, copy=False)


def gelu(x: Array) -> Array:
    """x Φ(x), by the error function."""
    return np.asarray(x * 0.5 * (1 + erf(x * np.asarray(np.sqrt(0.5), x.dtype)))).astype(x.dtype, copy=False)


def gelu_tanh(x: Array) -> Array:
    """x Φ(x), by the approximation of Hendrycks and Gimpel."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + np.tanh(inner))).astype(x.dtype, copy=False)


def softplus(x: Array) -> Array:
    """log(1 + e^x) without overflow."""
    return np.asarray(np.logaddexp(np.zeros((), x.dtype), x))


def _negative(x: Array, part: Array) -> Array:
    return np.where(x > 0, x, part)


_SIMPLE: dict[str, Callable[[Call, Array], Array]] = {
    "Relu": lambda c, x: np.maximum(x, np.zeros((), x.dtype)),
    "Sigmoid": lambda c, x: sigmoid(x),
    "LeakyRelu": lambda c, x: np.where(x < 0, x * c.number("alpha"), x),
    "ThresholdedRelu": lambda c, x: np.where(x > c.number("alpha"), x, 0),
    "Elu": lambda c, x: _negative(x, c.number("alpha") * np.expm1(x)),
    "Selu": lambda c, x: c.number("gamma") * _negative(x, c.number("alpha") * np.expm1(x)),
    "Celu": lambda c, x: _celu(x, c.number("alpha")),
    "HardSigmoid": lambda c, x: np.clip(x * c.number("alpha") + c.number("beta"), 0, 1),
    "HardSwish": lambda c, x: x * np.clip(x * np.asarray(1 / 6, x.dtype) + 0.5, 0, 1),
    "Softplus": lambda c, x: softplus(x),
    "Softsign": lambda c, x: x / (1 + np.abs(x)),
    "Mish": lambda c, x: x * np.tanh(softplus(x)),
    "Swish": lambda c, x: x * sigmoid(np.asarray(x * c.number("alpha"))),
    "Gelu": lambda c, x: gelu_tanh(x) if c.text("approximate") == "tanh" else gelu(x),
}


def _celu(x: Array, alpha: float) -> Array:
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)))


def _register(name: str, function: Callable[[Call, Array], Array]) -> None:
    @op(name)
    def run(call: Call, x: Array) -> Array:
        return np.asarray(function(call, wide(x))).astype(x.dtype, copy=False)


for _name, _function in _SIMPLE.items():
    _register(_name, _function)


@op("Shrink")
def shrink(call: Call, x: Array) -> Array:
    """x moved toward zero by `bias` outside ±lambd, zero inside."""
    bias, limit = call.number("bias"), call.number("lambd")
    w = wide(x) if x.dtype.kind not in "iu" else x.astype(np.float64)
    return np.where(w < -limit, w + bias, np.where(w > limit, w - bias, 0)).astype(x.dtype)


@op("PRelu")
def prelu(call: Call, x: Array, slope: Array) -> Array:
    """x, times the slope where negative; below opset 7 a slope of one dimension belongs to the channels."""
    if call.opset < 7 and slope.ndim == 1 and x.ndim > 2 and slope.size > 1:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    w = wide(x)
    return np.where(w < 0, w * wide(slope), w).astype(x.dtype)


@op("SwiGLU")
def swiglu(call: Call, a: Array, b: Array) -> Array:
    """Swish of a, times b; equal shapes."""
    if a.shape != b.shape:
        raise ValueError(f"A {a.shape} and B {b.shape} must have one shape")
    w = wide(a)
    gate = (w * sigmoid(np.asarray(w * call.number("alpha", 1.0)))).astype(a.dtype)
    return (gate * b).astype(a.dtype)
