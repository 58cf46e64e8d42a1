"""MaxUnpool, TensorScatter, Det and BitCast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node
from webrt.ops.determinant import MAX_SIZE

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(41)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def places(shape: tuple[int, ...], room: int) -> Array:
    """Different indices, all below `room`."""
    return RNG.permutation(room)[: int(np.prod(shape))].reshape(shape).astype(np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_max_unpool(dtype: str) -> None:
    x = normal(2, 3, 4, 5, dtype=dtype)
    attrs = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 0]}
    implied = (2, 3, (4 - 1) * 2 - 1 + 3, (5 - 1) * 2 + 2)
    indices = places(x.shape, int(np.prod(implied)))
    check_node("MaxUnpool", [x, indices], attrs, opset=11)
    larger = np.array([2, 3, implied[2] + 1, implied[3] + 2])
    expected = np.zeros(larger, dtype)
    plain = np.zeros(int(np.prod(implied)), dtype)
    plain[indices.ravel()] = x.ravel()
    expected[:, :, : implied[2], : implied[3]] = plain.reshape(implied)
    check_node("MaxUnpool", [x, indices, larger], attrs, opset=11, constants=[2], expected=[expected])


def test_max_unpool_of_one_axis_and_ignored_indices() -> None:
    x = normal(1, 1, 3)
    want = np.zeros((1, 1, 6), np.float32)
    want[0, 0, [1, 4]] = x[0, 0, [0, 1]]
    indices = np.array([[[1, 4, 99]]])
    check_node("MaxUnpool", [x, indices], {"kernel_shape": [2], "strides": [2]}, opset=11, expected=[want])


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_tensor_scatter(mode: str, axis: int) -> None:
    past = normal(3, 7, 7, 4)
    shape = list(past.shape)
    shape[axis] = 3
    starts = np.array([0, 4, 2] if mode == "linear" else [6, 5, 13])
    check_node("TensorScatter", [past, normal(*shape), starts], {"mode": mode, "axis": axis}, opset=24)
    check_node("TensorScatter", [past, normal(*shape)], {"axis": axis}, opset=24)


def test_tensor_scatter_of_narrow_elements() -> None:
    past, update = normal(2, 5, 3, dtype="float16"), normal(2, 2, 3, dtype="float16")
    check_node("TensorScatter", [past, update, np.array([1, 3])], {}, opset=24)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_determinants(size: int) -> None:
    check_node("Det", [normal(2, 3, size, size)], rtol=1e-3, atol=1e-4)


def test_determinants_that_are_zero_or_need_pivots() -> None:
    x = np.array([[[0, 1], [1, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 0]]], np.float32)
    check_node("Det", [x], expected=[np.array([-1, 0, 0], np.float32)])
    check_node("Det", [np.eye(3, dtype=np.float16)[[1, 2, 0]]], expected=[np.array(1, np.float16)])


def test_large_determinants_stay_on_the_cpu() -> None:
    check_node("Det", [np.eye(MAX_SIZE, dtype=np.float32)])
    check_node("Det", [np.eye(MAX_SIZE + 1, dtype=np.float32)], on_device=False, symbolic=False)


@pytest.mark.parametrize(("source", "to"), [("float32", 6), ("int64", 13), ("float16", 4), ("int8", 2), ("uint32", 1)])
def test_bit_cast(source: str, to: int) -> None:
    import onnx

    x = RNG.integers(0, 100, (3, 5)).astype(source)
    want = x.view(onnx.helper.tensor_dtype_to_np_dtype(to))
    check_node("BitCast", [x], {"to": to}, opset=26, expected=[want])
