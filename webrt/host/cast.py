"""Conversions between element types."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from webrt.errors import InvalidModel, UnsupportedType
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_narrow, np_dtype, type_code

_FLOAT8 = frozenset(
    {TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ}
)
_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def cast(x: Array, to: int, saturate: bool = True, round_mode: str = "up") -> Array:
    """x as another element type, by the rules of ONNX's Cast. A value that the type cannot hold is undefined there."""
    if to == TensorProto.STRING:
        return x if x.dtype == object else _to_string(x)
    dtype = np_dtype(to)
    if x.dtype.kind in "OUS":
        return _from_string(x, to, saturate)
    if to in _FLOAT8 and saturate:
        return np.asarray(onnx.numpy_helper.saturate_cast(x, dtype))
    if to == TensorProto.FLOAT8E8M0:
        return _power(x.astype(np.float32), saturate, round_mode).view(dtype)
    if is_narrow(x.dtype) and dtype.kind in "iu" and dtype.itemsize == 8:
        x = x.astype(np.float32)
    return x.astype(dtype)


def _power(x: Array, saturate: bool, round_mode: str) -> Array:
    """The bits of |x| as float8e8m0, a power of two in 2^-127 … 2^127; what lies beyond saturates or is NaN (255).

    By the tables of ONNX's Cast, from which onnx.numpy_helper.to_float8e8m0 deviates for 0, infinity and 2^-127."""
    if round_mode not in ("up", "down", "nearest"):
        raise InvalidModel(f"round_mode is {round_mode!r}; ONNX has up, down and nearest")
    a = np.abs(x)
    fraction, exponent = np.frexp(np.where(np.isfinite(a), a, 1.0))  # 0.5 ≤ fraction < 1, so 0.75 is the middle
    least = {"up": np.float32(0.5), "down": np.float32(1), "nearest": np.float32(np.nextafter(np.float32(0.75), 0))}
    power = exponent - 1 + (fraction > least[round_mode])
    low, high = a < np.float32(2.0**-127), a > np.float32(2.0**127)
    power = np.where(high, 127 if saturate else 128, np.where(low, -127 if saturate else 128, power))
    return np.where(np.isnan(a), 255, power + 127).astype(np.uint8)


def _to_string(x: Array) -> Array:
    if x.dtype.kind == "V":
        raise UnsupportedType(f"no text form of {x.dtype}; cast to float32 first")
    text = (x.astype(np.float32) if is_narrow(x.dtype) and x.dtype != np.float16 else x).astype(np.str_)
    words = [_SPECIAL.get(t, t) for t in text.reshape(-1).tolist()]
    result = np.empty(len(words), dtype=object)
    result[:] = words
    return result.reshape(x.shape)


def _from_string(x: Array, to: int, saturate: bool) -> Array:
    dtype = np_dtype(to)
    words = x.reshape(-1).tolist()
    try:
        if dtype.kind in "iu":
            numbers = np.array([_integer(w) for w in words], dtype=object)
        elif dtype.kind == "b":
            numbers = np.array([float(w) != 0 for w in words], dtype=bool)
        else:
            numbers = np.array([float(w) for w in words], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"a string is no number ({error})") from None
    if numbers.dtype.kind == "f" and is_narrow(dtype):
        return cast(numbers.astype(np.float32), to, saturate).reshape(x.shape)
    return numbers.astype(dtype).reshape(x.shape)


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        return int(float(word))


@op("Cast")
def cast_op(call: Call, x: Array) -> Array:
    """x as the type that `to` names."""
    to = call.get("to")
    if isinstance(to, str):
        to = TensorProto.DataType.Value(to.upper())
    if to is None:
        raise InvalidModel("Cast needs the attribute 'to'; re-export the model")
    return cast(x, int(to), bool(call.get("saturate", 1)), str(call.get("round_mode", "up")))


@op("CastLike")
def cast_like(call: Call, x: Array, like: Array) -> Array:
    """x as the type of the second input."""
    saturate, mode = bool(call.get("saturate", 1)), str(call.get("round_mode", "up"))
    return cast(x, type_code(like.dtype), saturate, mode)


@op("BitCast")
def bit_cast(call: Call, x: Array) -> Array:
    """The bits of x read as another type of the same width."""
    dtype = np_dtype(call.integer("to"))
    if "O" in (dtype.kind, x.dtype.kind) or dtype.itemsize != x.dtype.itemsize:
        raise UnsupportedType(f"cannot read the bits of {x.dtype} as {dtype}; both must have the same width")
    return np.ascontiguousarray(x).reshape(x.shape).view(dtype)
