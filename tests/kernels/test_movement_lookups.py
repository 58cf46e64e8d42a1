"""Gather and Scatter families, Pad, and the operators that generate: types, opsets, corners, static and symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node, node_model, run_native
from tests.kernels.test_movement_views import WIDTHS, i64, sample

Array = np.ndarray[Any, Any]
INDEX = ["int32", "int64"]


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(dtype: str, index: str, axis: int) -> None:
    check_node("Gather", [sample((3, 4, 8), dtype), np.array([[0, -1, 2], [1, -3, 0]], index)], {"axis": axis})


@pytest.mark.parametrize("at", [1, -1])
def test_gather_of_a_known_scalar_is_a_view(at: int) -> None:
    plan = check_node("Gather", [sample((4, 8)), i64(at).reshape(())], {"axis": 0}, constants=(1,), symbolic=False)
    assert [s.kind for s in plan.steps] == ["copy"]
    check_node("Gather", [sample((4, 8)), i64(at)], {"axis": 1}, constants=(1,))


WILD = np.array([6, -7, 2**40, -(2**40), 2**31, -(2**31), 2**63 - 1, -(2**63), 5, -6], np.int64)
"""Indices into six elements; the last two are inside."""


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_gather_out_of_range_stays_inside(op: str, dtype: str) -> None:
    x = sample((6,), dtype)
    model, feeds = node_model(op, [x, WILD[:, None] if op == "GatherND" else WILD])
    (got,), _ = run_native(model, feeds)
    np.testing.assert_array_equal(got[-2:], x[[5, 0]])
    assert set(got.tolist()) <= set(x.tolist())


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("index", INDEX)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(dtype: str, index: str, axis: int) -> None:
    indices = np.random.default_rng(2).integers(-3, 3, (2, 3, 2)).astype(index)
    check_node("GatherElements", [sample((3, 3, 4), dtype), indices], {"axis": axis})


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    "indices,batch",
    [([[0, -1], [1, 2]], 0), ([[[0], [1]], [[-1], [0]]], 1), ([[[1, 0]], [[0, -2]]], 1), ([[1, 2, 3]], 0)],
)
def test_gather_nd(dtype: str, indices: Any, batch: int) -> None:
    tuples = np.array(indices, np.int64)
    check_node("GatherND", [sample((2, 3, 4), dtype), tuples], {"batch_dims": batch}, opset=13, symbolic=[0])


def test_gather_nd_at_opset_11() -> None:
    check_node("GatherND", [sample((2, 3)), np.array([[1], [0]], np.int64)], opset=11, symbolic=[0])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("opset,op", [(9, "Scatter"), (11, "ScatterElements"), (18, "ScatterElements")])
def test_scatter_elements(dtype: str, opset: int, op: str) -> None:
    indices = np.array([[1, 0, -1], [0, 3, 3]], np.int64)
    for axis in (0, 1):
        check_node(op, [sample((4, 5), dtype), indices, sample((2, 3), dtype)], {"axis": axis}, opset=opset)
    whole = np.array([[1, 0, -1, 2, 2], [0, 3, 2, 1, 2]], np.int32)
    x = sample((4, 5), dtype)
    last = x.copy()
    for r in range(2):
        for c in range(5):
            last[whole[r, c], c] = x[r, c]
    check_node(op, [x, whole, x[:2]], {"axis": 0}, opset=opset, expected=[last])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("reduction", ["add", "mul", "min", "max"])
def test_scatter_with_reductions(dtype: str, reduction: str) -> None:
    kind = np.dtype(dtype).kind
    low = 0 if kind == "u" else -4
    rng = np.random.default_rng(3)
    x, u = (rng.integers(low, 5, s).astype(dtype) for s in ((4, 3), (5, 3)))
    where = rng.integers(-4, 4, (5, 3)).astype(np.int64)
    expected = x.copy()
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
    for r, c in np.ndindex(5, 3):
        expected[where[r, c], c] = combine(expected[where[r, c], c], u[r, c])
    check_node("ScatterElements", [x, where, u], {"axis": 0, "reduction": reduction}, opset=18, expected=[expected])
    rows, expected = where[:, :1], x.copy()
    for r in range(5):
        expected[rows[r, 0]] = combine(expected[rows[r, 0]], u[r])
    inputs = [x, rows, u]
    check_node("ScatterND", inputs, {"reduction": reduction}, opset=18, expected=[expected], symbolic=[0, 2])


@pytest.mark.parametrize("dtype", WIDTHS)
def test_scatter_nd(dtype: str) -> None:
    x, where = sample((4, 3, 2), dtype), np.array([[0, -1], [3, 1], [0, 2]], np.int64)
    u = sample((3, 2), dtype)
    expected = x.copy()
    for k in range(3):
        expected[tuple(where[k])] = u[k]
    check_node("ScatterND", [x, where, u], opset=13, expected=[expected], symbolic=[0, 2])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 2, 1), (0, 0, 2, 0, 0, 0), (0, -1, 1, 0, 2, -1), (1, 0, 0, 1, 0, 0)])
def test_pad(dtype: str, mode: str, pads: tuple[int, ...]) -> None:
    if mode == "reflect" and pads[0] > 0:
        pads = (0, 0, 3, 0, 0, 1)
    x = sample((2, 3, 4), dtype)
    check_node("Pad", [x, i64(*pads)], {"mode": mode}, constants=(1,), expected=[padded(x, pads, mode)])


def padded(x: Array, pads: tuple[int, ...], mode: str, value: Any = 0) -> Array:
    """Negative pads cut first; then numpy."""
    r = x.ndim
    cut = x[tuple(slice(max(-pads[a], 0), d - max(-pads[a + r], 0)) for a, d in enumerate(x.shape))]
    more = [(max(pads[a], 0), max(pads[a + r], 0)) for a in range(r)]
    return np.pad(cut, more, mode, **({"constant_values": value} if mode == "constant" else {}))  # type: ignore


def test_pad_forms() -> None:
    x = sample((2, 3))
    check_node("Pad", [x], {"pads": [0, 1, 2, 0], "value": 1.5}, opset=7)
    check_node("Pad", [x, i64(0, 1, 2, 0), np.float32(2.5)], opset=13, constants=(1, 2))
    check_node("Pad", [x, i64(0, 1, 2, 0), np.float32(2.5)], opset=13, symbolic=[0])
    check_node("Pad", [x, i64(1, -1), None, i64(-1)], opset=18, constants=(1, 3))
    check_node("Pad", [sample((2, 3), "bool"), i64(0, 1, 2, 0), np.array(True)], opset=13, constants=(1, 2))
    check_node("Pad", [sample((0, 3)), i64(1, 0, 0, 1)], opset=13, constants=(1,))


@pytest.mark.parametrize("shape", [(6, 2), (1, 7), (2, 3)])
def test_center_crop_pad(shape: tuple[int, int]) -> None:
    x = sample((3, 5))
    check_node("CenterCropPad", [x, i64(*shape)], constants=(1,))
    check_node("CenterCropPad", [x, i64(shape[1])], {"axes": [-1]}, symbolic=[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "bool", "uint16"])
def test_constant_of_shape(dtype: str) -> None:
    import onnx

    value = onnx.numpy_helper.from_array(np.array([1 if dtype == "bool" else 77], dtype))
    check_node("ConstantOfShape", [i64(2, 3, 5)], {"value": value}, symbolic=False, on_device=False)
    check_node("ConstantOfShape", [i64(0, 3)], symbolic=False, on_device=False)


@pytest.mark.parametrize("dtype", [1, 7, 10, 9, 3])
def test_eye_like(dtype: int) -> None:
    from onnx.helper import tensor_dtype_to_np_dtype

    x = sample((4, 5), "int32")
    check_node("EyeLike", [x], {"dtype": dtype, "k": 1}, expected=[np.eye(4, 5, 1, tensor_dtype_to_np_dtype(dtype))])
    check_node("EyeLike", [x], {"k": -2})


def test_range() -> None:
    for numbers in ((3, 11, 3), (5, -6, -2), (4, 1, 1)):
        for dtype in INDEX:
            check_node("Range", [np.array(n, dtype) for n in numbers], on_device=dtype == "int64", symbolic=False)
    floats = [np.float32(n) for n in (1.0, 5.5, 0.75)]
    check_node("Range", floats, constants=(0, 1, 2), symbolic=False, on_device=False)


@pytest.mark.parametrize("index", ["int64", "int32", "float32", "uint8"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(index: str, dtype: str, axis: int) -> None:
    indices = np.array([[0, 3, 2], [1, 9, 4]] if index == "uint8" else [[0, -1, 2], [-5, 9, 4]], index)
    values = np.array([0, 1], dtype)
    depth = 5
    wrapped = np.where(indices < 0, indices.astype(np.int64) + depth, indices.astype(np.int64))
    place = np.arange(depth).reshape([depth if a == axis % 3 else 1 for a in range(3)])
    expected = values[(np.expand_dims(wrapped, axis) == place).astype(int)]
    inputs = [indices, i64(depth).reshape(()), values]
    check_node("OneHot", inputs, {"axis": axis}, constants=(1,), expected=[expected])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("upper,k", [(0, 0), (1, 1), (0, -1), (1, -9), (0, 9)])
def test_trilu(dtype: str, upper: int, k: int) -> None:
    x = sample((2, 3, 4), dtype)
    f = np.triu if upper else np.tril
    check_node("Trilu", [x, i64(k).reshape(())], {"upper": upper}, constants=(1,), expected=[f(x, k)])
    check_node("Trilu", [x], {"upper": upper}, expected=[f(x)])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence(dtype: str, time: int) -> None:
    x, lens = sample((4, 3, 2), dtype), i64(1, 4, 2) if time == 0 else i64(1, 3, 2, 0)
    expected = x.copy()
    for k, length in enumerate(lens):
        at = (slice(0, length), k) if time == 0 else (k, slice(0, length))
        expected[at] = x[at][::-1]
    check_node("ReverseSequence", [x, lens], {"time_axis": time, "batch_axis": 1 - time}, expected=[expected])


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_of_many_updates_the_last_wins(dtype: str) -> None:
    rng = np.random.default_rng(4)
    count = 70_000 if dtype == "float32" else 500
    x, where, u = sample((50, 8), dtype), rng.integers(-50, 50, (count, 1)), sample((count, 8), dtype)
    expected = x.copy()
    expected[where[:, 0]] = u  # numpy too lets the last of several win
    check_node("ScatterND", [x, where, u], expected=[expected], symbolic=[0, 2])
    indices = np.zeros((100, 8), np.int64)
    indices[:] = where[:100]
    columns = expected.copy()
    for k in range(100):
        columns[indices[k], np.arange(8)] = u[k]
    check_node("ScatterElements", [expected, indices, u[:100]], {"axis": 0}, expected=[columns])


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("repeats", [1, 2000])
def test_updates_out_of_range_change_nothing(op: str, reduction: str, repeats: int) -> None:
    """Few updates, and more than one invocation looks through."""
    x, where = sample((6,)), np.concatenate([np.tile(WILD[:-2], repeats), WILD[-2:]])
    expected = x.copy()
    expected[[5, 0]] = 7 if reduction != "add" else x[[5, 0]] + 7
    places = where[:, None] if op == "ScatterND" else where
    updates = np.full(where.shape, 7, np.float32)
    inputs, attrs = [x, places, updates], {"reduction": reduction}
    check_node(op, inputs, attrs, expected=[expected], symbolic=[0, 2] if op == "ScatterND" else True)
