"""RoiAlign, MaxRoiPool and DeformConv, against onnxruntime or the host provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import check_node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def boxes(count: int, width: float, height: float) -> Array:
    """Some reach beyond the image, one is empty."""
    a, b = RNG.uniform(-3, 1, (2, count)), RNG.uniform(0, 1.2, (2, count))
    corners = np.stack([a[0], a[1], b[0] * width, b[1] * height], 1)
    corners[0] = 2.0
    return corners.astype(np.float32)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, ratio: int, transform: str) -> None:
    x, rois, images = normal(2, 3, 9, 11), boxes(6, 22, 18), RNG.integers(0, 2, 6)
    attrs = {
        "mode": mode, "sampling_ratio": ratio, "output_height": 3, "output_width": 4, "spatial_scale": 0.5,
        "coordinate_transformation_mode": transform,
    }  # fmt: skip
    check_node("RoiAlign", [x, rois, images], attrs, opset=16)


def test_roi_align_of_opset_10() -> None:
    x, rois = normal(1, 2, 8, 8), boxes(3, 8, 8)
    check_node("RoiAlign", [x, rois, np.zeros(3, np.int64)], {"output_height": 2, "output_width": 2}, opset=10)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_max_roi_pool(scale: float) -> None:
    x = normal(2, 3, 9, 11)
    rois = np.concatenate([RNG.integers(0, 2, (5, 1)), boxes(5, 11 / scale, 9 / scale)], 1).astype(np.float32)
    check_node("MaxRoiPool", [x, rois], {"pooled_shape": [3, 4], "spatial_scale": scale})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(masked: bool, dtype: str) -> None:
    """Two groups, two groups of offsets, stride, dilation, padding."""
    x, w = normal(2, 4, 7, 8, dtype=dtype), normal(6, 2, 3, 2, dtype=dtype)
    attrs = {"group": 2, "offset_group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 1, 0, 1]}
    rows, columns = (7 + 1 - 3) // 2 + 1, 8 + 2 - 3 + 1
    offset = normal(2, 2 * 6 * 2, rows, columns, dtype=dtype)
    mask = normal(2, 2 * 6, rows, columns, dtype=dtype) if masked else None
    bias = normal(6, dtype=dtype) if masked else None
    loose = {"rtol": 1e-2, "atol": 2e-2} if dtype == "float16" else {}
    check_node("DeformConv", [x, w, offset, bias, mask], attrs, opset=19, constants=[1, 3], symbolic=[0, 2, 4], **loose)


def test_deform_conv_in_one_dimension() -> None:
    x, w = normal(1, 2, 9), normal(3, 2, 3)
    check_node("DeformConv", [x, w, normal(1, 3, 7)], {}, opset=19, constants=[1])
