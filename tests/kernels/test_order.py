"""CumSum, CumProd, TopK and RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(13)
MS = "com.microsoft"


def integers(shape: tuple[int, ...], dtype: str, high: int = 50) -> Array:
    return RNG.integers(0 if dtype[0] == "u" else -high, high, shape).astype(dtype)


def running(x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    y = np.flip(x, axis) if reverse else x
    total = np.cumsum(y, axis=axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    total = total - y if exclusive else total
    return (np.flip(total, axis) if reverse else total).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(dtype: str, exclusive: int, reverse: int) -> None:
    attrs = {"exclusive": exclusive, "reverse": reverse}
    for shape, axis in (((3, 4, 5), 1), ((2, 3, 2, 3, 4), -1), ((3, 600), 1), ((0, 3), 0)):
        x = integers(shape, dtype, 3)
        want = running(x, axis, exclusive, reverse)
        check_node("CumSum", [x, np.int64(axis)], attrs, opset=14, constants=[1], expected=[want])


@pytest.mark.parametrize("shape", [(2, 70_001), (70_001, 2)])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum_beyond_the_loop_limit(shape: tuple[int, ...], reverse: int) -> None:
    x, axis = integers(shape, "int32"), int(shape[0] > 2)
    attrs = {"exclusive": 1, "reverse": reverse}
    want = running(x, 1 - axis, 1, reverse)
    check_node("CumSum", [x, np.int32(1 - axis)], attrs, opset=11, constants=[1], expected=[want])


def test_cumprod() -> None:
    x = (1 + RNG.standard_normal((3, 600)) * 0.02).astype(np.float32)
    want = np.cumprod(x, 1, dtype=np.float64).astype(np.float32)
    check_node("CumProd", [x, np.int64(1)], opset=26, constants=[1], expected=[want])
    y = integers((4, 9), "int64", 9)
    check_node("CumProd", [y, np.int64(0)], opset=26, constants=[1], expected=[np.cumprod(y, 0)])


def best(x: Array, axis: int, k: int, largest: int) -> list[Array]:
    key = -x.astype(np.float64) if largest else x.astype(np.float64)
    at = np.take(np.argsort(key, axis=axis, kind="stable"), range(k), axis=axis)
    return [np.take_along_axis(x, at, axis), at.astype(np.int64)]


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((3, 4, 5), 1, 2), ((7,), 0, 7), ((2, 1000), 1, 10), ((1000, 3), 0, 1000), ((2, 8400), 1, 300),
        ((2, 3, 4, 5, 6), 2, 3), ((4, 5), 1, 0), ((100, 256), 1, 256), ((30, 257), 1, 5),
    ],
)  # fmt: skip
def test_topk(largest: int, shape: tuple[int, ...], axis: int, k: int) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    attrs = {"axis": axis, "largest": largest}
    inputs = [x, np.array([k], np.int64)]
    check_node("TopK", inputs, attrs, opset=11, outputs=2, constants=[1], expected=best(x, axis, k, largest))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_topk_types_and_ties(largest: int, dtype: str) -> None:
    for shape in ((3, 9), (2, 300)):
        x = integers(shape, dtype)
        inputs, want = [x, np.array([5], np.int64)], best(x, 1, 5, largest)
        check_node("TopK", inputs, {"largest": largest}, opset=24, outputs=2, constants=[1], expected=want)


def test_topk_below_opset_11() -> None:
    x = RNG.standard_normal((3, 9)).astype(np.float32)
    check_node("TopK", [x], {"k": 4}, opset=9, outputs=2, expected=best(x, 1, 4, 1))
    inputs = [x, np.array([4], np.int64)]
    check_node("TopK", inputs, opset=10, outputs=2, constants=[1], expected=best(x, 1, 4, 1))


def test_topk_orders_nan_first_and_zeros_by_place() -> None:
    x = np.array([[1, np.nan, -0.0, 0.0, np.inf, -np.inf, np.nan, 2]], np.float32)
    at = np.array([[1, 6, 4, 7, 0, 2, 3, 5]], np.int64)
    inputs = [x, np.array([8], np.int64)]
    check_node("TopK", inputs, opset=11, outputs=2, constants=[1], expected=[np.take_along_axis(x, at, 1), at])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rotary_embedding(interleaved: int, width: int, dtype: str) -> None:
    half = (width or 8) // 2
    angles = RNG.uniform(0, 6, (20, half))
    caches = [np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)]
    ids = RNG.integers(0, 20, (2, 5))
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": width}
    x = RNG.standard_normal((2, 3, 5, 8)).astype(dtype)
    check_node("RotaryEmbedding", [x, *caches, ids], attrs, opset=23)
    flat = RNG.standard_normal((2, 5, 24)).astype(dtype)
    check_node("RotaryEmbedding", [flat, *caches, ids], attrs | {"num_heads": 3}, opset=23)
    per_token = [c[ids] for c in caches]
    check_node("RotaryEmbedding", [flat, *per_token], attrs | {"num_heads": 3}, opset=23)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_of_microsoft(interleaved: int) -> None:
    angles = RNG.uniform(0, 6, (20, 4))
    caches = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    attrs = {"interleaved": interleaved}
    for ids in (RNG.integers(0, 20, (2, 5)), np.array([7])):
        x = RNG.standard_normal((2, 3, 5, 8)).astype(np.float32)
        check_node("RotaryEmbedding", [x, ids, *caches], attrs, domain=MS)
        flat = RNG.standard_normal((2, 5, 24)).astype(np.float32)
        check_node("RotaryEmbedding", [flat, ids, *caches], attrs, domain=MS)
