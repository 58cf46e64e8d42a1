"""Softmax and its kin, in both meanings: below opset 13 the tensor is seen as a matrix split at `axis`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide


def softmax(x: Array, axis: int = -1) -> Array:
    """e^x over its sum along an axis, shifted by the largest element."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of softmax, without passing through it."""
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def hardmax(x: Array, axis: int = -1) -> Array:
    """One at the first largest element along an axis, zero elsewhere."""
    result = np.zeros_like(x)
    if x.size:
        np.put_along_axis(result, np.expand_dims(np.argmax(x, axis=axis), axis), 1, axis)
    return result


def _register(name: str, function: Callable[[Array, int], Array]) -> None:
    @op(name, until=13)
    def as_matrix(call: Call, x: Array) -> Array:
        axis = normal_axis(call.integer("axis"), x.ndim) if call.integer("axis") != x.ndim else x.ndim
        rows = int(np.prod(x.shape[:axis]))
        if not x.size:
            return x
        return function(wide(x).reshape(rows, -1), 1).reshape(x.shape).astype(x.dtype)

    @op(name, since=13)
    def along_axis(call: Call, x: Array) -> Array:
        axis = normal_axis(call.integer("axis"), x.ndim)
        return function(wide(x), axis).astype(x.dtype) if x.size else x


for _name, _function in {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}.items():
    _register(_name, _function)
