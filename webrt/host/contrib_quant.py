"""com.microsoft's operators on quantised tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from webrt.errors import ShapeError
from webrt.host.activation import sigmoid
from webrt.host.conv import qlinear_conv
from webrt.host.gather import checked
from webrt.host.matmul import integer_product, requantize
from webrt.host.pool import pool_windows, window_counts, window_sums
from webrt.host.quantize import dequantize_linear, dynamic_quantize, quantize_linear
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.rnn import lstm
from webrt.host.softmax import softmax
from webrt.host.values import Array, wide
from webrt.schemas import MS_DOMAIN


def unpack_bits(packed: Array, bits: int) -> Array:
    """Unsigned numbers of 1, 2, 4 or 8 bits out of bytes, the lowest bits first; the last axis grows."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


@op("MatMulNBits", domain=MS_DOMAIN)
def matmul_nbits(
    call: Call, a: Array, b: Array, scales: Array, zeros: Array | None = None, g_idx: Array | None = None,
    bias: Array | None = None,
) -> Array:  # fmt: skip
    """a times weights [N, K] that are packed in blocks along K, each with a scale and a zero point."""
    w = dequantized_weights(call, b, scales, zeros, g_idx)
    if a.shape[-1] != w.shape[1]:
        raise ShapeError(f"A has {a.shape[-1]} columns, the weights K = {w.shape[1]}; they must agree")
    y = np.matmul(wide(a), w.T)
    return np.asarray(y if bias is None else y + wide(bias)).astype(a.dtype)


