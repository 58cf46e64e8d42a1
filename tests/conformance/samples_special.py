"""Samples of transforms, regions, caches, and attention over heads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from tests.conformance.samples_data import Sample, boolean, f32, i64, integers, positive, real, s, scalar, unit

MS = "com.microsoft"
LACKS_DFT = "DFT of another axis, length or opset"
LACKS_22 = "no kernel for the schema of opset 22"
LACKS_STFT = "window and frame length of other types"


def samples() -> Iterator[Sample]:
    """Every sample of the file."""
    yield from _transforms()
    yield from _regions()
    yield from _caches()
    yield from _heads()
    yield from _selections()
    yield from _random()
    yield from _training()


def _transforms() -> Iterator[Sample]:
    wave, pairs = unit(2, 12, 1), unit(2, 6, 3, 2)
    for until, axis in ((19, {"axis": 1}), (None, {})):
        since = 17 if until else 20
        yield s("DFT", wave, since=since, until=until, symbolic=False, lacks=LACKS_DFT, **axis)
        yield s("DFT", wave, since=since, until=until, symbolic=False, lacks=LACKS_DFT, onesided=1, **axis)
        yield s("DFT", pairs, i64(8).reshape(()), since=since, until=until, const=[1], symbolic=False,
                lacks=LACKS_DFT, inverse=1, **axis)  # fmt: skip
    yield s("DFT", pairs, None, i64(2).reshape(()), since=20, const=[2], symbolic=False, lacks=LACKS_DFT)
    yield s("STFT", unit(2, 32, 1), i64(4).reshape(()), unit(8), since=17, const=[1], symbolic=False, lacks=LACKS_STFT)
    yield s("STFT", unit(2, 32, 1), i64(4).reshape(()), None, i64(16).reshape(()), since=17, const=[1, 3],
            symbolic=False, lacks=LACKS_STFT, onesided=0)  # fmt: skip
    numbers = [scalar(8, np.int64), scalar(16, np.int64), scalar(8000, np.int64), scalar(0), scalar(4000)]
    yield s("MelWeightMatrix", *numbers, since=17, const=range(5))


def _regions() -> Iterator[Sample]:
    x = real(2, 3, 8, 9)
    boxes = f32(0, 0, 4, 5, 1, 2, 8, 7, -1, -2, 3, 3).reshape(3, 4)
    size = {"output_height": 2, "output_width": 3, "lacks": "RoiAlign of opset 22"}
    yield s("RoiAlign", x, boxes, i64(1, 0, 1), since=10, **size)
    yield s("RoiAlign", x, boxes, i64(1, 0, 1), since=10, sampling_ratio=2, spatial_scale=0.5, **size)
    for mode in ("half_pixel", "output_half_pixel"):
        yield s("RoiAlign", x, boxes, i64(1, 0, 1), since=16, mode="max", coordinate_transformation_mode=mode, **size)
    numbered = np.concatenate([f32(1, 0, 1).reshape(3, 1), boxes], 1)
    yield s("MaxRoiPool", x, numbered, pooled_shape=[2, 3], lacks="MaxRoiPool of opset 22")
    yield s("MaxRoiPool", x, numbered, pooled_shape=[3, 1], spatial_scale=0.5, lacks="MaxRoiPool of opset 22")
    w, offset, mask = real(4, 3, 3, 3) / 4, unit(2, 18, 6, 7), unit(2, 9, 6, 7)
    yield s("DeformConv", x, w, offset, since=19, const=[1])
    yield s("DeformConv", x, w, offset, real(4), mask, since=19, const=[1], symbolic=(0, 2, 4))
    indices = np.arange(2 * 3 * 2 * 3).reshape(2, 3, 2, 3) * 3 + 1
    yield s("MaxUnpool", real(2, 3, 2, 3), indices, since=9, kernel_shape=[2, 2], strides=[2, 2])


def _caches() -> Iterator[Sample]:
    for mode, starts in (("linear", i64(1, 3)), ("circular", i64(4, 7))):
        yield s("TensorScatter", real(2, 3, 6, 4), real(2, 3, 2, 4), starts, since=24, mode=mode)
    yield s("TensorScatter", real(2, 6, 4), real(2, 2, 4), since=24, axis=1)
    yield s("Det", real(2, 3, 3), since=11, lacks="Det of opset 22")
    yield s("BitCast", real(2, 3, 5), since=26, to=TensorProto.INT32, lacks="no kernel")


def _heads() -> Iterator[Sample]:
    q, k, v = real(2, 4, 24) / 4, real(2, 6, 24, seed=1) / 4, real(2, 6, 24, seed=2) / 4
    free = {"domain": MS, "num_heads": 3, "symbolic": False}
    yield s("MultiHeadAttention", q, k, v, **free)
    yield s("MultiHeadAttention", q, k, v, real(72) / 4, np.array([3, 6], np.int32), real(1, 3, 4, 6), **free)
    past = [real(2, 3, 5, 8, seed=3) / 4, real(2, 3, 5, 8, seed=4) / 4]
    yield s("MultiHeadAttention", q, q, q, None, None, None, *past, outputs=3, unidirectional=1, **free)
    x, w = real(2, 4, 10) / 4, real(10, 72) / 8
    yield s("Attention", x, w, real(72) / 4, np.array([3, 4], np.int32), const=[1, 2], **free)
    yield s("Attention", x, w, real(72) / 4, None, real(2, 2, 3, 5, 8) / 4, const=[1, 2], outputs=2,
            unidirectional=1, **free)  # fmt: skip


def _selections() -> Iterator[Sample]:
    few = integers(3, 4, low=0, high=2).astype(np.float32)
    yield s("NonZero", few, since=9)
    yield s("Compress", few, boolean(3), since=9, axis=0)
    yield s("Compress", few, boolean(10), since=9)
    for ordered in (0, 1):
        yield s("Unique", integers(20, low=0, high=6).astype(np.float32), since=11, outputs=4, sorted=ordered)
        yield s("Unique", integers(5, 3, low=0, high=2).astype(np.float32), since=11, outputs=4, sorted=ordered, axis=0,
                symbolic=False)  # fmt: skip
    yield s("Unique", integers(20, low=0, high=6).astype(np.float32), outputs=3, domain=MS)
    boxes, scores = unit(2, 9, 4), np.arange(54, dtype=np.float32).reshape(2, 3, 9)[..., ::-1] % 7 + unit(2, 3, 9) / 64
    numbers = [scalar(4, np.int64), scalar(0.5), scalar(0.25)]
    yield s("NonMaxSuppression", boxes, scores, *numbers, since=10, const=[2])
    yield s("NonMaxSuppression", boxes, scores, *numbers, since=10, const=[2], center_point_box=1)


def _random() -> Iterator[Sample]:
    """Forms whose result is certain."""
    for name, same in (("RandomUniform", {"low": 2.5, "high": 2.5}), ("RandomNormal", {"mean": 2.5, "scale": 1e-30})):
        yield s(name, shape=[2, 3], lacks=LACKS_22, **same)
        yield s(name, shape=[2, 3], seed=1.0, dtype=TensorProto.FLOAT16, lacks=LACKS_22, **same)
        yield s(f"{name}Like", real(2, 3), dtype=TensorProto.FLOAT, lacks=LACKS_22, **same)
    yield s("Bernoulli", boolean(2, 9).astype(np.float32), since=15, lacks=LACKS_22)
    yield s("Bernoulli", boolean(2, 9).astype(np.float32), since=15, dtype=TensorProto.INT64, lacks=LACKS_22)
    yield s("Multinomial", f32(-200, 0, -200, 0, -200, -200).reshape(2, 3), sample_size=4, lacks=LACKS_22)
    yield s("Dropout", real(2, 3), scalar(0), scalar(True, np.bool_), since=13, outputs=2, lacks=LACKS_22)


def _training() -> Iterator[Sample]:
    two = [real(3, seed=k) for k in range(4)]
    numbers = {"norm_coefficient": 0.125, "domain": "ai.onnx.preview.training", "lacks": "inference only"}
    for steps in (0, 3):
        first = [scalar(0.25), scalar(steps, np.int64)]
        for mode in ("standard", "nesterov"):
            yield s("Momentum", *first, *two[:3], outputs=2, alpha=0.5, beta=0.25, mode=mode, **numbers)
        yield s("Adagrad", *first, *two[:2], positive(3), outputs=2, decay_factor=0.5, epsilon=0.0625, **numbers)
        yield s("Adam", *first, *two[:3], positive(3), outputs=3, norm_coefficient_post=0.5, **numbers)
    yield s("Momentum", *first, *two, *two[:2], outputs=4, alpha=0.5, beta=0.25, mode="standard", **numbers)
