"""Cast among all device types, exact; Clip, PRelu, Dropout and the contrib Gelus in all their forms."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.kernels.elementwise_values import INTEGERS, SPECIAL, Array, integers
from tests.kernels.harness import check_node, node_model, oracle
from webrt.errors import ShapeError

BF16 = "bfloat16"
TYPES = ["float32", "float16", BF16, *INTEGERS, "bool"]
NUMBERS = np.array(
    [
        0, -0.0, 0.4, 0.5, 0.6, -0.4, -0.9, -1, 1, 1.5, 2.5, 127, 128, -128, -129, 200, 255, 256, 300, 32767, 65535,
        65504, 65519, 65520, 1e5, -1e5, 16777217, 2147483520, -2147483648, 1e-5, 0.1, 1 / 3, 3e9, 4e9, -3e9, 9e18, 1e19,
        -9e18, 1e20, 3.39e38, np.nan, np.inf, -np.inf,
    ],
    np.float32,
)  # fmt: skip
SUBNORMAL_HALVES = np.array([5.96e-8, 2.98e-8, 2.99e-8, 1e-7, 6.1e-5, 6.09e-5], np.float32)


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == BF16 else name)


def values(name: str) -> Array:
    """Values of the type, edges first."""
    if name == "bool":
        return np.array([False, True, True, False, True])
    if name not in INTEGERS:
        with np.errstate(over="ignore"):
            return NUMBERS.astype(dtype_of(name))
    info = np.iinfo(name)
    random = np.random.default_rng(4).integers(info.min, info.max, 50, name)
    return np.concatenate([integers(name), random])


def through(x: Array, target: str) -> tuple[Array, Array]:
    """What C defines of x to an integer type, and its result: by int32 for narrow types, else by the wider type."""
    bits = np.iinfo(target).bits
    by = "int32" if bits < 32 else "int64" if target == "uint32" else target
    low, high = float(np.iinfo(by).min), float(np.iinfo(by).max) + (by != "int32")
    wide = x.astype(np.float64)
    kept = x[np.isfinite(wide) & (wide >= low) & (wide < high + 1)]
    return kept, kept.astype(np.float64).astype(by).astype(target)


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_cast(source: str, target: str) -> None:
    x = values(source)
    if source in TYPES[:3] and target in INTEGERS:
        x, expected = through(x, target)
    elif target == BF16 or (target == "float16" and source in INTEGERS):
        with np.errstate(over="ignore"):
            expected = x.astype(np.float32).astype(dtype_of(target))
    else:
        with np.errstate(over="ignore"):
            expected = x.astype(dtype_of(target))
    to = helper.np_dtype_to_tensor_dtype(dtype_of(target))
    check_node("Cast", [x], {"to": to}, expected=[expected], symbolic=False, rtol=0, atol=0)


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_what_c_leaves_open_is_as_onnxruntime(target: str) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    check_node("Cast", [NUMBERS], {"to": to}, symbolic=False)


def test_halves_round_to_even() -> None:
    check_node("Cast", [SUBNORMAL_HALVES], {"to": 10}, expected=[SUBNORMAL_HALVES.astype(np.float16)], rtol=0, atol=0)


@pytest.mark.parametrize("opset", [7, 9, 13, 19, 21, 23, 24, 25, 28])
def test_cast_at_every_opset(opset: int) -> None:
    x = values("int64")
    check_node("Cast", [x], {"to": 1}, opset=opset, expected=[x.astype(np.float32)], symbolic=False, rtol=0, atol=0)


@pytest.mark.parametrize("opset", [15, 19, 21, 25, 28])
def test_cast_like(opset: int) -> None:
    x = np.array([-1.5, 0, 2.9, 1000], np.float32)
    check_node("CastLike", [x, np.zeros((2, 1), np.int64)], opset=opset, expected=[x.astype(np.int64)])


@pytest.mark.parametrize("dtype", ["float32", "float16", *INTEGERS])
@pytest.mark.parametrize("limits", [(3, 100), (100, 3), (None, 7), (2, None), (None, None)])
def test_clip(dtype: str, limits: tuple[int | None, int | None]) -> None:
    finite = SPECIAL[np.isfinite(SPECIAL) & (np.abs(SPECIAL) < 60000)]
    x = integers(dtype) if dtype in INTEGERS else finite.astype(dtype)
    low, high = (None if v is None else np.array(v, dtype) for v in limits)
    expected = x if low is None else np.maximum(x, low)
    expected = expected if high is None else np.minimum(expected, high)
    check_node("Clip", [x, low, high], constants=(1, 2), expected=[expected])
    check_node("Clip", [x, low, high], expected=[expected], symbolic=False)


def test_clip_by_attributes() -> None:
    for attrs in ({"min": -1.0, "max": 0.5}, {"min": 0.5, "max": -1.0}, {"max": 2.0}, {}):
        low, high = (np.float32(attrs.get(k, d)) for k, d in (("min", -3.4028235e38), ("max", 3.4028235e38)))
        check_node("Clip", [SPECIAL], attrs, opset=7, expected=[np.minimum(np.maximum(SPECIAL, low), high)])
    with pytest.raises(ShapeError):
        check_node("Clip", [SPECIAL, np.zeros(2, np.float32)], expected=[SPECIAL], symbolic=False)


@pytest.mark.parametrize("slope", [(4,), (3, 1), (1,), (1, 3, 1), (2, 3, 4), ()])
def test_prelu(slope: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x, s = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=slope).astype(np.float32)
    for opset in (7, 9, 16):
        check_node("PRelu", [x, s], opset=opset)
    for dtype in ("int32", "int64", "uint32", "uint64"):
        xi, si = np.abs(x * 10).astype(dtype), np.abs(s * 3).astype(dtype)
        xi = xi if dtype[0] == "u" else xi - np.array(10, dtype)
        check_node("PRelu", [xi, si], opset=16, expected=[np.where(xi < 0, xi * si, xi)], symbolic=False)


def test_dropout_keeps_everything() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    kept = np.ones(x.shape, bool)
    check_node("Dropout", [x], opset=7, outputs=1, expected=[x])
    check_node("Dropout", [x], opset=10, outputs=2, expected=[x, kept])
    ratio = np.array(0.3, np.float32)
    for opset in (12, 13, 22):
        check_node("Dropout", [x], opset=opset, outputs=2, expected=[x, kept])
        check_node("Dropout", [x, ratio, np.array(False)], opset=opset, outputs=2, constants=(1, 2), expected=[x, kept])
        zero = [x, np.zeros((), np.float32), np.array(True)]
        check_node("Dropout", zero, opset=opset, outputs=2, constants=(1, 2), expected=[x, kept])


def test_contrib_gelus() -> None:
    """In float16 too, where the float32 result is rounded once."""
    x = np.linspace(-6, 6, 48, dtype=np.float32).reshape(2, 3, 8)
    bias = np.linspace(-1, 1, 8, dtype=np.float32)
    for name, inputs in (
        ("Gelu", [x]), ("FastGelu", [x]), ("FastGelu", [x, bias]), ("QuickGelu", [x]), ("BiasGelu", [x, bias]),
    ):  # fmt: skip
        check_node(name, inputs, domain="com.microsoft")
        halves = [v.astype(np.float16) for v in inputs]
        wide = oracle(*node_model(name, [v.astype(np.float32) for v in halves], domain="com.microsoft"))[0]
        check_node(name, halves, domain="com.microsoft", expected=[wide.astype(np.float16)], symbolic=False)
