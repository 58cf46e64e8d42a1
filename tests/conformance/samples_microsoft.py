"""Samples of com.microsoft's operators that have a function body of ours, and of GatherBlockQuantized."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.conformance.samples_data import Array, Sample, f32, i64, integers, real, s, scalar, unit

MS = "com.microsoft"
LACKS_CPU = "onnxruntime has it on other devices only"


def samples() -> Iterator[Sample]:
    """Every sample of the file."""
    yield from (*_fused(), *_norms(), *_quantized(), *_products(), *_moves())


def ms(op: str, *inputs: Array | None, **more: object) -> Sample:
    """A sample of the domain."""
    return s(op, *inputs, domain=MS, **more)  # type: ignore[arg-type]


def bytes_(*shape: int, seed: int = 0) -> Array:
    """uint8 numbers of all sizes."""
    return integers(*shape, low=0, high=256, dtype=np.uint8, seed=seed)


def q(x: Array, scale: float, zero: int) -> list[Array]:
    """A quantized operand: numbers, scale and zero point."""
    return [x, scalar(scale), np.array(zero, x.dtype)]


def _fused() -> Iterator[Sample]:
    x, skip = real(2, 3, 8), real(2, 3, 8, seed=1)
    yield ms("BiasAdd", x, real(8), skip, lacks=LACKS_CPU)
    yield ms("BiasSplitGelu", x, real(8), lacks=LACKS_CPU)
    yield ms("BiasSoftmax", x, real(2, 3, 8, seed=2), axis=2, is_inner_broadcast=1, lacks=LACKS_CPU)
    yield ms("BiasSoftmax", real(2, 3, 2, 4), real(2, 2, 4), axis=2, is_inner_broadcast=0, lacks=LACKS_CPU)
    image, kernel = unit(1, 2, 5, 6), unit(3, 2, 3, 3)
    for name, p in (("Relu", None), ("LeakyRelu", [0.25]), ("Clip", [-0.5, 0.25]), ("HardSigmoid", [0.25, 0.5])):
        params = {"activation_params": p} if p else {}
        yield ms("FusedConv", image, kernel, real(3), activation=name, const=[1], **params)
    yield ms("FusedConv", image, kernel, None, unit(1, 3, 5, 6), activation="Tanh", pads=[1, 1, 1, 1], const=[1],
             lacks=LACKS_CPU)  # fmt: skip
    last = np.ascontiguousarray(np.moveaxis(image, 1, -1))
    yield ms("NhwcConv", last, kernel, real(3), const=[1], strides=[2, 1], lacks=LACKS_CPU)
    yield ms("NhwcFusedConv", last, kernel, real(3), unit(1, 3, 4, 3), const=[1], activation="Relu", lacks=LACKS_CPU)
    yield ms("NhwcMaxPool", bytes_(1, 5, 6, 2), kernel_shape=[2, 2], strides=[1, 2])
    gemm = [unit(3, 4), unit(4, 5), real(5)]
    yield ms("FusedGemm", *gemm, activation="LeakyRelu", activation_alpha=0.25)
    yield ms("FusedGemm", gemm[0].T.copy(), gemm[1].T.copy(), transA=1, transB=1, alpha=0.5, activation="Relu")


def _norms() -> Iterator[Sample]:
    x, row = unit(2, 3, 4, 8), [real(8), real(8, seed=1)]
    for last, act in ((1, 1), (1, 0), (0, 1)):
        own = x if last else np.ascontiguousarray(np.moveaxis(x, -1, 1))
        yield ms("GroupNorm", own, *row, groups=2, activation=act, channels_last=last, lacks=LACKS_CPU)
    yield ms("SkipGroupNorm", x, *row, unit(2, 3, 4, 8, seed=3), real(8, seed=2), groups=4, activation=1, outputs=2,
             lacks=LACKS_CPU)  # fmt: skip
    yield ms("SkipGroupNorm", x, *row, unit(2, 8), groups=4, activation=0, lacks=LACKS_CPU)
    ids, kinds = (integers(2, 4, low=0, high=n, seed=n) for n in (9, 2))
    tables = [real(9, 8), real(6, 8), real(2, 8, seed=1), *row]
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    yield ms("EmbedLayerNormalization", ids, kinds, *tables, mask, symbolic=(0,), outputs=2)
    yield ms(
        "EmbedLayerNormalization",
        ids,
        None,
        tables[0],
        tables[1],
        None,
        *row,
        symbolic=(0,),
        outputs=(True, False, True),
    )
    places = integers(2, 4, low=0, high=6)
    yield ms("EmbedLayerNormalization", ids, kinds, *tables, None, places, symbolic=(0,), outputs=2)


def _quantized() -> Iterator[Sample]:
    a, b = q(bytes_(2, 3), 0.125, 10), q(bytes_(3, seed=1), 0.25, 20)
    y = [scalar(0.5), np.array(30, np.uint8)]
    yield ms("QLinearAdd", *a, *b, *y)
    yield ms("QLinearMul", *a, *b, scalar(9), y[1])
    signed = [x.astype(np.int8) if x.dtype == np.uint8 else x for x in (*a, *b, *y)]
    yield ms("QLinearAdd", *signed)
    yield ms("QLinearSigmoid", *a, scalar(1 / 256), np.array(0, np.uint8))
    yield ms("QLinearLeakyRelu", *a, scalar(0.0625), np.array(100, np.uint8), alpha=0.125)
    yield ms("QLinearSoftmax", *a, scalar(1 / 256), np.array(0, np.uint8), axis=1, opset=13)
    yield ms("QLinearSoftmax", *q(bytes_(2, 3, 2), 0.125, 10), scalar(1 / 256), np.array(0, np.uint8), axis=1, opset=11)
    image, out = bytes_(1, 2, 6, 6), [scalar(0.0371), np.array(3, np.uint8)]
    pool = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}
    yield ms("QLinearAveragePool", *q(image, 0.05, 12), *out, **pool)
    yield ms("QLinearAveragePool", *q(image, 0.05, 12), *out, count_include_pad=1, **pool)
    yield ms("QLinearAveragePool", *q(bytes_(1, 6, 6, 2), 0.05, 12), *out, channels_last=1, **pool)
    ties = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0]}
    yield ms("QLinearAveragePool", *q(bytes_(1, 2, 9, 9), 0.1, 3), scalar(0.05), np.array(7, np.uint8), **ties)
    yield ms("QLinearGlobalAveragePool", *q(image, 0.05, 12), *out)
    yield ms("QLinearGlobalAveragePool", *q(bytes_(1, 6, 6, 2), 0.05, 12), *out, channels_last=1)
    yield ms("QLinearConcat", *y, *a, *q(bytes_(2, 2, seed=3), 0.0625, 100), axis=1)
    kernel = [bytes_(3, 2, 3, 3), scalar(0.01), np.array(128, np.uint8)]
    conv = [scalar(0.5), np.array(100, np.uint8), integers(3, low=-900, high=900)]
    yield ms("QLinearConv", *q(image, 0.05, 12), *kernel, *conv, const=[3])
    yield ms("QLinearConv", *q(bytes_(1, 6, 6, 2), 0.05, 12), *kernel, *conv, const=[3], channels_last=1)


def _products() -> Iterator[Sample]:
    a, b = q(bytes_(3, 4), 0.125, 3), q(bytes_(4, 5), 0.25, 4)
    yield ms("QGemm", *a, *b, alpha=0.5)
    yield ms("QGemm", *a, b[0].T.copy(), *b[1:], integers(5, low=-99, high=99), transB=1)
    yield ms("QGemm", *a, *b, integers(5, low=-99, high=99), scalar(4), np.array(100, np.uint8))
    weights, columns = bytes_(8, 5).astype(np.int8), np.abs(real(5)) + np.float32(0.125)
    zeros = [np.array(3, np.uint8), integers(5, dtype=np.int8)]
    yield ms("MatMulIntegerToFloat", bytes_(2, 3, 8), weights, scalar(0.125), columns, *zeros, real(5))
    yield ms("MatMulIntegerToFloat", bytes_(3, 8), weights, scalar(0.125), scalar(0.25))
    yield ms("DynamicQuantizeMatMul", unit(3, 8), weights, scalar(0.125))
    yield ms("DynamicQuantizeMatMul", unit(2, 3, 8), weights, columns, zeros[1], real(5))
    recurrent = [integers(1, 3, 16, dtype=np.int8), integers(1, 4, 16, dtype=np.int8, seed=1)]
    scales = [f32(0.0625), np.zeros(1, np.int8), f32(0.03125), np.zeros(1, np.int8)]
    yield ms("DynamicQuantizeLSTM", unit(5, 2, 3), *recurrent, real(1, 32), None, None, None, None, *scales, outputs=3,
             hidden_size=4, const=[1, 2, 3, 8, 9, 10, 11])  # fmt: skip


def _moves() -> Iterator[Sample]:
    blocks = {"block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    scales, ids = np.abs(real(10, 4)) + np.float32(0.125), i64(-10, 0, 9, 3)
    for bits in (4, 8):
        data = bytes_(10, 64 * bits // 8)
        yield ms("GatherBlockQuantized", data, ids.reshape(2, 2), scales, bits=bits, symbolic=(1,), **blocks)
        yield ms(
            "GatherBlockQuantized", data, ids, scales, bytes_(10, 4 * bits // 8), bits=bits, symbolic=(1,), **blocks
        )
    yield ms("Trilu", real(2, 4, 5), scalar(1, np.int64), const=[1], upper=0)
    yield ms("ExpandDims", real(2, 3), np.array(-1, np.int32), const=[1])
    yield ms("GatherND", real(3, 4), integers(2, 1, low=0, high=3), symbolic=(0,))
    yield ms("Pad", real(2, 3), i64(1, 0, 0, 2), f32(2), const=[1])
    yield ms("IsAllFinite", real(2, 3), f32(1, np.inf), lacks=LACKS_CPU)
    yield ms("IsAllFinite", f32(1, np.nan), lacks=LACKS_CPU, isinf_only=1)
