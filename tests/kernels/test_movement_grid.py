"""GridSample, AffineGrid and Col2Im."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import check_node
from tests.kernels.test_movement_views import i64, sample


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    grid = np.random.default_rng(5).uniform(-2.5, 2.5, (2, 3, 5, 2)).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check_node("GridSample", [sample((2, 3, 4, 6)), grid], attrs, symbolic=[0])
    old = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    check_node("GridSample", [sample((2, 3, 4, 6)), grid], {**attrs, "mode": old}, opset=16, symbolic=False)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample_of_volumes(mode: str, padding: str, align: int) -> None:
    grid = np.random.default_rng(6).uniform(-1.8, 1.8, (1, 2, 3, 4, 3)).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check_node("GridSample", [sample((1, 2, 3, 4, 5)), grid], attrs, symbolic=[0])


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 3, 2, 3, 4)])
def test_affine_grid(align: int, size: tuple[int, ...]) -> None:
    spatial = len(size) - 2
    theta = sample((2, spatial, spatial + 1))
    check_node("AffineGrid", [theta, i64(*size)], {"align_corners": align}, constants=(1,))
    check_node("AffineGrid", [theta, i64(*size)], {"align_corners": align}, symbolic=[0])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_col2im(dtype: str) -> None:
    attrs = {"pads": [1, 0, 0, 2], "strides": [2, 1], "dilations": [1, 2]}
    x, image, block = sample((2, 3 * 6, 15), dtype), i64(6, 7), i64(2, 3)
    check_node("Col2Im", [x, image, block], attrs, constants=(1, 2), symbolic=[0])
    check_node("Col2Im", [sample((1, 2, 5), dtype), i64(6), i64(2)], constants=(1, 2))