def dequantized_weights(call: Call, b: Array, scales: Array, zeros: Array | None, g_idx: Array | None) -> Array:
    """float32 weights [N, K] of MatMulNBits."""
    n, k, bits, block = (call.integer(name) for name in ("N", "K", "bits", "block_size"))
    blocks = -(-k // block)
    values = unpack_bits(b.reshape(n, blocks, -1), bits).astype(np.float32)
    if values.shape[2] != block:
        raise ShapeError(f"B {b.shape} does not hold {n} × {blocks} blocks of {block} numbers of {bits} bits")
    factors = wide(scales).reshape(n, blocks).astype(np.float32)
    if zeros is None:
        offsets = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        offsets = unpack_bits(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)
    else:
        offsets = wide(zeros).reshape(n, blocks).astype(np.float32)
    if g_idx is None:
        return np.asarray((values - offsets[..., None]) * factors[..., None]).reshape(n, -1)[:, :k]
    group = checked(g_idx.reshape(-1)[:k], blocks, "the blocks")
    return np.asarray((values.reshape(n, -1)[:, :k] - offsets[:, group]) * factors[:, group])


@op("GatherBlockQuantized", domain=MS_DOMAIN)
def gather_block_quantized(call: Call, data: Array, indices: Array, scales: Array, zeros: Array | None = None) -> Array:
    """Slices of a tensor that is quantised in blocks along one axis, dequantised."""
    bits, block = call.integer("bits"), call.integer("block_size")
    packed = data.dtype == np.uint8
    values = unpack_bits(data, bits) if packed else data
    gather, along = (
        normal_axis(call.integer("gather_axis"), values.ndim),
        normal_axis(call.integer("quantize_axis"), values.ndim),
    )
    chosen = checked(indices, values.shape[gather], f"axis {gather}")
    spread = np.minimum(np.arange(values.shape[along]) // block, scales.shape[along] - 1)
    factors = np.take(wide(scales), spread, along)
    if zeros is not None:
        offsets = unpack_bits(zeros, bits) if packed else zeros
        offsets = np.take(offsets.astype(np.float32), spread, along)
    else:
        offsets = np.float32(1 << (bits - 1) if packed else 0) * np.ones_like(factors)
    if gather == along:
        full = (values.astype(np.float32) - offsets) * factors
        return np.take(full, chosen, gather).astype(scales.dtype)
    taken = [np.take(x, chosen, gather) for x in (values.astype(np.float32), offsets, factors)]
    return np.asarray((taken[0] - taken[1]) * taken[2]).astype(scales.dtype)


def real(x: Array, scale: Array, zero: Array | None) -> Array:
    """Quantised numbers as float32."""
    offset = 0 if zero is None else zero.astype(np.float32)
    return np.asarray((x.astype(np.float32) - offset) * scale.astype(np.float32))


def _quantized(x: Array, scale: Array, zero: Array | None, like: Array) -> Array:
    point = np.zeros((), like.dtype) if zero is None else zero
    return requantize(np.asarray(x / scale.astype(np.float32)), point)


def _register_binary(name: str, function: Callable[[Array, Array], Array]) -> None:
    @op(name, domain=MS_DOMAIN)
    def run(
        call: Call, a: Array, a_scale: Array, a_zero: Array | None, b: Array, b_scale: Array, b_zero: Array | None,
        scale: Array, zero: Array | None = None,
    ) -> Array:  # fmt: skip
        return _quantized(function(real(a, a_scale, a_zero), real(b, b_scale, b_zero)), scale, zero, a)


_register_binary("QLinearAdd", np.add)
_register_binary("QLinearMul", np.multiply)


def _register_unary(name: str, function: Callable[[Call, Array], Array]) -> None:
    @op(name, domain=MS_DOMAIN)
    def run(
        call: Call, x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array | None = None
    ) -> Array:
        return _quantized(function(call, real(x, x_scale, x_zero)), scale, zero, x)


def _leaky(call: Call, x: Array) -> Array:
    return np.where(x < 0, x * np.float32(call.number("alpha")), x)


def _softmax(call: Call, x: Array) -> Array:
    axis = normal_axis(call.integer("axis"), x.ndim)
    if call.integer("opset") < 13:
        return softmax(x.reshape(int(np.prod(x.shape[:axis])), -1)).reshape(x.shape)
    return softmax(x, axis)


def _channels_first(call: Call, x: Array) -> Array:
    return np.moveaxis(x, -1, 1) if call.get("channels_last", 0) else x


def _channels_back(call: Call, x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1) if call.get("channels_last", 0) else x)


@op("QLinearAveragePool", domain=MS_DOMAIN)
def qlinear_average_pool(
    call: Call, x: Array, x_scale: Array, x_zero: Array | None, scale: Array, zero: Array | None = None
) -> Array:
    """Means over windows; the zero point is added before rounding, as onnxruntime does: ties go to the even code."""
    codes = _average(call, real(x, x_scale, x_zero)) / scale.astype(np.float32)
    point = np.float32(0 if zero is None else zero)
    return requantize(np.asarray(codes + point), np.zeros((), x.dtype))


def _average(call: Call, x: Array) -> Array:
    moved = _channels_first(call, x)
    windows = pool_windows(call, moved)
    counts = window_counts(windows, bool(call.integer("count_include_pad"))).astype(np.float32)
    return _channels_back(call, np.asarray(window_sums(windows, moved) / counts))


def _global_average(call: Call, x: Array) -> Array:
    moved = _channels_first(call, x)
    return _channels_back(call, np.mean(moved, axis=tuple(range(2, x.ndim)), keepdims=True))


for _name, _function in {
    "QLinearSigmoid": lambda c, x: sigmoid(x), "QLinearLeakyRelu": _leaky, "QLinearSoftmax": _softmax,
    "QLinearGlobalAveragePool": _global_average,
}.items():  # fmt: skip
    _register_unary(_name, _function)


@op("QLinearConcat", domain=MS_DOMAIN)
def qlinear_concat(call: Call, scale: Array, zero: Array, *inputs: Array) -> Array:
    """Quantised tensors (each with its scale and zero point) joined along an axis, requantised."""
    parts = [real(x, s, z) for x, s, z in zip(inputs[0::3], inputs[1::3], inputs[2::3])]
    return _quantized(np.concatenate(parts, normal_axis(call.integer("axis"), parts[0].ndim)), scale, zero, zero)


@op("QLinearConv", domain=MS_DOMAIN)
def qlinear_conv_op(
    call: Call, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array,
    y_zero: Array, bias: Array | None = None,
) -> Array:  # fmt: skip
    """ONNX's QLinearConv, with channels last on demand."""
    moved = _channels_first(call, x)
    return _channels_back(call, qlinear_conv(call, moved, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias))


@op("QGemm", domain=MS_DOMAIN)
def qgemm(
    call: Call, a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array | None = None, y_scale: Array | None = None, y_zero: Array | None = None,
) -> Array:  # fmt: skip
    """alpha A' B' + C of quantised matrices; float32 without an output scale."""
    left = a.astype(np.int32) - a_zero.astype(np.int32)
    right, factor = b.astype(np.int32), b_scale
    left, right = left.T if call.integer("transA") else left, right.T if call.integer("transB") else right
    exact = integer_product(left, right - b_zero.astype(np.int32))
    exact = exact if c is None else exact + c
    scaled = exact.astype(np.float32) * np.asarray(call.number("alpha") * a_scale * factor, np.float32)
    if y_scale is None or y_zero is None:
        return scaled
    return _quantized(scaled, y_scale, y_zero, a)


@op("MatMulIntegerToFloat", domain=MS_DOMAIN)
def matmul_integer_to_float(
    call: Call, a: Array, b: Array, a_scale: Array, b_scale: Array, a_zero: Array | None = None,
    b_zero: Array | None = None, bias: Array | None = None,
) -> Array:  # fmt: skip
    """The product of 8-bit matrices times their scales."""
    left = a.astype(np.int32) - (0 if a_zero is None else a_zero.astype(np.int32))
    right = b.astype(np.int32) - (0 if b_zero is None else b_zero.astype(np.int32))
    y = integer_product(left, right).astype(np.float32) * (wide(a_scale) * wide(b_scale))
    return np.asarray(y if bias is None else y + wide(bias)).astype(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MS_DOMAIN)
def dynamic_quantize_matmul(
    call: Call, a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    """a, quantised now, times quantised weights."""
    quantized, scale, zero = dynamic_quantize(a)
    y = matmul_integer_to_float(call, quantized, b, scale, b_scale, zero, b_zero, bias)
    return np.asarray(y)


@op("DynamicQuantizeLSTM", domain=MS_DOMAIN)
def dynamic_quantize_lstm(
    call: Call, x: Array, w: Array, r: Array, b: Array | None, lengths: Array | None, h: Array | None, c: Array | None,
    p: Array | None, w_scale: Array, w_zero: Array, r_scale: Array, r_zero: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """An LSTM with quantised weights [directions, in, 4 * hidden], one scale per direction or per column.

    The inputs stay float32: ONNX Runtime's own quantisation of them is an optimisation, not the operator's meaning.
    """
    weights = [_lstm_weights(m, s, z) for m, s, z in ((w, w_scale, w_zero), (r, r_scale, r_zero))]
    plain = replace(call, op_type="LSTM")
    return lstm(plain, x, weights[0], weights[1], b, lengths, h, c, p)


def _lstm_weights(m: Array, scale: Array, zero: Array) -> Array:
    s, z = (v.reshape(v.shape[0], 1, -1) for v in (scale, zero))
    return real(m, s, z).swapaxes(1, 2)


@op("QuantizeLinear", domain=MS_DOMAIN)
def quantize(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """ONNX's QuantizeLinear."""
    return quantize_linear(call, x, scale, zero)


@op("DequantizeLinear", domain=MS_DOMAIN)
def dequantize(call: Call, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """ONNX's DequantizeLinear."""
    return dequantize_linear(call, x, scale, zero)
