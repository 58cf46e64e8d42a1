"""Reduce*, ArgMax and ArgMin against numpy (by the ONNX text): axes, types, lengths, empty sets, NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from tests.kernels.harness import check_node, device, node_model
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.runtime.session import Session

Array = np.ndarray[Any, Any]
Reduction = Callable[[Array, tuple[int, ...], bool], Array]

RNG = np.random.default_rng(7)

REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": lambda x, a, k: x.sum(axis=a, keepdims=k),
    "ReduceMean": lambda x, a, k: x.mean(axis=a, keepdims=k),
    "ReduceMax": lambda x, a, k: x.max(axis=a, keepdims=k, initial=-np.inf),
    "ReduceMin": lambda x, a, k: x.min(axis=a, keepdims=k, initial=np.inf),
    "ReduceProd": lambda x, a, k: x.prod(axis=a, keepdims=k),
    "ReduceL1": lambda x, a, k: np.abs(x).sum(axis=a, keepdims=k),
    "ReduceL2": lambda x, a, k: np.sqrt((x * x).sum(axis=a, keepdims=k)),
    "ReduceLogSum": lambda x, a, k: np.log(x.sum(axis=a, keepdims=k)),
    "ReduceLogSumExp": lambda x, a, k: np.log(np.exp(x).sum(axis=a, keepdims=k)),
    "ReduceSumSquare": lambda x, a, k: (x * x).sum(axis=a, keepdims=k),
}
AXES_ARE_INPUT = {name: 13 if name == "ReduceSum" else 18 for name in REDUCTIONS}


def check_reduction(name: str, x: Array, axes: list[int], keepdims: int, opset: int) -> None:
    with np.errstate(all="ignore"):
        want = REDUCTIONS[name](x.astype(np.float64), tuple(axes), bool(keepdims)).astype(x.dtype)
    attrs: dict[str, Any] = {"keepdims": keepdims}
    inputs = [x]
    if opset >= AXES_ARE_INPUT[name]:
        inputs.append(np.array(axes, np.int64))
    else:
        attrs["axes"] = axes
    check_node(name, inputs, attrs, opset=opset, constants=[1], expected=[want])


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 4, 5), [1]), ((3, 4, 5), [-1, 0]), ((2, 3, 4, 5, 6), [0, 2, 4]), ((2, 3, 4, 5, 6), [1, 3]), ((7,), [0])],
)
def test_axes(name: str, shape: tuple[int, ...], axes: list[int]) -> None:
    x = RNG.uniform(0.5, 1.5, shape).astype(np.float32)
    check_reduction(name, x, axes, 1, 20)
    check_reduction(name, x, axes, 0, 11)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_opset(name: str) -> None:
    x = RNG.uniform(0.5, 1.5, (3, 5)).astype(np.float32)
    for opset in (7, 11, 12, 13, 17, 18, 20, 23, 24):
        check_reduction(name, x, [1], 1, opset)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("name", REDUCTIONS)
def test_empty_set_is_the_identity(name: str) -> None:
    check_reduction(name, np.zeros((2, 0, 4), np.float32), [1], 1, 20)
    check_reduction(name, np.zeros((2, 0, 4), np.float32), [0], 0, 20)


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"])
def test_rows_beyond_the_loop_limit(name: str) -> None:
    check_reduction(name, RNG.uniform(0, 1, (2, 70_001)).astype(np.float32), [1], 1, 20)
    check_reduction(name, RNG.uniform(0, 1, (70_001, 2)).astype(np.float32), [0], 0, 20)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_one_dispatch_where_rows_are_short_or_many(dtype: type) -> None:
    """One plan for all sizes: the sizes of a run decide."""
    model, _ = node_model("ReduceSum", [np.zeros((2, 2), dtype)], {"keepdims": 0}, symbolic=True, opset=11)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("axes", [1]))
    plan = compile_model(model, CompileOptions(target=device().target))
    with Session(plan, device()) as session:
        for rows, length, dispatches in ((3, 0, 1), (3, 7, 1), (3, 512, 1), (3, 513, 2), (64, 700, 1), (64, 8193, 2)):
            x = RNG.integers(-3, 4, (rows, length)).astype(dtype)
            before = device().counters.dispatches
            (got,) = session.run(None, {"x0": x})
            assert device().counters.dispatches - before == dispatches
            np.testing.assert_array_equal(got, x.sum(axis=1, dtype=np.int64).astype(dtype))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_float16(name: str) -> None:
    check_reduction(name, RNG.uniform(0.5, 1.5, (3, 5, 7)).astype(np.float16), [1], 0, 20)


def test_float16_sums_in_float32() -> None:
    x = np.full((1, 5000), 1.0, np.float16)
    check_node("ReduceMean", [x], {"axes": [1]}, opset=13, expected=[np.ones((1, 1), np.float16)])


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"])
def test_integers_are_exact(name: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min // 16, info.max // 16, (3, 9, 2), dtype=dtype)
    fold = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}.get(name, np.sum)
    terms = np.abs(x) if name == "ReduceL1" else x * x if name == "ReduceSumSquare" else x
    want = fold(terms, axis=1, keepdims=True).astype(dtype)
    check_node(name, [x, np.array([1], np.int64)], opset=20, constants=[1], expected=[want])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_means_truncate(dtype: str) -> None:
    x = np.array([[7, 8, -30], [1, 1, 2], [-1, -1, 0]], dtype)
    want = np.array([[-5], [1], [0]], dtype)
    check_node("ReduceMean", [x], {"axes": [1]}, opset=13, expected=[want])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_small_types(name: str, dtype: str) -> None:
    x = RNG.integers(0, 2 if dtype == "bool" else 120, (3, 5)).astype(dtype)
    want = getattr(np, name[6:].lower())(x, axis=1)
    axes = np.array([1], np.int64)
    check_node(name, [x, axes], {"keepdims": 0}, opset=20, constants=[1], expected=[want])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "bool"])
def test_extremes_of_nothing(dtype: str) -> None:
    low, high = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x, axes = np.zeros((2, 0), dtype), np.array([1], np.int64)
    for name, value in (("ReduceMax", low), ("ReduceMin", high)):
        want = np.full((2,), value, dtype)
        check_node(name, [x, axes], {"keepdims": 0}, opset=20, constants=[1], expected=[want])


def test_nan_and_infinity() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3], [inf, 1, 2], [-inf, -inf, -inf], [-inf, 1, 2], [900, 901, -inf]], np.float32)
    for name in ("ReduceMax", "ReduceMin"):
        want = getattr(np, name[6:].lower())(x, axis=1, keepdims=True)
        check_node(name, [x], {"axes": [1]}, opset=13, expected=[want])
    want = np.array([[nan], [inf], [-inf], [2.3132617], [901.31323]], np.float32)
    check_node("ReduceLogSumExp", [x], {"axes": [1]}, opset=13, expected=[want])


def test_no_axes() -> None:
    x = RNG.uniform(0.5, 1.5, (3, 4)).astype(np.float32)
    none = np.zeros((0,), np.int64)
    check_node("ReduceSum", [x], opset=20, expected=[x.sum(keepdims=True)])
    check_node("ReduceSum", [x, none], opset=20, constants=[1], expected=[x.sum(keepdims=True)])
    noop = {"noop_with_empty_axes": 1}
    check_node("ReduceSum", [x, none], noop, opset=20, constants=[1], expected=[x])
    check_node("ReduceSumSquare", [x], noop, opset=20, expected=[x * x])


def test_scalars() -> None:
    check_node("ReduceSum", [np.float32(3)], opset=20, expected=[np.float32(3)])


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_arg_types_and_ties(name: str, dtype: str) -> None:
    x = RNG.integers(0, 5, (3, 4, 5)).astype(dtype)
    find = np.argmax if name == "ArgMax" else np.argmin
    check_node(name, [x], {"axis": 1}, opset=13, expected=[np.expand_dims(find(x, 1), 1)])
    last = x.shape[2] - 1 - find(np.flip(x, 2), 2)
    check_node(name, [x], {"axis": -1, "keepdims": 0, "select_last_index": 1}, opset=13, expected=[last])


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_arg_long_rows_and_nan(name: str) -> None:
    find = np.argmax if name == "ArgMax" else np.argmin
    x = RNG.standard_normal((2, 70_001)).astype(np.float32)
    check_node(name, [x], {"axis": 1, "keepdims": 0}, opset=11, expected=[find(x, 1)])
    x = np.array([[1, np.nan, 3, np.nan], [np.inf, 1, -np.inf, np.inf]], np.float32)
    check_node(name, [x], {"axis": 1, "keepdims": 0}, opset=7, expected=[find(x, 1)])
