"""Einsum, and products of quantized tensors, against onnxruntime's CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Array, check_node, node_model
from webrt.compiler.compile import compile_model
from webrt.plan import Dispatch

RNG = np.random.default_rng(17)
ONES = [1, 1, 1, 1]


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def quantized(*shape: int, dtype: Any = np.uint8) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def scalar(x: float, dtype: Any = np.float32) -> Array:
    return np.array(x, dtype)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 4)]),
        ("ijk->j", [(3, 4, 5)]),
        ("ij->", [(3, 4)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("bhqd,bkhd->bqhk", [(2, 3, 4, 5), (2, 6, 3, 5)]),
        ("i,i", [(5,), (5,)]),
        ("i,j->ji", [(3,), (4,)]),
        ("ijz,jkw->ki", [(3, 4, 2), (4, 5, 3)]),
        ("abc,c->ab", [(2, 3, 4), (4,)]),
        ("...ii->...i", [(3, 5, 5)]),
        ("ii", [(4, 4)]),
        ("a...a->...", [(3, 2, 3)]),
        ("iij,jk->ik", [(3, 3, 4), (4, 2)]),
        ("...ij,...jk", [(2, 3, 4), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (3, 4, 5)]),
        ("b n ..., n d -> b d ...", [(2, 3, 4, 2), (3, 5)]),
        ("ij,jk,kl,lm", [(2, 3), (3, 4), (4, 5), (5, 2)]),
        ("i,j,k->kij", [(2,), (3,), (4,)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [floats(*s) for s in shapes]
    exact = np.einsum(equation.replace(" ", ""), *(x.astype(np.float64) for x in inputs)).astype(np.float32)
    check_node("Einsum", inputs, {"equation": equation}, expected=[np.asarray(exact)])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]),
        ("ji,kj->ik", [(3, 4), (5, 3)]),
    ],
)
def test_einsum_reads_operands_where_they_lie(equation: str, shapes: list[tuple[int, ...]]) -> None:
    model, _ = node_model("Einsum", [floats(*s) for s in shapes], {"equation": equation}, symbolic=True)
    assert sum(isinstance(s, Dispatch) for s in compile_model(model).steps) == 1


@pytest.mark.parametrize("constants", [(), (1, 2, 3)], ids=["fed", "constant"])
@pytest.mark.parametrize(
    ("a_zero", "b_zero"),
    [((), ()), ((), (7,)), ((3,), ())],
    ids=["scalars", "per column", "per row"],
)
def test_matmul_integer(a_zero: tuple[int, ...], b_zero: tuple[int, ...], constants: tuple[int, ...]) -> None:
    a, w = quantized(2, 3, 5), quantized(5, 7, dtype=np.int8)
    zeros = [quantized(*a_zero), quantized(*b_zero, dtype=np.int8)]
    exact = (a.astype(np.int32) - zeros[0].reshape(-1, 1)) @ (w.astype(np.int32) - zeros[1].reshape(1, -1))
    check_node("MatMulInteger", [a, w, *zeros], constants=constants, expected=[exact.astype(np.int32)])


def test_matmul_integer_without_zero_points() -> None:
    check_node("MatMulInteger", [quantized(4, 9), quantized(9, 5)])


@pytest.mark.parametrize("constants", [(), range(1, 8)], ids=["fed", "constant"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_matmul(dtype: Any, constants: Any) -> None:
    a, w = quantized(2, 3, 20, dtype=dtype), quantized(20, 7, dtype=dtype)
    zero = scalar(3, dtype)
    inputs = [a, scalar(0.02), zero, w, scalar(0.03), zero, scalar(0.9), zero]
    check_node("QLinearMatMul", inputs, constants=constants)


@pytest.mark.parametrize("constants", [(), (1, 2, 3)], ids=["fed", "constant"])
def test_conv_integer(constants: tuple[int, ...]) -> None:
    inputs = [quantized(1, 3, 9, 8), quantized(5, 3, 3, 3), scalar(7, np.uint8), scalar(120, np.uint8)]
    check_node("ConvInteger", inputs, {"pads": ONES}, constants=constants, symbolic=bool(constants))


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 3, 9, 8), (5, 3, 3, 3), {"pads": ONES, "strides": [2, 1]}),
        ((2, 8, 6, 7), (9, 8, 1, 1), {}),
        ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "pads": ONES}),
    ],
    ids=str,
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_conv(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], per_channel: bool) -> None:
    outs = w[0]
    scale = RNG.uniform(0.01, 0.05, outs if per_channel else ()).astype(np.float32)
    w_zero = np.zeros(outs if per_channel else (), np.int8)
    bias = RNG.integers(-2000, 2000, outs).astype(np.int32)
    inputs = [
        quantized(*x), scalar(0.02), scalar(120, np.uint8), quantized(*w, dtype=np.int8), scale, w_zero,
        scalar(0.4), scalar(110, np.uint8), bias,
    ]  # fmt: skip
    check_node("QLinearConv", inputs, attrs, constants=range(1, 9))


@pytest.mark.parametrize(
    ("rows", "k", "columns", "bits", "block", "extras"),
    [
        ((3,), 64, 20, 4, 32, ""),
        ((2, 5), 96, 33, 4, 32, "zeros"),
        ((1,), 64, 20, 8, 32, ""),
        ((7,), 128, 17, 8, 16, "zeros bias"),
        ((9,), 96, 17, 4, 16, "zeros bias"),
        ((2, 1), 40, 9, 4, 32, "bias"),
    ],
)
def test_matmul_nbits(rows: tuple[int, ...], k: int, columns: int, bits: int, block: int, extras: str) -> None:
    blocks = -(-k // block)
    scales = floats(columns * blocks) / np.float32(1 << bits)
    inputs: list[Array | None] = [floats(*rows, k), quantized(columns, blocks, block * bits // 8), scales]
    zeros = quantized(columns * ((blocks * bits + 7) // 8)) if "zeros" in extras else None
    inputs += [zeros, None, floats(columns)] if "bias" in extras else [zeros] if zeros is not None else []
    constants = [i for i in range(1, len(inputs)) if inputs[i] is not None]
    attrs = {"K": k, "N": columns, "bits": bits, "block_size": block}
    check_node("MatMulNBits", inputs, attrs, domain="com.microsoft", constants=constants)
