"""Layer-, RMS-, Skip-, Instance-, Group-, Batch-, Lp- and MeanVarianceNormalization, LRN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node
from webrt.ops import standardize

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
MS = "com.microsoft"
DTYPES = ["float32", "float16"]


@pytest.fixture(params=["here", "elsewhere"], autouse=True)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms for this adapter, and those for others."""
    if request.param == "elsewhere":
        monkeypatch.setattr(standardize, "SOFTWARE", {"kinds": ["gpu"]})


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((100, 64), -1), ((3, 5, 63), -1), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), -3), ((4, 10, 768), 2), ((1, 1, 768), -1)],
)
def test_layer_normalization(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    x, part = normal(*shape, dtype=dtype) + np.array(3, dtype), shape[axis:]
    scale, bias = normal(*part, dtype=dtype), normal(*part, dtype=dtype)
    check_node("LayerNormalization", [x, scale, bias], {"axis": axis, "epsilon": 1e-3}, opset=17)
    check_node("LayerNormalization", [x, scale], {"axis": axis}, opset=17, constants=[1])


def test_layer_normalization_statistics() -> None:
    inputs = [normal(3, 5, 8) + 2, normal(8), normal(8)]
    check_node("LayerNormalization", inputs, opset=17, outputs=3)
    check_node("LayerNormalization", inputs, opset=17, outputs=[True, False, True])


def test_layer_normalization_broadcasts_scale() -> None:
    check_node(
        "LayerNormalization", [normal(2, 3, 4, 6), normal(4, 1), normal(1, 6)], {"axis": 2}, opset=17, constants=[1, 2]
    )


@pytest.mark.parametrize("rows", [0, 31, 33, 50])
@pytest.mark.parametrize("scaled", [(), (1,)])
def test_rows_by_four(rows: int, scaled: tuple[int, ...]) -> None:
    """Also of numbers that are far from 0, with an outlier, or not finite."""
    x = normal(rows, 24)
    x[:9] += 100
    x[9:20, 0] = 1e4
    x[20:21, 3], x[21:22, 5], x[22:23] = np.nan, np.inf, 7.0
    wide = x.astype(np.float64)
    scale, bias = normal(24), normal(24)
    with np.errstate(invalid="ignore"):
        spread = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        centred = (wide - wide.mean(1, keepdims=True)) / spread
        root = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5)
    check_node("RMSNormalization", [x, scale], opset=23, constants=scaled, expected=[(root * scale).astype(np.float32)])
    for more in ([scale], [scale, bias]):
        want = (centred * scale + (bias if len(more) == 2 else 0)).astype(np.float32)
        check_node("LayerNormalization", [x, *more], opset=17, constants=scaled, expected=[want], atol=5e-5)


def test_layer_normalization_of_long_rows() -> None:
    x, scale = normal(2, 70_001) + 3, normal(70_001)
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale
    check_node("LayerNormalization", [x, scale], opset=17, expected=[want.astype(np.float32)])


def rms(x: Array, scale: Array, axis: int) -> Array:
    wide = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    return (wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale).astype(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((100, 64), -1), ((2, 3, 4, 5), 2), ((1, 1, 768), -1), ((3, 7), 1)])
