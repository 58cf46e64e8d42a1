"""Convolution, pooling, resizing, sampling and regions on the CPU provider, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.host_oracle import Draw, agrees, i64, scalar
from webrt.host import evaluate
from webrt.host.graph import NodeProto

SEEDS = range(24)


def _spatial(d: Draw) -> tuple[dict[str, Any], list[int], list[int]]:
    """Attributes of a window operator, its kernel, and an input size that fits."""
    rank = d.number(1, 4)
    kernel = [d.number(1, 4) for _ in range(rank)]
    dilations = [d.number(1, 3) for _ in range(rank)]
    mode = d.pick("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if mode.startswith("SAME"):
        dilations = [1] * rank
    attributes: dict[str, Any] = {"strides": [d.number(1, 3) for _ in range(rank)], "dilations": dilations}
    if mode == "NOTSET":
        attributes["pads"] = [d.number(0, k) for k in kernel * 2]
    else:
        attributes["auto_pad"] = mode
    return attributes, kernel, [k * e + d.number(0, 6) for k, e in zip(kernel, dilations)]


@pytest.mark.parametrize("seed", SEEDS)
def test_conv(seed: int) -> None:
    d = Draw(seed)
    attributes, kernel, size = _spatial(d)
    group = d.pick(1, 1, 2, 3)
    channels, filters = group * d.number(1, 3), group * d.number(1, 4)
    x, w = d.real(2, channels, *size), d.real(filters, channels // group, *kernel)
    bias = d.real(filters) if d.chance(0.5) else None
    agrees("Conv", [x, w, bias], opset=d.pick(7, 11, 22), group=group, **attributes)


@pytest.mark.parametrize("seed", SEEDS)
def test_conv_transpose(seed: int) -> None:
    d = Draw(seed)
    attributes, kernel, size = _spatial(d)
    if attributes.get("auto_pad", "").startswith("SAME"):
        kernel = [max(k, s) for k, s in zip(kernel, attributes["strides"])]  # below, ONNX Runtime misses sizes
    group = d.pick(1, 2)
    if d.chance(0.4):
        attributes["output_padding"] = [d.number(0, s) for s in attributes["strides"]]
    x, w = d.real(2, 2 * group, *size), d.real(2 * group, 3, *kernel)
    agrees("ConvTranspose", [x, w, d.real(3 * group)], opset=d.pick(7, 11, 22), group=group, **attributes)


@pytest.mark.parametrize("seed", SEEDS)
def test_pools(seed: int) -> None:
    d = Draw(seed)
    attributes, kernel, size = _spatial(d)
    dilations = attributes.pop("dilations")
    attributes |= {"kernel_shape": kernel, "ceil_mode": d.number(0, 2)}
    dilated = {"dilations": dilations} if "pads" in attributes else {}
    x = d.real(2, 3, *size)
    order = d.number(0, 2)
    agrees("MaxPool", [x], (True, True), opset=d.pick(10, 11, 22), storage_order=order, **attributes, **dilated)
    agrees("MaxPool", [(x * 40).astype(np.int8)], opset=12, **attributes, **dilated)
    count, opset = d.number(0, 2), d.pick(10, 11, 19, 22)
    agrees("AveragePool", [x], opset=opset, count_include_pad=count, **attributes, **(dilated if opset >= 19 else {}))
    attributes.pop("ceil_mode")
    agrees("LpPool", [x], opset=d.pick(11, 18), p=d.number(1, 4), **attributes)


def test_max_pool_keeps_nan() -> None:
    x = np.array([[[1, np.nan, 3, 2]]], np.float32)
    node = NodeProto(op_type="MaxPool", input=["x"], output=["y"])
    node.attribute.add(name="kernel_shape", type=7, ints=[2])
    (y,) = evaluate(node, {"": 17}, [x])
    np.testing.assert_array_equal(y, [[[np.nan, np.nan, 3]]])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_global_pools(op: str, rank: int) -> None:
    agrees(op, [Draw(rank).real(2, 3, *[4] * rank)])


def test_empty_batches() -> None:
    d = Draw(0)
    agrees("Conv", [d.real(0, 2, 5, 5), d.real(3, 2, 3, 3)])
    agrees("GlobalAveragePool", [d.real(0, 2, 5)])


def test_integer_convolutions() -> None:
    d = Draw(1)
    agrees("ConvInteger", [d.u8(1, 3, 6, 6), d.u8(4, 3, 3, 3), scalar(100, np.uint8)], opset=10, pads=[1] * 4)
    u8, f = lambda v: scalar(v, np.uint8), scalar
    x = [d.u8(1, 4, 6, 6), f(0.02), u8(120)]
    agrees("QLinearConv", [*x, d.u8(4, 2, 3, 3), f(0.01), u8(100), f(0.5), u8(100)], opset=10, group=2)
    scales, zeros = np.abs(d.real(4)) * 0.01, np.zeros(4, np.int8)
    bias = d.ints(-999, 999, 4).astype(np.int32)
    agrees("QLinearConv", [*x, d.i8(4, 4, 3, 3), scales, zeros, f(0.5), u8(100), bias], opset=10, pads=[1] * 4)


@pytest.mark.parametrize("seed", range(40))
def test_resize(seed: int) -> None:
    d = Draw(seed)
    opset, mode = d.pick(11, 13, 18, 19), d.pick("nearest", "linear", "cubic")
    how = d.pick("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes["exclude_outside"] = d.number(0, 2)
    if opset >= 18 and mode != "nearest":
        attributes["antialias"] = d.number(0, 2)
    x, blank = d.real(1, 2, d.number(2, 7), d.number(2, 7)), np.zeros(0, np.float32)
    if how == "align_corners" or d.chance(0.5):
        sizes = i64(1, 2, d.number(2, 10), d.number(2, 10))
        agrees("Resize", [x, blank, blank if opset < 13 else None, sizes], opset=opset, **attributes)
    else:
        scales = np.array([1, 1, *d.rng.choice([0.5, 0.6, 0.75, 1, 1.5, 2, 2.3, 3], 2)], np.float32)
        agrees("Resize", [x, blank, scales], opset=opset, **attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_before_opset_11(mode: str) -> None:
    d = Draw(3)
    for s in (0.5, 0.6, 1.5, 2.0, 3.0):
        scales = np.array([1, 1, s, 2], np.float32)
        agrees("Resize", [d.real(1, 2, 5, 6), scales], opset=10, mode=mode)
        if s > 1:
            agrees("Upsample", [d.real(1, 2, 5, 6), scales], opset=9, mode=mode)
            agrees("Upsample", [d.real(1, 2, 5, 6)], opset=7, mode=mode, scales=scales.tolist())


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(padding: str, corners: int) -> None:
    d = Draw(corners)
    attributes = {"padding_mode": padding, "align_corners": corners}
    for mode in ("bilinear", "nearest", "bicubic"):
        agrees("GridSample", [d.real(2, 3, 4, 5), d.real(2, 3, 3, 2)], opset=16, mode=mode, **attributes)
    for mode in ("linear", "nearest"):
        agrees("GridSample", [d.real(2, 3, 4, 5, 3), d.real(2, 2, 3, 3, 3)], opset=20, mode=mode, **attributes)


@pytest.mark.parametrize("seed", range(8))
def test_regions(seed: int) -> None:
    d = Draw(seed)
    x = d.real(2, 3, 8, 9)
    boxes = np.sort(d.rng.random((4, 2, 2)) * 8, axis=1).reshape(4, 4).astype(np.float32)
    batch = d.ints(0, 2, 4)
    common = {
        "output_height": 3, "output_width": 2, "sampling_ratio": d.pick(0, 2, 3), "spatial_scale": d.pick(1.0, 0.5),
        "mode": d.pick("avg", "max"),
    }  # fmt: skip
    agrees("RoiAlign", [x, boxes, batch], opset=10, **common)
    how = d.pick("half_pixel", "output_half_pixel")
    agrees("RoiAlign", [x, boxes, batch], opset=16, coordinate_transformation_mode=how, **common)
    rois = np.concatenate([batch[:, None], boxes], 1).astype(np.float32)
    agrees("MaxRoiPool", [x, rois], pooled_shape=[3, 2], spatial_scale=common["spatial_scale"])


@pytest.mark.parametrize("seed", range(8))
def test_non_max_suppression(seed: int) -> None:
    d = Draw(seed)
    boxes, scores = d.rng.random((2, 12, 4)).astype(np.float32), d.rng.random((2, 2, 12)).astype(np.float32)
    limit, overlap, low = i64(d.pick(0, 3, 20)), scalar(0.3).reshape(1), scalar(0.2).reshape(1)
    agrees("NonMaxSuppression", [boxes, scores, limit, overlap, low], opset=11)
    agrees("NonMaxSuppression", [boxes, scores, limit, overlap], opset=11, center_point_box=1)


def test_deformable_convolution_and_columns() -> None:
    d = Draw(5)
    mask = d.rng.random((1, 18, 4, 4)).astype(np.float32)
    inputs = [d.real(1, 4, 6, 6), d.real(4, 2, 3, 3), d.real(1, 36, 4, 4), d.real(4), mask]
    agrees("DeformConv", inputs, opset=19, group=2, offset_group=2)
    agrees("Col2Im", [d.real(1, 12, 9), i64(4, 5), i64(2, 3)], opset=18)
    agrees("Col2Im", [d.real(1, 8, 4), i64(5, 5), i64(2, 2)], opset=18, dilations=[2, 2], strides=[2, 2])
    agrees("MaxUnpool", [d.real(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])], opset=11, kernel_shape=[2, 2],
           strides=[2, 2])  # fmt: skip
