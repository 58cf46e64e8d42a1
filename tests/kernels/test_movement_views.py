"""Operators that only move elements: every way that `view.move` takes, all widths, odd corners, static and symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node, device

WIDTHS = ["float32", "float16", "int64", "int8", "bool"]
RNG = np.random.default_rng(1)


def sample(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Distinct bits where the type has room for them."""
    count = int(np.prod(shape))
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    return (np.arange(count) * 7919 % 65537 - 1000).reshape(shape).astype(dtype)


def i64(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    "shape,perm",
    [
        ((2, 3, 5), (2, 0, 1)), ((8, 12), (1, 0)), ((3, 8, 4), (0, 2, 1)), ((2, 3, 4, 8), (0, 2, 1, 3)),
        ((1, 5, 1, 4), (2, 1, 0, 3)), ((2, 1, 3, 2, 2, 3), (5, 0, 3, 1, 4, 2)), ((0, 3), (1, 0)), ((7,), (0,)),
    ],
)  # fmt: skip
def test_transpose(dtype: str, shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    check_node("Transpose", [sample(shape, dtype)], {"perm": perm})


def test_transpose_reverses_axes_by_default_and_takes_scalars() -> None:
    check_node("Transpose", [sample((2, 3, 4, 5))])
    check_node("Transpose", [np.float32(3.0).reshape(())])


def test_transpose_of_blocks_reads_vec4() -> None:
    plan = check_node("Transpose", [sample((8, 12))])
    assert "read: u32" in plan.kernels[0].wgsl


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    "starts,ends,axes,steps",
    [
        ((0, 1), (3, -1), (0, 1), (1, 1)), ((-1,), (-(2**63),), (1,), (-1,)), ((1, 8), (2**63 - 1, 0), (0, 1), (2, -3)),
        ((20,), (30,), (0,), (1,)), ((-100,), (2,), (1,), (1,)), ((0,), (8,), (1,), (1,)), ((2,), (2,), (0,), (1,)),
        ((-50,), (-100,), (1,), (-1,)), ((4,), (8,), (-1,), (1,)), ((0, 0), (2**31 - 1, 2), None, None),
    ],
)  # fmt: skip
def test_slice(dtype: str, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    inputs = [sample((4, 9), dtype), i64(*starts), i64(*ends)]
    inputs += [] if axes is None else [i64(*axes), i64(*steps)]
    check_node("Slice", inputs, constants=range(1, len(inputs)))


@pytest.mark.parametrize("opset", [7, 9])
def test_slice_by_attributes(opset: int) -> None:
    check_node("Slice", [sample((5, 6))], {"starts": [1, -3], "ends": [100, -1], "axes": [0, 1]}, opset=opset)


def test_slice_of_contiguous_words_is_a_copy() -> None:
    plan = check_node("Slice", [sample((8, 4)), i64(2), i64(6)], constants=(1, 2))
    assert not plan.kernels and [s.kind for s in plan.steps] == ["copy"]


def test_slice_with_bounds_that_are_fed() -> None:
    check_node("Slice", [sample((5, 6)), i64(1, -4), i64(-1, 5)], symbolic=[0])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split(dtype: str, axis: int) -> None:
    x = sample((6, 4, 6), dtype)
    check_node("Split", [x], {"axis": axis}, outputs=2, opset=13)
    check_node("Split", [x], {"axis": axis, "num_outputs": 2}, outputs=2, opset=18)


def test_split_forms() -> None:
    x = sample((7, 5))
    check_node("Split", [x], {"axis": 0, "split": [1, 6]}, outputs=2, opset=11)
    check_node("Split", [x, i64(2, 0, 5)], outputs=3, opset=13, constants=(1,))
    check_node("Split", [x], {"num_outputs": 3}, outputs=3, opset=18)
    check_node("Split", [x], {"num_outputs": 2}, outputs=[False, True], opset=18, expected=[x[4:]])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("sizes", [(1, 2, 3), (4, 8, 4), (2, 0, 2)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(dtype: str, sizes: tuple[int, ...], axis: int) -> None:
    parts = []
    for size in sizes:
        shape = [2, 3, 4]
        shape[axis] = size
        parts.append(sample(tuple(shape), dtype))
    check_node("Concat", parts, {"axis": axis})


def test_concat_of_many_and_of_one() -> None:
    many = [sample((3, 1 + k % 3), "int8") for k in range(40)]
    check_node("Concat", many, {"axis": 1})
    check_node("Concat", many[:1], {"axis": 0})
    check_node("Concat", [many[0], many[0]], {"axis": -1})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_concat_of_large_rows(dtype: str) -> None:
    """On software adapters there is a kernel for each part."""
    parts = [sample((2, 37, size), dtype) for size in (16, 224, 32)]
    plan = check_node("Concat", parts, {"axis": 2}, symbolic=[0])
    assert [s.kind for s in plan.steps] == ["dispatch"] * (3 if device().target.kind == "software" else 1)


def test_concat_of_runs_is_copies() -> None:
    plan = check_node("Concat", [sample((1, 2, 3)), sample((1, 4, 3))], {"axis": 1})
    assert [s.kind for s in plan.steps] == ["copy", "copy"]


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    "shape,target",
    [((3, 1), (2, 1, 6)), ((1, 4, 1), (3, 1, 5)), ((), (2, 3)), ((4,), (1,)), ((2, 1), (2, 0)), ((2, 3), (2, 3))],
)
def test_expand(dtype: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    check_node("Expand", [sample(shape, dtype), i64(*target)], constants=(1,))


def test_expand_to_a_shape_that_is_fed() -> None:
    check_node("Expand", [sample((3, 1)), i64(2, 3, 4)], symbolic=[0])


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(
    "shape,repeats", [((2, 3), (2, 2)), ((4, 4), (3, 1)), ((2, 3, 4), (1, 2, 3)), ((3,), (0,)), ((5,), (4,))]
)
def test_tile(dtype: str, shape: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    check_node("Tile", [sample(shape, dtype), i64(*repeats)], constants=(1,))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(dtype: str, mode: str) -> None:
    x = sample((2, 12, 2, 3), dtype)
    expected = _depth_to_space(x, 2, mode)
    check_node("DepthToSpace", [x], {"blocksize": 2, "mode": mode}, opset=13, expected=[expected])
    check_node("SpaceToDepth", [_depth_to_space(x, 2, "DCR")], {"blocksize": 2}, expected=[x])


def test_depth_to_space_before_modes() -> None:
    x = sample((1, 8, 2, 2))
    check_node("DepthToSpace", [x], {"blocksize": 2}, opset=7, expected=[_depth_to_space(x, 2, "DCR")])


def _depth_to_space(x: np.ndarray[Any, Any], s: int, mode: str) -> np.ndarray[Any, Any]:
    """As the ONNX text spells it."""
    b, c, h, w = x.shape
    if mode == "DCR":
        t = x.reshape(b, s, s, c // (s * s), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        t = x.reshape(b, c // (s * s), s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return t.reshape(b, c // (s * s), h * s, w * s)


@pytest.mark.parametrize(
    "shape,target,allowzero",
    [
        ((2, 3, 4), (4, -1), 0), ((2, 3, 4), (0, 0, 2, -1), 0), ((2, 3), (6,), 0), ((), (1, 1), 0),
        ((0, 3), (3, 0), 1), ((4, 1), (2, 2), 0),
    ],
)  # fmt: skip
def test_reshape(shape: tuple[int, ...], target: tuple[int, ...], allowzero: int) -> None:
    attrs = {"allowzero": allowzero} if allowzero else {}
    check_node("Reshape", [sample(shape), i64(*target)], attrs, constants=(1,))
    check_node("Reshape", [sample(shape), i64(*target)], attrs, symbolic=[0])


@pytest.mark.parametrize("axis", [-2, 0, 1, 3])
def test_flatten(axis: int) -> None:
    check_node("Flatten", [sample((2, 3, 4))], {"axis": axis}, opset=13)


def test_squeeze_and_unsqueeze() -> None:
    x = sample((1, 3, 1, 2))
    check_node("Squeeze", [x], symbolic=False)
    check_node("Squeeze", [x, i64(0, -2)], constants=(1,))
    check_node("Squeeze", [x], {"axes": [0]}, opset=11)
    check_node("Unsqueeze", [x, i64(-1, 0)], constants=(1,))
    check_node("Unsqueeze", [x], {"axes": [1, 5]}, opset=11)


def test_identity_of_every_width() -> None:
    for dtype in (*WIDTHS, "uint8", "int16", "uint16", "int32", "uint32", "uint64"):
        check_node("Identity", [sample((3, 5), dtype)])


def test_shape_and_size() -> None:
    x = sample((2, 3, 4))
    check_node("Shape", [x])
    check_node("Shape", [x], {"start": 1, "end": -1}, opset=15)
    check_node("Size", [x])
    check_node("Shape", [sample(())])
