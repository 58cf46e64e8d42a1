"""Random cases of elementwise operators, reductions, rows and normalizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from onnx import helper

from tests.conformance.random_draw import HALF, Draw, numpy_type
from tests.conformance.samples_data import Array, Sample, s
from tests.conformance.samples_elementwise import BINARY, COMPARE, POSITIVE, REDUCE, UNARY

MS = "com.microsoft"
Case = Callable[[Draw], Sample]
ALPHA = {"Elu", "LeakyRelu", "ThresholdedRelu", "Celu", "Selu", "HardSigmoid", "Swish"}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", *HALF)


def cases() -> Mapping[str, Case]:
    """A maker of cases for each operator."""
    out: dict[str, Case] = {}
    since = [(n, k) for table in (UNARY, POSITIVE) for k, names in table.items() for n in names.split()]
    for name, first in [*since, ("Acos", 7), ("Asin", 7), ("Atanh", 9)]:
        out[name] = partial(unary, name, first)
    for k, names in BINARY.items():
        out |= {name: partial(binary, name, k) for name in names.split()}
    for k, names in COMPARE.items():
        out |= {name: partial(compare, name, k) for name in names.split()}
    out |= {name: partial(logic, name) for name in ("And", "Or", "Xor")}
    out |= {name: partial(bitwise, name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")}
    out |= {f"Reduce{n}": partial(reduce, f"Reduce{n}", 18) for n in REDUCE.split()}
    out |= {n: partial(argument, n) for n in ("ArgMax", "ArgMin")}
    out |= {n: partial(softmax, n) for n in ("Softmax", "LogSoftmax", "Hardmax")}
    out |= {n: partial(cumulative, n) for n in ("CumSum", "CumProd")}
    out |= {f"ms {n}": partial(gelu, n) for n in ("Gelu", "FastGelu", "QuickGelu")}
    return out | {
        "Equal": partial(compare, "Equal", 11), "ReduceSum": partial(reduce, "ReduceSum", 13), "Not": not_, "Mod": mod,
        "BitwiseNot": bitwise_not, "BitShift": shift, "Clip": clip, "Where": where, "Cast": cast, "CastLike": cast_like,
        "Dropout": dropout, "TopK": topk, "ms BiasGelu": bias_gelu,
    }  # fmt: skip


def unary(op: str, since: int, d: Draw) -> Sample:
    opset = d.opset(op, since)
    name = d.type(op, opset, "T1" if op in ("IsInf", "IsNaN") else "T")
    attrs: dict[str, Any] = {"alpha": d.pick(0.5, 0.01, 1.5)} if op in ALPHA and d.chance(60) else {}
    if op == "IsInf":
        attrs = {f"detect_{sign}": d.number(0, 1) for sign in ("positive", "negative")}
    if op == "Shrink":
        attrs = {"lambd": d.pick(0.5, 1.5), "bias": d.pick(0.0, 0.5)}
    if op == "Gelu":
        attrs = {"approximate": d.pick("none", "tanh")}
    integers = op == "Shrink" and numpy_type(name).kind in "iu"  # onnxruntime rounds larger ones to f32
    x = d.exact(name, d.shape(), 0, 99) if integers else d.wild(name, d.shape())
    if op == "Sign" and numpy_type(name).itemsize == 2 and numpy_type(name).kind not in "iu":
        x = np.where(np.isnan(x.astype(np.float32)), x.dtype.type(0), x)  # EXCLUDED["Sign"]
    return s(op, x, since=opset, **attrs)


def operands(d: Draw, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together; one of them is the whole."""
    shape = d.shape()
    shapes = [shape, *(d.broadcast(shape) for _ in range(count - 1))]
    return shapes[::-1] if d.chance(50) else shapes


