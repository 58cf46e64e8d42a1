"""Quantisation: per tensor, per axis, or in blocks along an axis."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from webrt.errors import ShapeError, UnsupportedType
from webrt.host.cast import cast
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_float, np_dtype, wide

_RANGES: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767), TensorProto.UINT4: (0, 15), TensorProto.INT4: (-8, 7),
    TensorProto.UINT2: (0, 3), TensorProto.INT2: (-2, 1), TensorProto.INT32: (-(2**31), 2**31 - 1),
}  # fmt: skip


def spread(parameter: Array, x: Array, axis: int, block: int) -> Array:
    """A scale or zero point in a shape that broadcasts against x: a scalar, a vector along `axis`, or blocks."""
    if parameter.size == 1 and (parameter.ndim < 2 or not block):
        return parameter.reshape(())
    where = normal_axis(axis, x.ndim)
    if block:
        repeated = np.repeat(parameter, block, where)
        if parameter.ndim != x.ndim or repeated.shape[where] < x.shape[where]:
            raise ShapeError(
                f"blocks of {block} in {parameter.shape} do not cover {x.shape}; check block_size and axis"
            )
        return np.asarray(np.take(repeated, np.arange(x.shape[where]), where))
    if parameter.ndim != 1 or parameter.size != x.shape[where]:
        raise ShapeError(f"{parameter.shape} parameters for axis {where} of {x.shape}; one per slice is needed")
    return parameter.reshape(parameter.shape + (1,) * (x.ndim - 1 - where))


@op("QuantizeLinear")
def quantize_linear(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """x / scale rounded half to even, plus the zero point, saturated."""
    axis, block = int(call.get("axis", 1)), int(call.get("block_size", 0))
    to = _target(call, zero)
    steps = _divide(call, x, spread(scale, x, axis, block))
    offset = spread(zero, x, axis, block) if zero is not None else None
    if to in _RANGES:
        low, high = _RANGES[to]
        rounded = np.rint(wide(steps)).astype(np.float64 if to == TensorProto.INT32 else np.float32)
        moved = rounded + offset.astype(rounded.dtype) if offset is not None else rounded
        return np.asarray(np.clip(moved, low, high)).astype(np.int32).astype(np_dtype(to))
    if offset is not None:
        steps = np.asarray(wide(steps) + wide(offset))
    return cast(steps, to, bool(call.get("saturate", 1)))


def _target(call: Call, zero: Array | None) -> int:
    from webrt.host.values import type_code

    declared = int(call.get("output_dtype", 0) or 0)
    if zero is None:
        return declared or TensorProto.UINT8
    found = type_code(zero.dtype)
    if declared not in (0, found):
        raise UnsupportedType(f"output_dtype is {declared}, the zero point's type {found}; they must agree")
    return found


def _divide(call: Call, x: Array, scale: Array) -> Array:
    precision = int(call.get("precision", 0) or 0)
    if precision:
        dtype = np_dtype(precision)
        return np.asarray(x.astype(dtype) / scale.astype(dtype))
    if x.dtype.kind in "iu":
        return np.asarray(x.astype(np.float32) / wide(scale))
    return np.asarray(x / scale) if x.dtype == scale.dtype else np.asarray(wide(x) / wide(scale))


@op("DequantizeLinear")
def dequantize_linear(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """(x - zero point) * scale, in the type of the scale or of `output_dtype`."""
    axis, block = int(call.get("axis", 1)), int(call.get("block_size", 0))
    to = int(call.get("output_dtype", 0) or 0)
    dtype = np_dtype(to) if to else scale.dtype
    factor = wide(spread(scale, x, axis, block))
    if zero is None:
        values = x.astype(np.float32)
    elif is_float(x.dtype):
        values = x.astype(np.float32) - spread(zero, x, axis, block).astype(np.float32)
    else:
        offset = spread(zero, x, axis, block).astype(np.int64)
        values = (x.astype(np.int64) - offset).astype(np.float32)
    return np.asarray(values * factor).astype(dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Array) -> tuple[Array, Array, Array]:
    """x as uint8 with the scale and zero point that cover its range and zero."""
    return dynamic_quantize(x)


def dynamic_quantize(x: Array) -> tuple[Array, Array, Array]:
    """uint8 values, scale and zero point of a float32 tensor, as DynamicQuantizeLinear defines them."""
    low = np.float32(min(0.0, float(np.min(x, initial=0.0))))
    high = np.float32(max(0.0, float(np.max(x, initial=0.0))))
    scale = np.float32((high - low) / np.float32(255)) if high != low else np.float32(1 / 255)
    zero = np.float32(np.rint(np.clip(-low / scale, 0, 255)))
    quantized = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return quantized, np.asarray(scale), np.asarray(zero.astype(np.uint8))