def test_rms_normalization(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    x, scale = normal(*shape, dtype=dtype), normal(*shape[axis:], dtype=dtype)
    want = [rms(x, scale, axis)]
    check_node("RMSNormalization", [x, scale], {"axis": axis}, opset=23, expected=want)
    check_node("SimplifiedLayerNormalization", [x, scale], {"axis": axis}, opset=17, expected=want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_skip_layer_normalization(dtype: str) -> None:
    x, skip = normal(2, 7, 64, dtype=dtype), normal(2, 7, 64, dtype=dtype)
    gamma, beta, bias = (normal(64, dtype=dtype) for _ in range(3))
    name, eps = "SkipLayerNormalization", {"epsilon": 1e-5}
    check_node(name, [x, skip, gamma, beta, bias], eps, domain=MS)
    check_node(name, [x, skip, gamma, beta, bias], eps, domain=MS, outputs=[True, False, False, True])
    check_node(name, [x, skip[:1], gamma], eps, domain=MS, constants=[1, 2])
    name = "SkipSimplifiedLayerNormalization"
    check_node(name, [x, skip, gamma, bias], eps, domain=MS, outputs=[True, False, False, True])


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 7), (1, 2, 300, 301), (100, 4, 8, 8)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    inputs = [normal(*shape) + 1, normal(shape[1]), normal(shape[1])]
    for opset in (7, 22):
        check_node("InstanceNormalization", inputs, {"epsilon": 1e-2}, opset=opset)


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(opset: int) -> None:
    x, groups = normal(2, 6, 5, 4), 3
    scale, bias = (normal(6 if opset >= 21 else groups) for _ in range(2))
    y = x.reshape(2, groups, -1).astype(np.float64)
    y = ((y - y.mean(2, keepdims=True)) / np.sqrt(y.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    a, c = (np.repeat(v, 6 // v.size)[:, None, None] for v in (scale, bias))
    want = (y * a + c).astype(np.float32)
    check_node("GroupNormalization", [x, scale, bias], {"num_groups": groups}, opset=opset, expected=[want])


@pytest.mark.parametrize("axes", [[0, 2, 3], [1], [0, 1, 2, 3]])
def test_mean_variance_normalization(axes: list[int]) -> None:
    check_node("MeanVarianceNormalization", [normal(2, 3, 4, 5) + 3], {"axes": axes}, opset=13)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (2, 3, 7), (2, 3, 2, 2, 3)])
@pytest.mark.parametrize("constants", [[], [1, 2, 3, 4]])
def test_batch_normalization(shape: tuple[int, ...], constants: list[int]) -> None:
    c = shape[1]
    inputs = [normal(*shape), normal(c), normal(c), normal(c), np.abs(normal(c))]
    for opset in (7, 8, 9, 14, 15, 22):
        check_node("BatchNormalization", inputs, {"epsilon": 1e-3}, opset=opset, constants=constants)
    half = [v.astype(np.float16) for v in inputs]
    check_node("BatchNormalization", half, opset=14, constants=constants)


def test_batch_normalization_per_activation() -> None:
    x, scale, bias, mean = normal(2, 3, 4), normal(3, 4), normal(3, 4), normal(3, 4)
    var = np.abs(normal(3, 4))
    want = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    check_node("BatchNormalization", [x, scale, bias, mean, var], {"spatial": 0}, opset=7, expected=[want])


def test_batch_normalization_trains() -> None:
    x, scale, bias, mean, var = normal(4, 3, 5), normal(3), normal(3), normal(3), np.abs(normal(3))
    now, spread = x.mean((0, 2)), x.var((0, 2))
    a, c, m, s = (v[:, None] for v in (scale, bias, now, spread))
    want = [(x - m) / np.sqrt(s + 1e-5) * a + c, mean * 0.8 + now * 0.2, var * 0.8 + spread * 0.2]
    attrs = {"training_mode": 1, "momentum": 0.8}
    expected = [w.astype(np.float32) for w in want]
    check_node("BatchNormalization", [x, scale, bias, mean, var], attrs, opset=15, outputs=3, expected=expected)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    x = normal(3, 4, 5)
    x[0, :, 0] = 0
    norm = np.linalg.norm(x, p, axis=axis, keepdims=True)
    want = np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(np.float32)
    check_node("LpNormalization", [x], {"p": p, "axis": axis}, opset=22, expected=[want])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_lrn(size: int) -> None:
    x = normal(2, 7, 3, 4)
    sums = np.zeros_like(x)
    for c in range(7):
        low, high = max(0, c - (size - 1) // 2), min(7, c + size - (size - 1) // 2)
        sums[:, c] = (x[:, low:high] ** 2).sum(1)
    want = x / (2 + 0.3 / size * sums) ** 0.6
    attrs = {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 2.0}
    check_node("LRN", [x], attrs, opset=13, expected=[want.astype(np.float32)])
