"""Functions of one tensor against onnxruntime, over special values and every opset that changed them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.kernels.elementwise_values import INTEGERS, Array, floats, integers
from tests.kernels.harness import check_node, node_model, oracle
from webrt.ops.activation import ACTIVATIONS
from webrt.ops.unary import UNARY

NAMES = sorted({n for n, e in UNARY.items() if "f" in e[1]} | set(ACTIVATIONS) | {"Relu", "Gelu", "Shrink", "Clip"})
# The first opset at which the operator takes the type, where it is later than 22.
NEWER = {"Swish": 24}


def versions(name: str) -> list[int]:
    """The opsets from 7 on that define the operator anew, and the newest."""
    newest = onnx.defs.onnx_opset_version()
    found = {s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and s.domain == ""}
    return sorted({max(v, 7) for v in found} | {newest})


@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str) -> None:
    check_node(name, [floats()], opset=NEWER.get(name, 22))


@pytest.mark.parametrize("name", NAMES)
def test_every_opset(name: str) -> None:
    x = floats()[:61]
    expected = oracle(*node_model(name, [x], opset=NEWER.get(name, 22)))
    for opset in versions(name):
        check_node(name, [x], opset=opset, symbolic=False, expected=expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half(name: str, dtype: type) -> None:
    """The float32 result rounded once; Clip without limits clips to the type's own largest numbers."""
    x = floats(dtype)
    expected = oracle(*node_model(name, [x.astype(np.float32)], opset=NEWER.get(name, 22)))[0]
    with np.errstate(over="ignore"):
        rounded: Array = expected.astype(dtype)
    if name == "Clip":
        limit = 65504.0 if dtype == np.float16 else 3.3895314e38
        rounded = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(dtype)
    check_node(name, [x], opset=28, symbolic=False, expected=[rounded])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    x = integers(dtype)
    one, zero = np.array(1, dtype), np.array(0, dtype)
    below = x < -1 if dtype[0] == "i" else np.zeros(x.shape, bool)
    with np.errstate(over="ignore"):
        shrunk = np.where(x > 1, x - one, np.where(below, x + one, zero))
        check_node("Abs", [x], expected=[np.abs(x)])
        if dtype[0] == "i":
            check_node("Neg", [x], expected=[-x])
            check_node("Relu", [x], expected=[np.maximum(x, zero)])
    check_node("Sign", [x], expected=[np.sign(x)])
    check_node("BitwiseNot", [x], expected=[~x])
    check_node("Shrink", [x], {"lambd": 1.5, "bias": 1.0}, expected=[shrunk])


def test_tests_of_floats() -> None:
    x = floats()
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            v = x.astype(dtype)
        check_node("IsNaN", [v], expected=[np.isnan(v)])
        for up in (0, 1):
            for down in (0, 1):
                expected = np.isinf(v) & np.where(np.signbit(v), bool(down), bool(up))
                check_node("IsInf", [v], {"detect_positive": up, "detect_negative": down}, expected=[expected])


def test_not() -> None:
    check_node("Not", [np.array([True, False, True, True, False])])


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("LeakyRelu", {"alpha": -0.3}), ("ThresholdedRelu", {"alpha": 0.5}), ("Elu", {"alpha": 2.5}),
        ("Selu", {"alpha": 2.5, "gamma": 0.3}), ("Celu", {"alpha": 2.5}), ("HardSigmoid", {"alpha": 0.5, "beta": 0.1}),
        ("Swish", {"alpha": 1.7}), ("Shrink", {"lambd": 1.5, "bias": 0.7}),
        ("Gelu", {"approximate": "none"}), ("Gelu", {"approximate": "tanh"}),
    ],
)  # fmt: skip
def test_attributes(name: str, attrs: dict[str, float | str]) -> None:
    check_node(name, [floats()], attrs, opset=24)


def test_trigonometry_of_every_exponent() -> None:
    """Against float64: 4000 numbers over all exponents, both ways of reduction."""
    rng = np.random.default_rng(2)
    x = (rng.uniform(1, 2, 4000) * np.exp2(rng.integers(-30, 127, 4000)) * rng.choice([-1, 1], 4000)).astype(np.float32)
    exact = x.astype(np.float64)
    for name, f in (("Sin", np.sin), ("Cos", np.cos), ("Tan", np.tan)):
        check_node(name, [x], expected=[f(exact).astype(np.float32)], symbolic=False, rtol=4e-6, atol=1e-6)


def test_relative_accuracy_near_zero() -> None:
    """Small results are as exact as large ones where a plain formula would cancel."""
    x = np.geomspace(1e-6, 0.9, 300).astype(np.float32)
    exact = x.astype(np.float64)
    for name, f in (
        ("Sinh", np.sinh), ("Tanh", np.tanh), ("Asinh", np.arcsinh), ("Atanh", np.arctanh), ("Asin", np.arcsin),
        ("Atan", np.arctan),
    ):  # fmt: skip
        check_node(name, [x], expected=[f(exact).astype(np.float32)], symbolic=False, rtol=2e-6, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 1, 3, 1, 2, 3), (66000,)])
def test_shapes(shape: tuple[int, ...]) -> None:
    check_node("Sigmoid", [np.linspace(-4, 4, int(np.prod(shape)), dtype=np.float32).reshape(shape)])
    check_node("Neg", [np.ones(shape, np.float16)])
