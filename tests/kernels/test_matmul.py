"""MatMul, FusedMatMul and Gemm against onnxruntime's CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Array, check_node, node_model, run_native
from webrt.errors import InputError

RNG = np.random.default_rng(7)

SHAPES = [
    ((5, 7), (7, 9)), ((16, 8), (8, 12)), ((7,), (7,)), ((8,), (8, 5)), ((3, 8), (8,)), ((2, 3, 4, 5), (5, 6)),
    ((2, 1, 9, 8), (3, 8, 20)), ((4, 8), (2, 3, 8, 6)), ((1, 1), (1, 1)), ((0, 3, 4), (0, 4, 5)), ((3, 0), (0, 4)),
    ((2, 1, 3, 1, 4, 5), (1, 6, 3, 2, 5, 7)), ((7,), (2, 7, 3)), ((1, 33), (33, 100)), ((65, 130), (130, 67)),
]  # fmt: skip


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("constants", [(), (0,), (1,)], ids=["fed", "left", "right"])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], constants: tuple[int, ...]) -> None:
    check_node("MatMul", [floats(*a), floats(*b)], constants=constants)


@pytest.mark.parametrize("opset", [7, 9, 13, 20, 24])
def test_matmul_at_every_opset(opset: int) -> None:
    check_node("MatMul", [floats(3, 5), floats(5, 4)], opset=opset)


@pytest.mark.parametrize(("a", "b"), [((5, 8), (8, 12)), ((5, 7), (7, 9)), ((2, 1, 33), (33, 4))], ids=str)
def test_matmul_of_half_floats(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = floats(*a, dtype=np.float16), floats(*b, dtype=np.float16)
    exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float16)
    check_node("MatMul", [left, right], expected=[exact])
    check_node("MatMul", [left, right], expected=[exact], constants=[1])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_matmul_of_integers_wraps(dtype: type) -> None:
    left, right = (RNG.integers(0, 2**31, s).astype(dtype) for s in ((5, 7), (7, 9)))
    check_node("MatMul", [left, right], expected=[left @ right])


def test_a_sum_longer_than_one_invocation_may_loop() -> None:
    left, right = floats(2, 300_001), floats(300_001, 3)
    exact = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
    check_node("MatMul", [left, right], expected=[exact], symbolic=False, atol=2e-2)


def test_sizes_that_do_not_fit_are_refused_at_the_run() -> None:
    model, feeds = node_model("MatMul", [floats(3, 5), floats(5, 4)], symbolic=True)
    with pytest.raises(InputError, match="matrix product"):
        run_native(model, {**feeds, "x1": floats(6, 4)})


@pytest.mark.parametrize(
    ("a", "b", "c", "attrs"),
    [
        ((5, 7), (7, 9), None, {}),
        ((7, 5), (7, 9), (9,), {"transA": 1}),
        ((5, 7), (9, 7), (1, 9), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ((7, 5), (8, 7), (5, 1), {"transA": 1, "transB": 1, "beta": 0.3}),
        ((5, 7), (7, 9), (5, 9), {"alpha": 0.25}),
        ((5, 7), (7, 9), (), {}),
        ((5, 7), (7, 9), (1, 1), {}),
        ((1, 64), (200, 64), (200,), {"transB": 1}),
        ((5, 7), (7, 9), (9,), {"beta": 0.0}),
        ((0, 7), (7, 9), (9,), {}),
        ((5, 0), (0, 9), (9,), {}),
    ],
)
def test_gemm(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...] | None, attrs: dict[str, Any]) -> None:
    inputs = [floats(*a), floats(*b), *([floats(*c)] if c is not None else [])]
    check_node("Gemm", inputs, attrs, opset=13)
    check_node("Gemm", inputs, attrs, opset=13, constants=range(1, len(inputs)))


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 24])
def test_gemm_at_every_opset(opset: int) -> None:
    check_node("Gemm", [floats(3, 5), floats(5, 4), floats(4)], {"alpha": 2.0}, opset=opset)


def test_gemm_of_half_floats() -> None:
    inputs = [floats(*s, dtype=np.float16) for s in ((5, 8), (9, 8), (9,))]
    a, b, c = (x.astype(np.float64) for x in inputs)
    exact = (0.5 * (a @ b.T) + c).astype(np.float16)
    check_node("Gemm", inputs, {"transB": 1, "alpha": 0.5}, expected=[exact])


@pytest.mark.parametrize("attrs", [{"transB": 1, "alpha": 0.5}, {"transA": 1, "transB": 1}], ids=str)
def test_fused_matmul(attrs: dict[str, Any]) -> None:
    shape = (2, 7, 5) if "transA" in attrs else (2, 5, 7)
    check_node("FusedMatMul", [floats(*shape), floats(2, 9, 7)], attrs, domain="com.microsoft")
