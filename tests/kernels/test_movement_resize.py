"""Resize and Upsample: modes, coordinates, roundings and forms, against onnxruntime or onnx's own reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference.ops.op_resize import Resize as Reference

from tests.kernels.harness import check_node
from tests.kernels.test_movement_views import i64, sample

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SIZES = [(1, 2, 7, 9), (1, 2, 3, 5), (1, 2, 4, 12)]


def f32(*numbers: float) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.float32)


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("size", SIZES)
def test_nearest(mode: str, rounding: str, size: tuple[int, ...]) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": rounding}
    check_node("Resize", [sample((1, 2, 4, 6)), None, None, i64(*size)], attrs, constants=(3,))


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32", "int8"])
def test_nearest_of_other_types(dtype: str) -> None:
    x = sample((1, 2, 3, 4), dtype)
    expected = x.repeat(2, axis=2).repeat(2, axis=3)
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    check_node("Resize", [x, None, f32(1, 1, 2, 2)], attrs, constants=(2,), expected=[expected])


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("size", SIZES)
def test_linear(mode: str, size: tuple[int, ...]) -> None:
    attrs = {"mode": "linear", "coordinate_transformation_mode": mode}
    check_node("Resize", [sample((1, 2, 4, 6)), None, None, i64(*size)], attrs, constants=(3,))


@pytest.mark.parametrize("mode", COORDINATES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("exclude", [0, 1])
def test_cubic(mode: str, size: tuple[int, ...], exclude: int) -> None:
    attrs = {"mode": "cubic", "coordinate_transformation_mode": mode, "exclude_outside": exclude, "cubic_coeff_a": -0.5}
    check_node("Resize", [sample((1, 2, 4, 6)), None, None, i64(*size)], attrs, constants=(3,))


@pytest.mark.parametrize("scales", [(1, 1, 0.6, 0.6), (1, 1, 2, 3), (1, 1, 1.02, 0.5), (1, 1, 4, 4)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_scales(scales: tuple[float, ...], mode: str, opset: int) -> None:
    inputs = [sample((1, 1, 5, 8)), f32() if opset < 13 else None, f32(*scales)]
    check_node("Resize", inputs, {"mode": mode}, opset=opset, constants=(1, 2))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_before_opset_11(mode: str) -> None:
    for scales in ((1, 1, 2, 3), (1, 1, 0.6, 0.5)):
        check_node("Resize", [sample((1, 1, 4, 6)), f32(*scales)], {"mode": mode}, opset=10, constants=(1,))
    check_node("Upsample", [sample((1, 1, 4, 6)), f32(1, 1, 2, 3)], {"mode": mode}, opset=9, constants=(1,))
    check_node("Upsample", [sample((1, 1, 4, 6))], {"mode": mode, "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_antialias(mode: str, exclude: int) -> None:
    x = sample((1, 1, 9, 12))
    attrs = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    for sizes in ((1, 1, 4, 5), (1, 1, 12, 3)):
        expected = reference(x, attrs, sizes=np.array(sizes))
        check_node("Resize", [x, None, None, i64(*sizes)], attrs, constants=(3,), expected=[expected])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize(mode: str) -> None:
    x = sample((1, 1, 6, 6))
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    roi = f32(0, 0, 0.4, -0.3, 1, 1, 1.15, 0.7)
    sizes = i64(1, 1, 5, 4)
    expected = reference(x, attrs, roi=roi, sizes=sizes)
    check_node("Resize", [x, roi, None, sizes], attrs, constants=(1, 3), expected=[expected])
    check_node("Resize", [x, roi, None, sizes], attrs, constants=(3,), expected=[expected], symbolic=[0])


def test_axes_and_policies() -> None:
    x = sample((2, 3, 6, 8))
    check_node("Resize", [x, None, None, i64(4, 12)], {"axes": [-1, 2], "mode": "linear"}, opset=18, constants=(3,))
    for policy in ("not_larger", "not_smaller"):
        attrs = {"keep_aspect_ratio_policy": policy, "axes": [2, 3]}
        expected = reference(x, attrs, sizes=np.array([7, 8]))
        inputs = [x, None, None, i64(7, 8)]
        check_node("Resize", inputs, attrs, opset=18, constants=(3,), expected=[expected], symbolic=False)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("shape,scales", [((2, 5), (2, 0.7)), ((7,), (1.5,)), ((1, 2, 3, 4, 5), (1, 2, 1.5, 2, 0.6))])
def test_other_ranks(mode: str, shape: tuple[int, ...], scales: tuple[float, ...]) -> None:
    x = sample(shape)
    expected = reference(x, {"mode": mode}, scales=np.array(scales, np.float32))
    check_node("Resize", [x, None, f32(*scales)], {"mode": mode}, constants=(2,), expected=[expected])


def test_sizes_that_are_fed() -> None:
    for mode in ("nearest", "linear"):
        check_node("Resize", [sample((1, 1, 4, 6)), None, None, i64(1, 1, 8, 9)], {"mode": mode}, symbolic=[0])


def test_half_precision() -> None:
    x = sample((1, 2, 4, 6), "float16")
    expected = reference(x.astype(np.float32), {"mode": "linear"}, sizes=np.array([1, 2, 9, 5])).astype(np.float16)
    check_node("Resize", [x, None, None, i64(1, 2, 9, 5)], {"mode": "linear"}, constants=(3,), expected=[expected])


def reference(x: np.ndarray[Any, Any], attrs: dict[str, Any], **inputs: Any) -> np.ndarray[Any, Any]:
    """onnx's reference operator."""
    names = ["x", *("" if k not in inputs else k for k in ("roi", "scales", "sizes"))]
    node = helper.make_node("Resize", names, ["y"], **attrs)
    op = Reference(node, {"opsets": {"": 19}, "verbose": 0, "log": lambda *_: None, "new_ops": None})
    return op.run(x, *(inputs.get(k) for k in ("roi", "scales", "sizes")))[0].astype(x.dtype)  # type: ignore