def binary(op: str, since: int, d: Draw) -> Sample:
    opset = d.opset(op, since)
    several = op in ("Max", "Mean", "Min", "Sum")
    shapes = operands(d, d.number(1, 5) if several else 2)
    if op == "PRelu":  # the slope broadcasts to x, and not the other way
        shapes = [shapes[0], d.broadcast(shapes[0])]
    name = d.type(op, opset)
    if op in ("Sum", "Mean"):
        return s(op, *(d.exact(name, x) for x in shapes), since=opset)
    arrays = [d.wild(name, x) for x in shapes]
    if numpy_type(name).kind in "iu" and op in ("Div", "Pow"):
        arrays = [d.exact(name, shapes[0], -9, 9), d.exact(name, shapes[1], *((1, 9) if op == "Div" else (0, 2)))]
    return s(op, *arrays, since=opset)


def compare(op: str, since: int, d: Draw) -> Sample:
    opset = d.opset(op, since)
    name, (a, b) = d.type(op, opset), operands(d, 2)
    x, y = d.wild(name, a), d.wild(name, b)
    return s(op, x, y if d.chance(70) else np.asarray(x.reshape(-1)[: y.size].reshape(b) if x.size >= y.size else y),
             since=opset)  # fmt: skip


def logic(op: str, d: Draw) -> Sample:
    return s(op, *(d.wild("bool", x) for x in operands(d, 2)), since=d.opset(op))


def not_(d: Draw) -> Sample:
    return s("Not", d.wild("bool", d.shape()))


def bitwise(op: str, d: Draw) -> Sample:
    name = d.pick(*INTEGERS)
    return s(op, *(d.wild(name, x) for x in operands(d, 2)), since=18)


def bitwise_not(d: Draw) -> Sample:
    return s("BitwiseNot", d.wild(d.pick(*INTEGERS), d.shape()), since=18)


def shift(d: Draw) -> Sample:
    opset = d.opset("BitShift", 11)
    name, (a, b) = d.type("BitShift", opset, only=("uint8", "uint16", "uint32", "uint64")), operands(d, 2)
    amount = d.values.integers(0, np.iinfo(name).bits, b).astype(name)
    return s("BitShift", d.wild(name, a), amount, since=opset, direction=d.pick("LEFT", "RIGHT"))


def mod(d: Draw) -> Sample:
    opset = d.opset("Mod", 10)
    name, (a, b) = d.type("Mod", opset), operands(d, 2)
    y = d.exact(name, b, 1, 9)
    if numpy_type(name).kind != "u" and d.chance(50):
        y = np.asarray(-y)
    return s("Mod", d.exact(name, a, -60, 60), y, since=opset, fmod=int(numpy_type(name).kind not in "iu"))


def clip(d: Draw) -> Sample:
    opset = d.opset("Clip")
    name, x = d.type("Clip", opset), d.shape()
    if opset < 11:
        return s("Clip", d.wild(name, x), since=opset, min=-1.5, max=d.pick(2.0, 0.5))
    limits = [d.exact(name, (), -8, 0) if d.chance(70) else None, d.exact(name, (), 1, 9)]
    return s("Clip", d.wild(name, x), *limits, since=opset)


def where(d: Draw) -> Sample:
    opset = d.opset("Where", 9)
    name, (a, b, c) = d.type("Where", opset), operands(d, 3)
    return s("Where", d.wild("bool", a), d.wild(name, b), d.wild(name, c), since=opset)


def convertible(d: Draw, source: str, target: str) -> Array:
    """Values that the target type has: what C leaves open of others is in tests/kernels/test_elementwise_cast.py."""
    if numpy_type(target).kind in "iu" and numpy_type(source).kind not in "iub":
        return d.exact(source, d.shape(), 0 if numpy_type(target).kind == "u" else -1000, 1000)
    return d.wild(source, d.shape())


def cast(d: Draw) -> Sample:
    opset = d.opset("Cast")
    source, target = d.type("Cast", opset, "T1"), d.type("Cast", opset, "T2")
    code = helper.np_dtype_to_tensor_dtype(numpy_type(target))
    return s("Cast", convertible(d, source, target), since=opset, to=code)


def cast_like(d: Draw) -> Sample:
    opset = d.opset("CastLike", 15)
    source, target = d.type("CastLike", opset, "T1"), d.type("CastLike", opset, "T2")
    return s("CastLike", convertible(d, source, target), d.wild(target, (2,)), since=opset)


