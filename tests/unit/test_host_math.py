"""Elementwise, reducing, normalising, recurrent and quantising operators on the CPU provider, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.host_oracle import Draw, agrees, i64, scalar

SPECIAL = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, np.nan, np.inf, -np.inf, 1e-30, 1e30, 88, -88, 104, -104, 3.4e38],
    np.float32,
)  # fmt: skip
UNARY = """
Abs Neg Ceil Floor Round Sign Sqrt Exp Log Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf
Relu Sigmoid LeakyRelu ThresholdedRelu Elu Selu Celu HardSigmoid HardSwish Softplus Softsign Mish IsNaN IsInf Shrink
"""
REDUCE = "Sum Mean Prod Max Min L1 L2 SumSquare LogSum LogSumExp"


@pytest.mark.parametrize("op", UNARY.split())
def test_unary(op: str) -> None:
    x = np.concatenate([SPECIAL, Draw(0).real(80) * 3])
    if op in ("Sin", "Cos", "Tan"):
        x = x[np.abs(x) < 1e4]
    agrees(op, [x], opset=18)


def test_gelu() -> None:
    agrees("Gelu", [Draw(1).real(300)], opset=20)
    agrees("Gelu", [Draw(1).real(300)], opset=20, approximate="tanh")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_binary(dtype: Any) -> None:
    d = Draw(2)
    a, b = (d.real(3, 1, 4) * 5).astype(dtype), (d.real(2, 1) * 5).astype(dtype)
    b[b == 0] = 2
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        agrees(op, [a, b])
    for fmod in (0, 1):
        if fmod or np.dtype(dtype).kind == "i":
            agrees("Mod", [a, b], fmod=fmod)
    for exponent in (np.float32, np.int32, np.int64):
        agrees("Pow", [np.abs(a) + 1, np.abs(d.real(2, 1) * 2).astype(exponent)], opset=15)


def test_variadic_clip_and_shift() -> None:
    d = Draw(3)
    for op in ("Sum", "Mean", "Max", "Min"):
        agrees(op, [d.real(3, 4), d.real(1, 4), d.real(3, 1)])
        agrees(op, [d.real(3, 4)])
    x = np.concatenate([SPECIAL, d.real(9)])
    agrees("Clip", [x], opset=7, min=-1.0, max=2.0)
    agrees("Clip", [d.real(30), None, scalar(0.5)], opset=13)
    agrees("Clip", [x, scalar(3), scalar(2)], opset=13)
    agrees("PRelu", [d.real(2, 3, 4), d.real(3, 1)])
    for way in ("LEFT", "RIGHT"):
        agrees("BitShift", [d.u8(9), d.ints(0, 8, 9).astype(np.uint8)], direction=way)


@pytest.mark.parametrize("op", REDUCE.split())
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_reduce(op: str, opset: int) -> None:
    d = Draw(4)
    by_input = opset >= 18 or (op == "Sum" and opset >= 13)
    for dtype in (np.float32, np.int64) if op in ("Sum", "Max", "Min", "Mean") else (np.float32,):
        x = (np.abs(d.real(2, 3, 4)) * 5 + 1).astype(dtype)
        for axes in (None, [0], [-1], [0, 2]):
            for keep in (0, 1):
                given = axes is not None
                inputs = [x, i64(*axes)] if by_input and axes is not None else [x]
                more = {"axes": axes} if given and not by_input else {}
                agrees(f"Reduce{op}", inputs, opset=opset, keepdims=keep, **more)
    if opset == 18:
        agrees(f"Reduce{op}", [d.real(2, 3)], opset=18, noop_with_empty_axes=1)
        if op != "Mean":  # the mean of nothing is NaN here, 0 there; ONNX leaves it open
            agrees(f"Reduce{op}", [np.zeros((2, 0, 3), np.float32), i64(1)], opset=18)


def test_arguments_and_order() -> None:
    d = Draw(5)
    x = d.ints(0, 3, 3, 4, 5).astype(np.float32)
    for axis in (0, 1, -1):
        for flag in (0, 1):
            for op in ("ArgMax", "ArgMin"):
                agrees(op, [x], axis=axis, keepdims=flag, select_last_index=1 - flag)
                agrees(op, [x], axis=axis, keepdims=flag, select_last_index=flag)
            agrees("CumSum", [x, scalar(axis, np.int64)], exclusive=flag, reverse=1 - flag)
            agrees("CumSum", [x, scalar(axis, np.int64)], exclusive=flag, reverse=flag)
            agrees("TopK", [x, i64(2)], (True, True), axis=axis, largest=flag)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 12, 13])
def test_softmax_in_both_meanings(op: str, opset: int) -> None:
    x = Draw(6).real(2, 3, 4)
    agrees(op, [x], opset=opset)
    for axis in (-3, -1, 0, 1, 2):
        agrees(op, [x], opset=opset, axis=axis)


def test_products() -> None:
    d = Draw(7)
    for a, b in (
        ((3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((0, 4), (4, 3)),
        ((2, 0), (0, 3)),
    ):  # fmt: skip
        agrees("MatMul", [d.real(*a), d.real(*b)])
    for flags in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a, b = (d.real(*(s[::-1] if f else s)) for f, s in zip(flags, ((3, 4), (4, 5))))
        for c in (None, d.real(5), d.real(3, 1), d.real(1)):
            agrees("Gemm", [a, b, c], transA=flags[0], transB=flags[1], alpha=0.5, beta=2.0)
    for text, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("ii->i", (3, 3)),
        ("ij->", (3, 4)), ("ij,kj,lk->il", (2, 3), (4, 3), (5, 4)), ("i,j", (3,), (4,)),
    ):  # fmt: skip
        agrees("Einsum", [d.real(*s) for s in shapes], equation=text)
    agrees("Det", [d.real(2, 3, 3)])


def test_normalisations() -> None:
    d = Draw(8)
    x, ones = d.real(2, 6, 3, 4), (d.real(6), d.real(6))
    for opset in (7, 9, 14, 15):
        agrees("BatchNormalization", [x, *ones, d.real(6), np.abs(d.real(6))], opset=opset, epsilon=1e-3)
    statistics = [d.real(6), np.abs(d.real(6))]
    agrees("BatchNormalization", [x, *ones, *statistics], (True,) * 3, opset=15, training_mode=1, momentum=0.7)
    agrees("InstanceNormalization", [x, *ones])
    agrees("LRN", [d.real(2, 9, 3, 4)], size=5, alpha=0.1, beta=0.6, bias=1.5)
    for p in (1, 2):
        agrees("LpNormalization", [x], p=p, axis=1)
    agrees("MeanVarianceNormalization", [x], axes=[0, 2])
    for axis in (-1, 1, 2):
        scale = x.shape[axis:]
        agrees("LayerNormalization", [x, d.real(*scale), d.real(*scale)], (True,) * 3, axis=axis)
    agrees("LayerNormalization", [x.astype(np.float16), d.real(4).astype(np.float16)])
    agrees("LayerNormalization", [x, d.real(4), d.real(4)], (True,) * 3, opset=12)
    agrees("GroupNormalization", [x, d.real(2), d.real(2)], opset=18, num_groups=2)
    agrees("GroupNormalization", [x, *ones], opset=21, num_groups=2)


ACTIVATIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign",
    "Softplus",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize(("op", "gates", "acts"), [("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)])
def test_recurrent(op: str, gates: int, acts: int, seed: int) -> None:
    d = Draw(seed)
    steps, batch, size, hidden = (d.number(1, 5) for _ in range(4))
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if d.chance(0.5):
        attributes["activations"] = [d.pick(*ACTIVATIONS) for _ in range(acts * ways)]
        attributes["activation_alpha"] = d.rng.random(acts * ways).tolist()
        attributes["activation_beta"] = d.rng.random(acts * ways).tolist()
    if op != "LSTM" and d.chance(0.3):  # ONNX also clips an LSTM's cell before its last activation, ONNX Runtime not
        attributes["clip"] = 0.7
    if op == "GRU":
        attributes["linear_before_reset"] = d.number(0, 2)
    inputs = [d.real(steps, batch, size), d.real(ways, gates * hidden, size), d.real(ways, gates * hidden, hidden),
              d.real(ways, 2 * gates * hidden) if d.chance(0.7) else None,
              d.ints(1, steps + 1, batch).astype(np.int32) if d.chance(0.5) else None,
              d.real(ways, batch, hidden) if d.chance(0.5) else None]  # fmt: skip
    if op == "LSTM":
        inputs += [d.real(ways, batch, hidden), d.real(ways, 3 * hidden) if d.chance(0.4) else None]
    agrees(op, inputs, (True,) * (3 if op == "LSTM" else 2), opset=d.pick(7, 14, 22), **attributes)


def test_quantisation() -> None:
    d = Draw(9)
    for opset in (10, 13, 19, 21):
        agrees("QuantizeLinear", [d.real(2, 3, 4) * 40, scalar(0.3), scalar(128, np.uint8)], opset=opset)
        agrees("DequantizeLinear", [d.u8(2, 3, 4), scalar(0.3), scalar(128, np.uint8)], opset=opset)
        if opset >= 13:
            scale, zero = np.abs(d.real(3)) + np.float32(0.1), d.i8(3)
            agrees("QuantizeLinear", [d.real(2, 3, 4) * 40, scale, zero], opset=opset)
            agrees("DequantizeLinear", [d.i8(2, 3, 4), scale, zero], opset=opset, axis=-2)
    scale, zero = np.abs(d.real(2, 2)) + np.float32(0.1), d.i8(2, 2)
    agrees("QuantizeLinear", [d.real(2, 8) * 40, scale, zero], opset=21, block_size=4)
    agrees("DequantizeLinear", [d.i8(2, 8), scale, zero], opset=21, block_size=4)
    agrees("DequantizeLinear", [d.ints(-9999, 9999, 6).astype(np.int32), scalar(0.3)], opset=13)
    agrees("DynamicQuantizeLinear", [d.real(3, 4) * 7], (True,) * 3)
    agrees("MatMulInteger", [d.u8(3, 4), d.i8(4, 5), scalar(3, np.uint8), d.i8(5)])
    agrees("MatMulInteger", [d.u8(2, 3, 400), d.u8(400, 5)])
    a, b = [d.u8(3, 4), scalar(0.1), scalar(120, np.uint8)], [d.i8(4, 5), np.abs(d.real(5)), d.i8(5)]
    agrees("QLinearMatMul", [*a, *b, scalar(3), scalar(128, np.uint8)], opset=10)


def test_signals() -> None:
    d = Draw(10)
    loose = {"rtol": 1e-3, "atol": 1e-4}
    for onesided in (0, 1):
        agrees("DFT", [d.real(2, 10, 1)], opset=17, onesided=onesided, **loose)
        agrees("DFT", [d.real(2, 10, 1), scalar(7, np.int64)], opset=20, onesided=onesided, **loose)
        agrees("STFT", [d.real(1, 128, 1), scalar(8, np.int64), d.real(16)], onesided=onesided, **loose)
    agrees("DFT", [d.real(2, 10, 2)], opset=17, inverse=1, **loose)
    for window in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for periodic in (0, 1):
            agrees(window, [scalar(10, np.int64)], periodic=periodic)
    sizes = [scalar(v, np.int64) for v in (8, 64, 8192)]
    agrees("MelWeightMatrix", [*sizes, scalar(0), scalar(4096)])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("ignored", [{}, {"ignore_index": 2}])
def test_losses(reduction: str, ignored: dict[str, int]) -> None:
    d = Draw(11)
    for weight in (None, np.abs(d.real(4))):
        inputs = [d.real(3, 4, 5), d.ints(0, 4, 3, 5), weight]
        agrees("SoftmaxCrossEntropyLoss", inputs, (True, True), opset=13, reduction=reduction, **ignored)
        agrees("NegativeLogLikelihoodLoss", inputs, opset=13, reduction=reduction, **ignored)
