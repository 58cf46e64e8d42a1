"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: per tensor, per axis, blocked; ties, saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
TYPES = ["int8", "uint8", "int16", "uint16"]
CODES = {"int8": 3, "uint8": 2, "int16": 5, "uint16": 4}


def quantized(x: Array, scale: Array | float, zero: Array | int, dtype: str) -> Array:
    info = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + np.asarray(zero, np.float64), info.min, info.max).astype(dtype)


def some(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("constants", [[], [1, 2]])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7,), (), (0, 3)])
def test_per_tensor(dtype: str, constants: list[int], shape: tuple[int, ...]) -> None:
    x = np.asarray(RNG.standard_normal(shape) * 300, np.float32)
    scale, zero = np.float32(2.5), some(dtype)
    want = quantized(x, scale, zero, dtype)
    check_node("QuantizeLinear", [x, scale, zero], opset=21, constants=constants, expected=[want])
    q = some(dtype, *shape)
    back = ((q.astype(np.int32) - zero.astype(np.int32)) * scale).astype(np.float32)
    check_node("DequantizeLinear", [q, scale, zero], opset=21, constants=constants, expected=[back])


def test_ties_go_to_even_and_the_rest_saturates() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 126.5, 127.5], np.float32)
    want = np.array([0, 2, 2, 0, -2, 127, -128, 127, -128, -128, 126, 127], np.int8)
    check_node("QuantizeLinear", [x, np.float32(1), np.int8(0)], opset=13, expected=[want])


def about_ties(scale: np.float32) -> Array:
    """The f32 about each multiple of half a scale, and what saturates."""
    steps = [np.asarray(np.arange(-516, 517) * (float(scale) / 2), np.float32)]
    for towards in (np.float32(np.inf), np.float32(-np.inf)):
        for _ in range(4):
            steps.append(np.nextafter(steps[-1], towards))
    return np.concatenate([*steps, np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0, -0.0], np.float32)])


@pytest.mark.parametrize(
    "scale", [1.0, 0.1, 1 / 3, 255 / 127, 1 + 2**-23, 1 - 2**-24, 5 + 2**-21, 2.0**-80, 3e25, 1e-33]
)
def test_quotients_are_rounded_before_ties_go_to_even(scale: float) -> None:
    by = np.float32(scale)
    x = about_ties(by)
    for zero in (np.int8(-128), np.int8(3), np.uint8(255), np.uint16(7)):
        info = np.iinfo(zero.dtype)
        with np.errstate(over="ignore"):
            rounded = np.rint(x / by) + np.float64(zero)
        want = np.clip(np.nan_to_num(rounded, nan=info.min), info.min, info.max).astype(zero.dtype)
        check_node("QuantizeLinear", [x, by, zero], opset=13, constants=[1, 2], expected=[want])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis_and_blocked(dtype: str, axis: int) -> None:
    x = (RNG.standard_normal((2, 6, 4)) * 100).astype(np.float32)
    size, blocks = x.shape[axis], -(-x.shape[axis] // 2)
    q = some(dtype, *x.shape)
    shape = list(x.shape)
    shape[axis] = blocks
    for part, attrs in (((size,), {"axis": axis}), (tuple(shape), {"axis": axis, "block_size": 2})):
        scale, zero = RNG.uniform(0.5, 2, part).astype(np.float32), some(dtype, *part)
        check_node("QuantizeLinear", [x, scale, zero], attrs, opset=21)
        check_node("DequantizeLinear", [q, scale, zero], attrs, opset=21, constants=[1, 2])


@pytest.mark.parametrize("dtype", TYPES)
def test_output_type(dtype: str) -> None:
    x = (RNG.standard_normal((3, 7)) * 50).astype(np.float32)
    want = quantized(x, np.float32(0.5), 0, dtype)
    check_node("QuantizeLinear", [x, np.float32(0.5)], {"output_dtype": CODES[dtype]}, opset=21, expected=[want])


def test_every_opset() -> None:
    x, scale, zero = (RNG.standard_normal((3, 7)) * 50).astype(np.float32), np.float32(0.5), np.uint8(7)
    for opset in (10, 13, 19, 21, 23, 24, 25):
        check_node("QuantizeLinear", [x, scale, zero], opset=opset, expected=[quantized(x, scale, zero, "uint8")])
        back = (some("uint8", 3, 7), scale, zero)
        check_node("DequantizeLinear", back, opset=opset, expected=[(back[0].astype(np.float32) - 7) * scale])


def test_the_quotient_has_the_precision_that_is_asked_for() -> None:
    x, scale, zero = (RNG.standard_normal((3, 40)) * 100).astype(np.float16), np.float16(1.7), np.int8(3)
    check_node("QuantizeLinear", [x, scale, zero], opset=21, expected=[quantized(x, scale, zero, "int8")])
    wide = quantized(x.astype(np.float32), np.float32(scale), zero, "int8")
    check_node("QuantizeLinear", [x, scale, zero], {"precision": 1}, opset=23, expected=[wide])


def test_int32() -> None:
    q = RNG.integers(-1000, 1000, (3, 4)).astype(np.int32)
    check_node("DequantizeLinear", [q, np.float32(0.02)], opset=13)
    want = quantized(q, 4.0, 3, "uint8")
    check_node("QuantizeLinear", [q, np.float32(4), np.uint8(3)], opset=13, expected=[want])


@pytest.mark.parametrize("sign", [1, -1, 0])
@pytest.mark.parametrize("shape", [(3, 40), (100, 1000)])
def test_dynamic(sign: int, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    check_node("DynamicQuantizeLinear", [np.abs(x) * sign if sign else x], opset=11, outputs=3)


def test_dynamic_of_zeros() -> None:
    check_node("DynamicQuantizeLinear", [np.zeros((3,), np.float32)], opset=11, outputs=3)
