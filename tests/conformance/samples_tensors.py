"""Samples of operators that move, make and look up elements, and of products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx.numpy_helper
from onnx import TensorProto

from tests.conformance.samples_data import Sample, f32, i64, integers, positive, real, s, scalar

MS = "com.microsoft"
X = real(2, 4, 6)
WHERE = i64(0, -1, 1).reshape(1, 3)
PICTURE = real(1, 4, 4, 6)


def samples() -> Iterator[Sample]:
    """Every sample of the file."""
    yield from _views()
    yield from _moves()
    yield from _lookups()
    yield from _makers()
    yield from _products()
    yield from _quantized()


def _views() -> Iterator[Sample]:
    yield s("Reshape", X, i64(0, -1, 2), const=[1])
    yield s("Reshape", X, i64(4, 12), since=14, const=[1], allowzero=1)
    yield s("Flatten", X, axis=2)
    yield s("Squeeze", X[:1], until=12, axes=[0])
    yield s("Squeeze", X[:1], i64(0), since=13, const=[1])
    yield s("Unsqueeze", X, until=12, axes=[0, 2])
    yield s("Unsqueeze", X, i64(0, -1), since=13, const=[1])
    yield s("Identity", X)
    yield s("Shape", X)
    yield s("Shape", X, since=15, start=1, end=-1)
    yield s("Size", X)


def _moves() -> Iterator[Sample]:
    yield s("Transpose", X, perm=[2, 0, 1])
    yield s("Transpose", X)
    yield s("Concat", X, real(2, 3, 6), axis=1)
    yield s("Concat", X, real(2, 4, 3), axis=-1, since=11)
    yield s("Split", X, until=12, outputs=2, axis=1, split=[1, 3])
    yield s("Split", X, i64(1, 5), since=13, outputs=2, const=[1], axis=2)
    yield s("Split", X, until=17, outputs=2, axis=2)
    yield s("Split", X, since=18, outputs=4, axis=2, num_outputs=4, symbolic=False)
    yield s("Slice", X, until=9, starts=[1, 0], ends=[4, -1], axes=[1, 2])
    yield s("Slice", X, i64(-1, 0), i64(-9, 5), i64(1, 2), i64(-2, 2), since=10, const=[1, 2, 3, 4])
    yield s("Expand", real(4, 1), i64(2, 1, 3), since=8, const=[1])
    yield s("Tile", X, i64(1, 2, 3), const=[1])
    yield s("Pad", X, until=10, pads=[0, 1, 0, 0, 0, 2], value=2.0)
    for mode in ("reflect", "edge"):
        yield s("Pad", X, until=10, mode=mode, pads=[0, 1, 2, 0, 0, 1])
        yield s("Pad", X, i64(0, 1, 2, 0, 0, 1), since=11, const=[1], mode=mode)
    yield s("Pad", X, i64(0, 1, -2, 0, 0, 1), scalar(2), since=11, const=[1])
    yield s("Pad", X, i64(1, 1), None, i64(1), since=18, const=[1, 3])
    yield s("Pad", X, i64(1, 0, 2, 1, 1, 2), since=19, const=[1], mode="wrap")
    yield s("Trilu", X, since=14)
    yield s("Trilu", X, i64(-1).reshape(()), since=14, const=[1], upper=0)
    yield s("DepthToSpace", PICTURE, blocksize=2)
    yield s("DepthToSpace", PICTURE, since=11, blocksize=2, mode="CRD")
    yield s("SpaceToDepth", PICTURE, blocksize=2)
    yield s("ReverseSequence", X, i64(2, 1), since=10, batch_axis=0, time_axis=1)
    yield s("ReverseSequence", X, i64(1, 0, 2, 2), since=10)
    yield s("CenterCropPad", X, i64(5, 3), since=18, const=[1], axes=[1, 2])


def _lookups() -> Iterator[Sample]:
    yield s("Gather", X, WHERE, since=11, axis=1)
    yield s("Gather", X, np.abs(WHERE), axis=2)
    yield s("GatherElements", X[0], WHERE, since=11, axis=0)
    yield s("GatherND", X, i64(0, 1, 1, 3).reshape(2, 2), since=11, symbolic=(0,))
    yield s("GatherND", X, i64(1, 3).reshape(2, 1), since=12, batch_dims=1, symbolic=(0,))
    yield s("Scatter", X[0], np.abs(WHERE), X[1, :1, :3], since=9, until=10, axis=0)
    yield s("ScatterElements", X[0], WHERE, X[1, :1, :3], since=11, axis=0)
    yield s("ScatterND", X, i64(1, 0).reshape(2, 1), real(2, 4, 6, seed=1), since=11, symbolic=(0,))
    for since, reductions in ((16, "add mul"), (18, "min max")):
        for reduction in reductions.split():
            repeated = i64(1, 1, 1, 0, 2, 2).reshape(2, 3)
            yield s("ScatterElements", X[0], repeated, positive(2, 3), since=since, reduction=reduction)
            yield s(
                "ScatterND",
                X[0],
                i64(1, 1, 3).reshape(3, 1),
                real(3, 6),
                since=since,
                reduction=reduction,
                symbolic=(0,),
            )
    yield s("OneHot", integers(2, 3, low=-3, high=4, dtype=np.int64), i64(3), f32(-1, 2), since=9, const=[1], axis=1)


def _makers() -> Iterator[Sample]:
    yield s("ConstantOfShape", i64(2, 3), since=9, const=[0])
    value = onnx.numpy_helper.from_array(np.array([5], np.int32))
    yield s("ConstantOfShape", i64(2, 3), since=9, const=[0], value=value)
    yield s("EyeLike", X[0], since=9, k=1)
    yield s("EyeLike", X[0], since=9, k=-1, dtype=TensorProto.INT32)
    yield s("Range", scalar(1.5), scalar(-4), scalar(-0.5), since=11, const=[0, 1, 2])
    yield s("Range", np.array(3), np.array(17), np.array(4), since=11, const=[0, 1, 2])
    yield s("AffineGrid", real(1, 2, 3), i64(1, 1, 2, 3), since=20, const=[1])
    yield s("AffineGrid", real(1, 3, 4), i64(1, 1, 2, 3, 2), since=20, const=[1], align_corners=1)


def _products() -> Iterator[Sample]:
    yield s("MatMul", real(2, 5, 7), real(7, 9, seed=1))
    yield s("MatMul", real(7), real(2, 7, 3))
    yield s("Gemm", real(5, 7), real(7, 9), real(5, 9))
    yield s("Gemm", real(7, 5), real(9, 7), real(9), alpha=0.5, beta=0.25, transA=1, transB=1)
    yield s("Gemm", real(5, 7), real(7, 9), since=11)
    yield s("Einsum", real(2, 3, 4), real(4, 5), since=12, equation="bij,jk->bik")
    yield s("Einsum", real(2, 3, 4), since=12, equation="bij->jb")
    yield s("Einsum", real(2, 1, 3, 4), real(1, 3, 4, 5), since=12, equation="...ij,...jk->...ik")
    yield s("Einsum", real(2, 3, 3), since=12, equation="...ii->...i")
    yield s("Einsum", real(2, 3), real(3, 4), real(4, 5), since=12, equation="ij,jk,kl")
    yield s("FusedMatMul", real(5, 7), real(9, 7), domain=MS, alpha=0.5, transB=1)
    yield s("TransposeMatMul", real(7, 5), real(7, 9), domain=MS, transA=1)
    x, ids = real(2, 4, 3, 8), integers(2, 3, low=0, high=6, dtype=np.int64)
    yield s("RotaryEmbedding", x, real(6, 4), real(6, 4, seed=1), ids, since=23)
    yield s("RotaryEmbedding", real(2, 3, 8), real(2, 3, 2), real(2, 3, 2, seed=1), since=23, num_heads=2,
            rotary_embedding_dim=4, interleaved=1)  # fmt: skip
    yield s("RotaryEmbedding", real(2, 3, 32), ids, real(6, 4), real(6, 4, seed=1), domain=MS, num_heads=4,
            rotary_embedding_dim=0)  # fmt: skip
    heads = {"num_heads": 4, "kv_num_heads": 2}
    q, kv = real(2, 1, 32), real(2, 1, 16)
    cache, lengths = real(2, 2, 3, 8), np.array([3, 3], np.int32)
    yield s("GroupQueryAttention", q, kv, kv, cache, cache, lengths, np.array([4], np.int32), domain=MS, outputs=3,
            const=[6], symbolic=False, **heads)  # fmt: skip


def _quantized() -> Iterator[Sample]:
    u8 = {"low": 0, "high": 256, "dtype": np.uint8}
    zero, scale = scalar(100, np.uint8), scalar(0.5)
    yield s("QuantizeLinear", real(2, 3, 5), scale, zero, since=10)
    yield s("QuantizeLinear", real(2, 3, 5), positive(3), integers(3, dtype=np.int8), since=13, axis=1)
    yield s("DequantizeLinear", integers(2, 3, 5, **u8), scale, zero, since=10)
    yield s("DequantizeLinear", integers(2, 3, 5, dtype=np.int8), positive(3), since=13, axis=1)
    yield s("DequantizeLinear", integers(2, 6, dtype=np.int8), positive(2, 3), since=21, axis=1, block_size=2)
    yield s("DynamicQuantizeLinear", real(2, 3, 5), since=11, outputs=3)
    yield s("QuantizeLinear", real(2, 3, 5), scale, zero, domain=MS)
    yield s("DequantizeLinear", integers(2, 3, 5, **u8), scale, zero, domain=MS)
    a, b = integers(2, 5, 7, **u8), integers(7, 9, **u8)
    yield s("MatMulInteger", a, b, zero, zero, since=10)
    yield s("QLinearMatMul", a, scale, zero, b, scale, zero, scalar(64), zero, since=10)
    image, weights = integers(1, 3, 6, 5, **u8), integers(4, 3, 3, 3, **u8)
    yield s("ConvInteger", image, weights, zero, since=10, pads=[1, 1, 1, 1], symbolic=(0,))
    yield s("QLinearConv", image, scale, zero, weights, scale, zero, scalar(128), zero, integers(4), since=10,
            const=range(1, 9), strides=[2, 1])  # fmt: skip
    packed = integers(9, 2, 16, **u8)
    yield s("MatMulNBits", real(3, 64), packed, positive(18), domain=MS, const=[1, 2], K=64, N=9, bits=4,
            block_size=32)  # fmt: skip