def dropout(d: Draw) -> Sample:
    opset = d.opset("Dropout")
    return s("Dropout", d.wild(d.type("Dropout", opset), d.shape()), since=opset, outputs=1 if opset < 12 else 2)


def gelu(op: str, d: Draw) -> Sample:
    shape = d.shape(1, 4)
    bias = [d.normal("float32", shape[-1:])] if op == "FastGelu" and d.chance(50) else []
    return s(op, d.normal("float32", shape, 3), *bias, domain=MS)


def bias_gelu(d: Draw) -> Sample:
    shape = d.shape(1, 4)
    return s("BiasGelu", d.normal("float32", shape, 3), d.normal("float32", shape[-1:]), domain=MS)


def some_axes(d: Draw, rank: int) -> list[int]:
    """Different axes, counted from either end, in any order."""
    axes = d.random.sample(range(rank), d.number(1, rank)) if rank else []
    return [a - rank if d.chance(50) else a for a in axes]


def reduce(op: str, axes_are_input: int, d: Draw) -> Sample:
    opset = d.opset(op)
    x = d.shape(1, 5, empty=op not in ("ReduceMax", "ReduceMin", "ReduceMean"))
    name = d.type(op, opset)
    if op == "ReduceLogSumExp" and numpy_type(name).kind in "iu":  # EXCLUDED
        name = "float32"
    few = (-1, 1) if op == "ReduceProd" else (0, 1)
    positive = op in ("ReduceProd", "ReduceLogSum")
    data = d.exact(name, x, *(few if numpy_type(name).kind in "iu" else (4, 16) if positive else (-16, 16)))
    axes, attrs = some_axes(d, len(x)), {"keepdims": d.number(0, 1)}
    if d.chance(20):
        return s(op, data, since=opset, **attrs)
    if opset < axes_are_input:
        return s(op, data, since=opset, axes=axes if opset >= 11 else [a % len(x) for a in axes], **attrs)
    if d.chance(20):
        return s(op, data, np.array([], np.int64), since=opset, const=[1], noop_with_empty_axes=d.number(0, 1), **attrs)
    return s(op, data, np.array(axes, np.int64), since=opset, const=[1], **attrs)


def argument(op: str, d: Draw) -> Sample:
    opset = d.opset(op)
    x = d.shape(1, 5, empty=False)
    axis = d.axis(len(x)) if opset >= 11 else d.number(0, len(x) - 1)
    attrs = {"select_last_index": d.number(0, 1)} if opset >= 12 else {}
    return s(op, d.exact(d.type(op, opset), x, 0, 9), since=opset, axis=axis, keepdims=d.number(0, 1), **attrs)


def softmax(op: str, d: Draw) -> Sample:
    opset = d.opset(op)
    x = d.shape(1, 5, empty=False)
    data = d.normal(d.type(op, opset), x, d.pick(1.0, 30.0))
    if op != "Hardmax" and d.chance(20):
        data[d.values.random(x) < 0.1] = -np.inf
    return s(op, data, since=opset, axis=d.axis(len(x)) if opset >= 11 else d.number(0, len(x) - 1))


def cumulative(op: str, d: Draw) -> Sample:
    opset = d.opset(op, 11 if op == "CumSum" else 26)
    x, name = d.shape(1, 4), d.type(op, opset)
    data = d.exact(name, x, *((-16, 16) if op == "CumSum" else (-1, 1)), unit=8 if op == "CumSum" else 1)
    axis = np.array(d.axis(len(x)), d.pick("int64", "int32"))
    return s(op, data, axis, since=opset, const=[1], exclusive=d.number(0, 1), reverse=d.number(0, 1))


def topk(d: Draw) -> Sample:
    opset = d.opset("TopK", 10)
    x = d.shape(1, 4, empty=False)
    axis = d.axis(len(x)) if opset >= 11 else d.number(0, len(x) - 1)
    k = np.array([d.number(1, x[axis])])
    attrs = {"largest": d.number(0, 1)} if opset >= 11 else {}
    return s("TopK", d.exact(d.type("TopK", opset), x, 0, 30), k, since=opset, outputs=2, const=[1], axis=axis, **attrs)
