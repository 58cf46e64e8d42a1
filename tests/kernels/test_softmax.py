"""Softmax, LogSoftmax and Hardmax against onnxruntime: both meanings of `axis`, lengths, layouts, NaN."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import check_node
from webrt.ops import softmax

RNG = np.random.default_rng(3)
NAMES = ["Softmax", "LogSoftmax", "Hardmax"]


@pytest.fixture(params=["here", "elsewhere"], autouse=True)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms for this adapter, and those for others."""
    if request.param == "elsewhere":
        monkeypatch.setattr(softmax, "SOFTWARE", {"kinds": ["gpu"]})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 4, 5), 1), ((2, 3, 4, 5, 6), -2), ((100, 64), -1), ((100, 63), 1), ((7,), 0), ((3, 64), 1), ((2, 700), 1),
        ((9, 1), 1), ((5, 2), 1), ((70, 517), 1),
    ],
)  # fmt: skip
def test_axis(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = (RNG.standard_normal(shape) * 4).astype(np.float32)
    check_node(name, [x], {"axis": axis}, opset=13)
    check_node(name, [x], {"axis": axis}, opset=11)


@pytest.mark.parametrize("name", NAMES)
def test_every_opset(name: str) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for opset in (7, 8, 10, 11, 12, 13, 18, 22, 24):
        check_node(name, [x], opset=opset)


@pytest.mark.parametrize("name", NAMES)
def test_rows_beyond_the_loop_limit(name: str) -> None:
    x = RNG.standard_normal((2, 70_001)).astype(np.float32)
    check_node(name, [x], {"axis": -1}, opset=13)
    check_node(name, [x.T.copy()], {"axis": 0}, opset=13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_types(name: str, dtype: type) -> None:
    check_node(name, [RNG.standard_normal((3, 5, 7)).astype(dtype)], {"axis": 1}, opset=13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (0, 4)])
def test_nothing(name: str, shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    check_node(name, [x], {"axis": 1}, opset=13, expected=[x])


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_masks_large_numbers_and_nan(name: str, rows: int) -> None:
    inf = np.inf
    some = [
        [1, 2, -inf, 3],
        [np.nan, 1, 2, 3],
        [-inf] * 4,
        [1000, 1001, 1002, 999],
        [1, 2, inf, -inf],
        [3, 1, 2, np.nan],
    ]
    x = np.array(some * rows, np.float32)
    for width in (4, 3):
        part = x[:, :width].copy()
        with np.errstate(invalid="ignore"):
            shifted = part.astype(np.float64) - part.max(1, keepdims=True)
        total = np.exp(shifted).sum(1, keepdims=True)
        want = np.exp(shifted) / total if name == "Softmax" else shifted - np.log(total)
        check_node(name, [part], {"axis": 1}, opset=13, expected=[want.astype(np.float32)])


def test_float16_sums_in_float32() -> None:
    x = np.zeros((1, 5000), np.float16)
    check_node("Softmax", [x], opset=13, expected=[np.full(x.shape, 1 / 5000, np.float16)], atol=1e-6)
