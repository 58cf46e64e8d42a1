"""Regions of interest and box suppression."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, wide


@op("RoiAlign")
def roi_align(call: Call, x: Array, rois: Array, batch_indices: Array) -> Array:
    """Regions of x [N, C, H, W] pooled to one size at bilinear samples, by mean or by maximum."""
    height, width = call.integer("output_height"), call.integer("output_width")
    ratio, scale = call.integer("sampling_ratio"), call.number("spatial_scale")
    half = call.opset >= 16 and call.text("coordinate_transformation_mode") == "half_pixel"
    values = wide(x)
    boxes = wide(rois) * np.asarray(scale, wide(rois).dtype) - (0.5 if half else 0)
    batches = batch_indices.reshape(-1)
    if boxes.shape != (batches.size, 4):
        raise ShapeError(f"rois {rois.shape} must be [{batches.size}, 4]")
    if batches.size and not (int(batches.min()) >= 0 and int(batches.max()) < x.shape[0]):
        raise IndexError(f"batch_indices reach {int(batches.max())}, X has {x.shape[0]} images")
    result = np.zeros((batches.size, x.shape[1], height, width), values.dtype)
    for i, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
        size_h, size_w = y2 - y1, x2 - x1
        if not half:
            size_h, size_w = max(size_h, 1.0), max(size_w, 1.0)
        rows = _samples(y1, size_h, height, ratio, x.shape[2])
        columns = _samples(x1, size_w, width, ratio, x.shape[3])
        result[i] = _pool(values[int(batches[i])], rows, columns, call.text("mode").lower() == "max")
    return result.astype(x.dtype)


Samples = tuple[Array, Array, Array, Array]


def _samples(start: float, size: float, bins: int, ratio: int, limit: int) -> Samples:
    """Lower index, upper index, upper weight and validity of the samples [bins, per bin] along one axis."""
    per_bin = ratio if ratio > 0 else int(np.ceil(size / bins))
    step = size / bins
    at = start + np.arange(bins)[:, None] * step + (np.arange(max(per_bin, 0)) + 0.5) * step / max(per_bin, 1)
    valid = (at >= -1) & (at <= limit)
    at = np.maximum(at, 0)
    low = np.minimum(at.astype(np.int64), limit - 1)
    high = np.minimum(low + 1, limit - 1)
    weight = np.where(at.astype(np.int64) >= limit - 1, 0, at - low)
    return low, high, weight, valid


def _pool(image: Array, rows: Samples, columns: Samples, largest: bool) -> Array:
    (y0, y1, wy, oky), (x0, x1, wx, okx) = rows, columns
    height, per_y = y0.shape
    width, per_x = x0.shape
    if per_y * per_x == 0:
        return np.zeros((image.shape[0], height, width), image.dtype)
    weight_y = [np.where(oky, 1 - wy, 0), np.where(oky, wy, 0)]
    weight_x = [np.where(okx, 1 - wx, 0), np.where(okx, wx, 0)]
    parts = [
        image[:, iy.reshape(-1)][:, :, ix.reshape(-1)] * (weight_y[a].reshape(-1, 1) * weight_x[b].reshape(-1))
        for a, iy in enumerate((y0, y1))
        for b, ix in enumerate((x0, x1))
    ]
    shape = (image.shape[0], height, per_y, width, per_x)
    if largest:
        return np.asarray(np.max(np.max(parts, 0).reshape(shape), axis=(2, 4)))
    return np.asarray(np.sum(parts, 0).reshape(shape).sum(axis=(2, 4)) / (per_y * per_x))


@op("MaxRoiPool")
def max_roi_pool(call: Call, x: Array, rois: Array) -> Array:
    """Regions [batch, x1, y1, x2, y2] of x pooled to one size; as Fast R-CNN defines it."""
    height, width = call.ints("pooled_shape") or (1, 1)
    result = np.zeros((rois.shape[0], x.shape[1], height, width), x.dtype)
    scale = call.number("spatial_scale")
    for i, roi in enumerate(wide(rois).tolist()):
        image = x[_image(roi[0], x.shape[0])]
        x1, y1, x2, y2 = (int(np.floor(v * scale + 0.5)) for v in roi[1:])
        rows, columns = _bins(y1, y2, height, x.shape[2]), _bins(x1, x2, width, x.shape[3])
        for r, (top, bottom) in enumerate(rows):
            for c, (left, right) in enumerate(columns):
                if bottom > top and right > left:
                    result[i, :, r, c] = image[:, top:bottom, left:right].max(axis=(1, 2))
    return result


def _image(index: float, images: int) -> int:
    if not 0 <= index < images:
        raise IndexError(f"a region names image {int(index)}, X has {images}")
    return int(index)


def _bins(start: int, end: int, count: int, limit: int) -> list[tuple[int, int]]:
    step = max(end - start + 1, 1) / count
    return [
        (min(max(int(np.floor(i * step)) + start, 0), limit), min(max(int(np.ceil((i + 1) * step)) + start, 0), limit))
        for i in range(count)
    ]


@op("NonMaxSuppression")
def non_max_suppression(
    call: Call, boxes: Array, scores: Array, maximum: Array | None = None, iou: Array | None = None,
    threshold: Array | None = None,
) -> Array:  # fmt: skip
    """Rows [batch, class, box] of the boxes kept, best first in each class."""
    limit = int(maximum.reshape(-1)[0]) if maximum is not None else 0
    overlap = float(iou.reshape(-1)[0]) if iou is not None else 0.0
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape[1] != scores.shape[2] or boxes.shape[2] != 4:
        raise ShapeError(f"boxes {boxes.shape} and scores {scores.shape} must be [N, B, 4] and [N, C, B]")
    selected: list[tuple[int, int, int]] = []
    for n in range(scores.shape[0] if limit > 0 else 0):
        corners = _corners(boxes[n].astype(np.float32), bool(call.integer("center_point_box")))
        for c in range(scores.shape[1]):
            line = scores[n, c]
            order = np.argsort(-line, kind="stable")
            if threshold is not None:
                order = order[line[order] > threshold.reshape(-1)[0]]
            selected += [(n, c, int(b)) for b in _suppress(corners, order, overlap, limit)]
    return np.array(selected, dtype=np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """[y1, x1, y2, x2] with the smaller ones first."""
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _suppress(corners: Array, order: Array, overlap: float, limit: int) -> list[int]:
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        low = np.maximum(corners[order, :2], corners[best, :2])
        high = np.minimum(corners[order, 2:], corners[best, 2:])
        common = np.prod(np.maximum(high - low, 0), 1)
        union = areas[order] + areas[best] - common
        ratio = np.where(union > 0, common / np.where(union > 0, union, 1), 0)
        order = order[~((common > 0) & (ratio > overlap))]
    return kept
