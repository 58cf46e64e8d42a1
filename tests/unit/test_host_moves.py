"""Operators that move, choose, write and make elements, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.host_oracle import Draw, agrees, i64, scalar

SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_slice_and_pad(seed: int) -> None:
    d = Draw(seed)
    x = d.real(5, 6, 7)
    starts, ends = d.ints(-9, 9, 2), d.ints(-9, 9, 2)
    axes, steps = d.rng.permutation(3)[:2].astype(np.int64), i64(d.pick(-3, -1, 1, 2), d.pick(-2, -1, 1, 3))
    agrees("Slice", [x, starts, ends, axes, steps], opset=13)
    agrees("Slice", [x], opset=9, starts=starts.tolist(), ends=ends.tolist(), axes=axes.tolist())
    mode = d.pick("constant", "reflect", "edge", "wrap")
    agrees("Pad", [x, d.ints(-2, 3, 6), scalar(3) if mode == "constant" else None], opset=19, mode=mode)
    agrees("Pad", [x, d.ints(0, 3, 4), None, i64(0, -1)], opset=18, mode=d.pick("constant", "reflect", "edge"))
    agrees("Pad", [x], opset=9, mode=d.pick("constant", "edge"), pads=d.ints(0, 3, 6).tolist(), value=1.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_gather_and_scatter(seed: int) -> None:
    d = Draw(seed)
    agrees("Gather", [d.real(5, 6), d.ints(-5, 5, 3, 2)], axis=0)
    agrees("Gather", [d.real(6, 5), d.ints(-5, 5, 3, 2).astype(np.int32)], axis=1)
    agrees("GatherElements", [d.real(5, 6), d.ints(-5, 5, 3, 6)], axis=0)
    agrees("GatherElements", [d.real(5, 6), d.ints(-6, 6, 5, 9)], axis=-1)
    agrees("GatherND", [d.real(3, 4, 5), d.ints(-3, 3, 2, 2)])
    agrees("GatherND", [d.real(3, 4, 5), d.ints(-3, 3, 2, 3)])
    agrees("GatherND", [d.real(3, 4, 5), d.ints(-4, 4, 3, 2, 1)], batch_dims=1)
    distinct = np.stack([d.rng.permutation(5)[:3] for _ in range(6)], 1).astype(np.int64)
    agrees("Scatter", [d.real(5, 6), distinct, d.real(3, 6)], opset=9)
    for reduction in ("none", "add", "mul", "max", "min"):
        index = distinct if reduction == "none" else d.ints(-5, 5, 3, 6)
        agrees("ScatterElements", [d.real(5, 6), index, d.real(3, 6)], opset=18, axis=0, reduction=reduction)
        agrees("ScatterND", [d.real(5, 6), index[:, :1], d.real(3, 6)], opset=18, reduction=reduction)


@pytest.mark.parametrize("seed", SEEDS)
def test_choices(seed: int) -> None:
    d = Draw(seed)
    agrees("OneHot", [d.ints(-5, 7, 2, 3), i64(4), np.array([0, 1], np.float32)], axis=d.pick(-1, 0, 1))
    agrees("Compress", [d.real(3, 4), d.ints(0, 2, 3).astype(bool)], axis=0)
    agrees("Compress", [d.real(3, 4), d.ints(0, 2, 7).astype(bool)])
    agrees("NonZero", [d.ints(0, 2, 3, 4).astype(np.float32)])
    four, order = (True,) * 4, d.number(0, 2)
    agrees("Unique", [d.ints(0, 4, 9).astype(np.float32)], four, sorted=order)
    agrees("Unique", [d.ints(0, 2, 4, 3, 2).astype(np.float32)], four, sorted=order, axis=d.number(0, 3))
    agrees("ReverseSequence", [d.real(4, 3, 2), d.ints(1, 5, 3)], time_axis=0, batch_axis=1)
    agrees("ReverseSequence", [d.real(4, 3, 2), d.ints(1, 4, 4)], time_axis=1, batch_axis=0)
    k = scalar(d.number(-3, 4), np.int64) if d.chance(0.7) else None
    agrees("Trilu", [d.real(2, 4, 5), k], upper=d.number(0, 2))


def test_shapes() -> None:
    d = Draw(1)
    for mode in ("DCR", "CRD"):
        agrees("DepthToSpace", [d.real(1, 8, 2, 3)], blocksize=2, mode=mode)
    agrees("SpaceToDepth", [d.real(1, 2, 4, 6)], blocksize=2)
    agrees("CenterCropPad", [d.real(5, 6, 7), i64(3, 9)], opset=18, axes=[0, 2])
    agrees("Split", [d.real(7, 2)], (True,) * 3, opset=18, num_outputs=3)
    agrees("Split", [d.real(6, 2)], (True,) * 3, opset=11)
    agrees("Split", [d.real(6, 2), i64(1, 0, 5)], (True,) * 3, opset=13)
    agrees("Reshape", [d.real(2, 3, 4), i64(0, -1)])
    agrees("Reshape", [d.real(0, 3), i64(3, 0)], allowzero=1)
    agrees("Squeeze", [d.real(1, 3, 1)], opset=11)
    agrees("Unsqueeze", [d.real(3, 4), i64(-1, 0)])
    agrees("Flatten", [d.real(2, 3, 4)], axis=-1)
    agrees("Tile", [d.real(2, 3), i64(2, 1)])
    agrees("Expand", [d.real(3, 1), i64(2, 1, 4)])
    agrees("Transpose", [d.real(2, 3, 4)])


def test_makers() -> None:
    agrees("Range", [scalar(1), scalar(5.5), scalar(0.7)])
    agrees("Range", [scalar(v, np.int64) for v in (10, 3, -2)])
    agrees("EyeLike", [np.zeros((3, 4), np.float32)], k=1, dtype=int(TensorProto.INT64))
    for start, end in ((0, 2), (-2, 3), (1, -1), (2, 1), (-9, 9)):
        agrees("Shape", [np.zeros((3, 4, 5), np.float32)], opset=15, start=start, end=end)


def test_casts() -> None:
    d = Draw(2)
    codes = {
        int(getattr(TensorProto, n)) for n in ("FLOAT", "INT32", "INT64", "BOOL", "FLOAT16", "DOUBLE", "UINT8", "INT8")
    }
    for to in codes:
        agrees("Cast", [np.abs(d.real(9)) * 50], opset=19, to=to)
        agrees("Cast", [d.ints(0, 100, 9)], opset=19, to=to)
        if to != TensorProto.BOOL:
            agrees("Cast", [np.array(["1", "3", "7"], object)], opset=19, to=to)
    special = np.array([1.5, np.nan, np.inf, -np.inf, 1e-7, 123456789, 1e20], np.float32)
    agrees("Cast", [special], opset=19, to=int(TensorProto.STRING))
    words = np.array(["NaN", "INF", "-inf", "1e-5"], object)
    agrees("Cast", [words], opset=19, to=int(TensorProto.FLOAT))


def test_text() -> None:
    days = np.array(["Monday", "tuesday", "wednesday", "Monday"], object)
    for action, sensitive in (("UPPER", 0), ("LOWER", 1), ("NONE", 1)):
        agrees("StringNormalizer", [days], opset=10, case_change_action=action, is_case_sensitive=sensitive,
               stopwords=["Monday"], locale="C")  # fmt: skip
    agrees(
        "StringNormalizer", [np.array(["a", "a"], object)], opset=10, is_case_sensitive=1, stopwords=["a"], locale="C"
    )
    grams = {"ngram_counts": [0, 4], "ngram_indexes": list(range(7)), "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
             "weights": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}  # fmt: skip
    for mode in ("TF", "IDF", "TFIDF"):
        for skip in (0, 2):
            agrees("TfIdfVectorizer", [Draw(skip).ints(0, 9, 2, 12)], opset=9, mode=mode, min_gram_length=1,
                   max_gram_length=2, max_skip_count=skip, **grams)  # fmt: skip
