"""Samples of elementwise operators, reductions and normalizations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from tests.conformance.samples_data import (
    Sample,
    boolean,
    f32,
    i64,
    integers,
    positive,
    real,
    s,
    scalar,
    unit,
)

X = real(2, 3, 5)
ROW = real(3, 1, seed=1)
MS = "com.microsoft"

# Operators of one float input by the first opset that has them with today's form.
UNARY = {
    7: "Abs Atan Ceil Cos Elu Exp Floor HardSigmoid LeakyRelu Neg Relu Selu Sigmoid Sin Softplus Softsign Tan Tanh",
    9: "Asinh Cosh Erf IsNaN Shrink Sign Sinh",
    10: "IsInf ThresholdedRelu",
    11: "Round",
    12: "Celu",
    14: "HardSwish",
    18: "Mish",
    20: "Gelu",
    24: "Swish",
}
POSITIVE = {7: "Log Reciprocal Sqrt", 9: "Acosh"}
BINARY = {7: "Add Div Mul PRelu Pow Sub", 8: "Max Mean Min Sum"}
COMPARE = {7: "Greater Less", 12: "GreaterOrEqual LessOrEqual"}
REDUCE = "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare"


def samples() -> Iterator[Sample]:
    """Every sample of the file."""
    yield from elementwise()
    yield from _reductions()
    yield from _normalizations()
    yield from _contrib()


def elementwise() -> Iterator[Sample]:
    """Samples whose operands may all have one shape, whichever."""
    yield from _unary()
    yield from _binary()
    yield from _integers()
    yield from _casts()


def _table(table: dict[int, str]) -> Iterator[tuple[int, str]]:
    return ((since, name) for since, names in table.items() for name in names.split())


def _unary() -> Iterator[Sample]:
    for since, name in _table(UNARY):
        yield s(name, X, since=since)
    for since, name in _table(POSITIVE):
        yield s(name, positive(2, 3, 5) + (1 if name == "Acosh" else 0), since=since)
    for name in ("Acos", "Asin"):
        yield s(name, unit(2, 3, 5))
    yield s("Atanh", unit(2, 3, 5) / 2, since=9)
    yield s("Elu", X, alpha=0.5)
    yield s("Gelu", X, since=20, approximate="tanh")
    yield s("HardSigmoid", X, alpha=0.3, beta=0.25)
    yield s("IsInf", f32(1, np.inf, -np.inf, np.nan, 0), since=10, detect_negative=0)
    yield s("Shrink", X, since=9, lambd=1.5, bias=0.5)
    yield s("Not", boolean(3, 5))
    yield s("Clip", X, until=10, min=-1.0, max=2.0)
    yield s("Clip", X, scalar(-1), scalar(2), since=11)
    yield s("Clip", X, None, scalar(2), since=11, const=[2])
    yield s("Dropout", X, until=11)
    yield s("Dropout", X, since=12, outputs=2)


def _binary() -> Iterator[Sample]:
    for since, name in _table(BINARY):
        yield s(name, positive(2, 3, 5), ROW, since=since)
    for name in ("Max", "Mean", "Min", "Sum"):
        yield s(name, X, real(2, 3, 5, seed=2), X, until=7)
        yield s(name, X, ROW, real(5, seed=1), since=8)
        yield s(name, X)
    for since, name in _table(COMPARE):
        yield s(name, X, ROW, since=since)
    yield s("Equal", integers(2, 3, 5), integers(5))
    yield s("Equal", X, ROW, since=11)
    for name in ("And", "Or", "Xor"):
        yield s(name, boolean(2, 3, 5), boolean(3, 1))
    yield s("Where", boolean(3, 1), X, real(5), since=9)
    yield s("Mod", X, positive(3, 1), since=10, fmod=1)
    yield s("Pow", positive(2, 3, 5), integers(3, 1), since=12)


def _integers() -> Iterator[Sample]:
    a, b = integers(2, 3, 5), integers(3, 1, low=1)
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield s(name, a, b, since=18)
    yield s("BitwiseNot", a, since=18)
    yield s("Mod", a, b, since=10)
    unsigned = integers(2, 3, 5, low=0, high=200, dtype=np.uint32)
    for direction in ("LEFT", "RIGHT"):
        yield s("BitShift", unsigned, unsigned[0] % 8, since=11, direction=direction)


def _casts() -> Iterator[Sample]:
    for code in (TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT64):
        yield s("Cast", X, to=code)
    yield s("CastLike", X, integers(1), since=15)


def _reductions() -> Iterator[Sample]:
    for name in REDUCE.split():
        yield s(f"Reduce{name}", positive(2, 3, 5), until=17, axes=[1, -1], keepdims=0)
        yield s(f"Reduce{name}", positive(2, 3, 5), i64(1), since=18, const=[1])
        yield s(f"Reduce{name}", positive(2, 3, 5))
    yield s("ReduceSum", X, until=12, axes=[0], keepdims=1)
    yield s("ReduceSum", X, i64(0, 2), since=13, const=[1], keepdims=0)
    yield s("ReduceSum", X, since=13, noop_with_empty_axes=1)
    for name in ("ArgMax", "ArgMin"):
        yield s(name, X, axis=1)
        yield s(name, np.abs(X), since=12, axis=2, keepdims=0, select_last_index=1)
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        yield s(name, X)
        yield s(name, X, axis=1)
    yield s("CumSum", X, i64(1).reshape(()), since=11, const=[1])
    yield s("CumSum", X, np.array(-1, np.int32), since=11, const=[1], exclusive=1, reverse=1)
    yield s("CumProd", X, i64(1).reshape(()), since=26, const=[1])
    yield s("TopK", X, until=9, outputs=2, k=2)
    yield s("TopK", X, i64(3), since=10, outputs=2, const=[1], axis=-1)
    yield s("TopK", X, i64(2), since=11, outputs=2, const=[1], axis=1, largest=0)


def _normalizations() -> Iterator[Sample]:
    x, scale, bias = real(2, 4, 3, 5), real(4, seed=1), real(4, seed=2)
    yield s("BatchNormalization", x, scale, bias, real(4), positive(4))
    training = s(
        "BatchNormalization", x, scale, bias, real(4), positive(4), since=14, outputs=3, training_mode=1, momentum=0.75
    )
    yield training
    yield s("InstanceNormalization", x, scale, bias, epsilon=0.01)
    yield s("LayerNormalization", X, real(5), real(5, seed=1), since=17)
    yield s("LayerNormalization", X, real(5), until=16)
    yield s("LayerNormalization", X, real(3, 5), since=17, outputs=3, axis=1)
    yield s("GroupNormalization", x, real(2), real(2, seed=1), since=18, until=20, num_groups=2)
    yield s("GroupNormalization", x, scale, bias, since=21, num_groups=2)
    yield s("RMSNormalization", X, real(5), since=23)
    yield s("LpNormalization", X, axis=1, p=1)
    yield s("LpNormalization", X)
    yield s("LRN", x, size=3, alpha=0.5, bias=2.0)
    yield s("MeanVarianceNormalization", x, since=9)
    yield s("SimplifiedLayerNormalization", X, real(5), axis=-1)


def _contrib() -> Iterator[Sample]:
    for name in ("Gelu", "FastGelu", "QuickGelu"):
        yield s(name, X, domain=MS)
    yield s("FastGelu", X, real(5), domain=MS)
    yield s("BiasGelu", X, real(5), domain=MS)
    yield s("SimplifiedLayerNormalization", X, real(5), domain=MS)
    yield s("SkipLayerNormalization", X, real(2, 3, 5, seed=1), real(5), real(5, seed=1), domain=MS)
    yield s("SkipSimplifiedLayerNormalization", X, real(2, 3, 5, seed=1), real(5), domain=MS)
