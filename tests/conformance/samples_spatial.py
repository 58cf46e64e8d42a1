"""Samples of operators over pictures and sequences: convolution, pooling, resampling, recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.conformance.samples_data import Sample, f32, i64, real, s, unit

X = real(2, 4, 7, 6)
SIGNAL = real(2, 4, 9)
VOLUME = real(1, 4, 5, 4, 3)


def samples() -> Iterator[Sample]:
    """Every sample of the file."""
    yield from _convolutions()
    yield from _pools()
    yield from _resampling()
    yield from _recurrent()


def _convolutions() -> Iterator[Sample]:
    yield s("Conv", X, real(5, 4, 3, 3), real(5), pads=[1, 0, 1, 2], strides=[2, 1], symbolic=(0,))
    yield s("Conv", X, real(4, 1, 3, 3), group=4, dilations=[2, 1], symbolic=(0,))
    yield s("Conv", SIGNAL, real(6, 2, 3), group=2, auto_pad="SAME_UPPER", const=[1], symbolic=(0,))
    yield s("Conv", VOLUME, real(3, 4, 2, 2, 2), real(3), symbolic=(0,))
    yield s(
        "ConvTranspose",
        X,
        real(4, 5, 3, 3),
        real(5),
        pads=[1, 0, 1, 1],
        strides=[2, 1],
        output_padding=[1, 0],
        symbolic=(0,),
    )
    yield s("ConvTranspose", SIGNAL, real(4, 3, 3), group=2, dilations=[2], symbolic=(0,))
    yield s("ConvTranspose", VOLUME, real(4, 2, 2, 2, 2), symbolic=(0,))
    yield s("Col2Im", real(1, 8, 6), i64(3, 4), i64(2, 2), since=18, const=[1, 2])


def _pools() -> Iterator[Sample]:
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for name in ("AveragePool", "MaxPool", "LpPool"):
        yield s(name, X, **window)
        yield s(name, SIGNAL, kernel_shape=[3], auto_pad="SAME_LOWER")
        yield s(name, VOLUME, kernel_shape=[2, 2, 2])
    yield s("AveragePool", X, count_include_pad=1, **window)
    for name, since in (("AveragePool", 10), ("MaxPool", 10), ("LpPool", 18)):
        yield s(name, X, since=since, ceil_mode=1, **window)
    for name, since in (("AveragePool", 19), ("MaxPool", 10), ("LpPool", 18)):
        yield s(name, X, since=since, kernel_shape=[2, 2], dilations=[2, 3])
    yield s("MaxPool", X, since=8, outputs=2, **window)
    yield s("MaxPool", X, since=8, outputs=2, storage_order=1, **window)
    for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield s(name, X)
    yield s("GlobalLpPool", X, p=1)


def _resampling() -> Iterator[Sample]:
    twice, none = f32(1, 1, 2, 1.5), np.zeros(0, np.float32)
    for mode in ("nearest", "linear"):
        yield s("Upsample", X, until=8, scales=[1.0, 1.0, 2.0, 2.0], mode=mode)
        yield s("Upsample", X, twice, since=9, until=9, const=[1], mode=mode)
        yield s("Resize", X, twice, since=10, until=10, const=[1], mode=mode)
        yield s("Resize", X, none, twice, since=11, const=[1, 2], mode=mode)
    yield s("Resize", X, none, twice, since=11, const=[1, 2], mode="cubic", cubic_coeff_a=-0.5)
    yield s("Resize", X, none, none, i64(2, 4, 5, 9), since=11, const=[1, 2, 3], mode="linear",
            coordinate_transformation_mode="align_corners")  # fmt: skip
    yield s("Resize", X, None, None, i64(4, 3), since=18, const=[3], axes=[2, 3], mode="linear", antialias=1)
    yield s("Resize", X, none, twice, since=11, const=[1, 2], nearest_mode="ceil",
            coordinate_transformation_mode="asymmetric")  # fmt: skip
    grid = unit(2, 3, 5, 2) * 1.25
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            yield s("GridSample", X, grid, since=16, until=19, mode=mode, padding_mode=padding)
    for mode in ("linear", "nearest", "cubic"):
        yield s("GridSample", X, grid, since=20, mode=mode, align_corners=1)
    yield s("GridSample", VOLUME, unit(1, 2, 3, 4, 3), since=20)


def _recurrent() -> Iterator[Sample]:
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outputs = 3 if name == "LSTM" else 2
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            w, r = real(count, gates * 5, 4) / 4, real(count, gates * 5, 5) / 4
            lengths = np.array([6, 3, 4], np.int32)
            yield s(name, real(6, 3, 4), w, r, real(count, gates * 10) / 4, lengths, outputs=outputs, hidden_size=5,
                    direction=direction)  # fmt: skip
        yield s(name, real(3, 6, 4), w[:1], r[:1], since=14, outputs=outputs, hidden_size=5, layout=1,
                lacks="layout 1 of recurrent layers")  # fmt: skip
    yield s("GRU", real(6, 3, 4), real(1, 15, 4) / 4, real(1, 15, 5) / 4, real(1, 30) / 4, outputs=2, hidden_size=5,
            linear_before_reset=1)  # fmt: skip
