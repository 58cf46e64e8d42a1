"""AveragePool, MaxPool, LpPool and the global pools against onnxruntime's CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Array, check_node

RNG = np.random.default_rng(13)
ONES = [1, 1, 1, 1]


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


WINDOWS = [
    ((2, 3, 9, 11), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((2, 3, 9, 11), {"kernel_shape": [3, 3], "strides": [2, 3], "pads": ONES, "ceil_mode": 1}),
    ((2, 3, 7, 8), {"kernel_shape": [2, 2], "strides": [3, 4], "pads": [0, 0, 1, 1], "ceil_mode": 1}),
    ((2, 3, 7, 5), {"kernel_shape": [3, 2], "strides": [4, 3], "pads": ONES, "ceil_mode": 1}),
    ((2, 3, 9), {"kernel_shape": [3]}),
    ((2, 3, 5, 6, 7), {"kernel_shape": [3, 2, 2], "strides": [1, 2, 2]}),
    ((2, 3, 11, 12), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    ((0, 3, 9), {"kernel_shape": [3]}),
    *(
        ((2, 3, 9, 11), {"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": mode})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("shape", "attrs"), WINDOWS, ids=str)
def test_pool(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check_node(op, [floats(*shape)], attrs, opset=22)


@pytest.mark.parametrize("opset", [7, 8, 10, 11, 12, 19, 22, 24])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"])
def test_every_opset(op: str, opset: int) -> None:
    attrs = {} if op.startswith("Global") else {"kernel_shape": [3, 3], "pads": ONES, "strides": [2, 2]}
    if attrs and opset >= 10:
        attrs |= {"ceil_mode": 1}
    check_node(op, [floats(2, 3, 8, 10)], attrs, opset=opset)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("dilations", [[1, 1], [2, 2]])
def test_average_pool_counts_the_padding(ceil: int, dilations: list[int]) -> None:
    attrs = {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 1, 1], "count_include_pad": 1, "ceil_mode": ceil}
    check_node("AveragePool", [floats(2, 3, 9, 11)], {**attrs, "dilations": dilations}, opset=19)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 9), {"kernel_shape": [3]}),
        ((2, 3, 9, 11), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ((2, 3, 4, 5, 6), {"kernel_shape": [3, 2, 2]}),
    ],
    ids=str,
)
def test_max_pool_indices(shape: tuple[int, ...], attrs: dict[str, Any], storage_order: int) -> None:
    check_node("MaxPool", [floats(*shape)], {**attrs, "storage_order": storage_order}, outputs=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_bytes(dtype: type) -> None:
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 3, 9, 11)).astype(dtype)
    check_node("MaxPool", [x], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"])
def test_half_floats(op: str) -> None:
    attrs = {} if op.startswith("Global") else {"kernel_shape": [3, 3]}
    check_node(op, [floats(2, 3, 9, 9, dtype=np.float16)], attrs)


def test_max_pool_of_minus_infinity() -> None:
    x = np.full((1, 1, 4), -np.inf, np.float32)
    check_node("MaxPool", [x], {"kernel_shape": [2]}, expected=[x[..., :3]])


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_lp_pools(p: int) -> None:
    x = floats(2, 3, 9, 11)
    check_node("LpPool", [x], {"kernel_shape": [3, 2], "p": p, "pads": [1, 0, 1, 1], "strides": [2, 2]}, opset=18)
    whole = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    check_node("GlobalLpPool", [x], {"p": p}, expected=[whole.astype(np.float32)])


@pytest.mark.parametrize("shape", [(2, 3, 50), (1, 2, 300, 400), (2, 3, 4, 5, 6), (0, 3, 4, 4), (2, 3, 1, 1)], ids=str)
@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    check_node(op, [floats(*shape)])
