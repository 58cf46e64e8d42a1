"""Normalisations. Statistics of narrow floats are computed in float32."""

from __future__ import annotations

import numpy as np

from webrt.errors import ShapeError, UnsupportedOp
from webrt.host.reduce import normal_axes, normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, np_dtype, wide


def per_channel(parameter: Array, rank: int) -> Array:
    """A vector [C] in a shape that broadcasts against [N, C, …]."""
    return wide(parameter).reshape((-1,) + (1,) * (rank - 2))


@op("BatchNormalization")
def batch_normalization(
    call: Call, x: Array, scale: Array, bias: Array, mean: Array, var: Array
) -> tuple[Array | None, ...]:
    """Normalises each channel by given statistics, or by the batch's own in training."""
    values, epsilon = wide(x), call.number("epsilon")
    training = bool(call.get("training_mode", 0))
    if call.opset < 14:
        training = not call.get("is_test", 1) if call.opset < 7 else len(call.outputs) > 1
    if call.opset < 9 and not call.get("spatial", 1):
        if training:
            raise UnsupportedOp("training with spatial = 0")
        y = (values - mean) / np.sqrt(wide(var) + epsilon) * scale + bias
        return (np.asarray(y).astype(x.dtype),)
    if x.ndim == 1:
        return (_normalized(values[:, None], mean, var, scale, bias, epsilon)[:, 0].astype(x.dtype),)
    if not training:
        return (_normalized(values, mean, var, scale, bias, epsilon).astype(x.dtype, copy=False),)
    axes = (0, *range(2, x.ndim))
    now_mean, now_var = np.mean(values, axis=axes), np.var(values, axis=axes)
    y = _normalized(values, now_mean, now_var, scale, bias, epsilon).astype(x.dtype)
    keep = call.number("momentum")
    run_mean = (wide(mean) * keep + now_mean * (1 - keep)).astype(mean.dtype)
    run_var = (wide(var) * keep + now_var * (1 - keep)).astype(var.dtype)
    if call.opset < 14:
        return y, run_mean, run_var, now_mean.astype(mean.dtype), now_var.astype(var.dtype)
    return y, run_mean, run_var


def _normalized(x: Array, mean: Array, var: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    if x.shape[1] != scale.size:
        raise ShapeError(f"{scale.size} scales for {x.shape[1]} channels; they must agree")
    factor = per_channel(scale, x.ndim) / np.sqrt(per_channel(var, x.ndim) + epsilon)
    return np.asarray((x - per_channel(mean, x.ndim)) * factor + per_channel(bias, x.ndim)).astype(x.dtype, copy=False)


def standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """x with mean 0 and variance 1 along axes; also the mean and the inverse standard deviation."""
    mean = np.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1 / np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True) + epsilon)
    inverse = np.asarray(inverse).astype(x.dtype, copy=False)
    return np.asarray(centred * inverse), np.asarray(mean), inverse


@op("InstanceNormalization")
def instance_normalization(call: Call, x: Array, scale: Array, bias: Array) -> Array:
    """Normalises each channel of each instance."""
    y, _, _ = standardize(wide(x), tuple(range(2, x.ndim)), call.number("epsilon"))
    return (y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(x.dtype)


@op("LayerNormalization")
def layer_normalization(call: Call, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Array, Array]:
    """Normalises over the axes from `axis` on."""
    stash = np_dtype(int(call.get("stash_type", 1)))
    work = np.float64 if x.dtype == np.float64 else stash
    axes = tuple(range(normal_axis(call.integer("axis"), x.ndim), x.ndim))
    y, mean, inverse = standardize(x.astype(work), axes, call.number("epsilon"))
    y = y * wide(scale) if bias is None else y * wide(scale) + wide(bias)
    stats = np.float64 if x.dtype == np.float64 and call.opset < 17 else stash
    return np.asarray(y).astype(scale.dtype, copy=False), mean.astype(stats), inverse.astype(stats)


def root_mean_square(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    """x over its root mean square along axes; also the inverse of the latter."""
    inverse = 1 / np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True) + epsilon)
    inverse = np.asarray(inverse).astype(x.dtype, copy=False)
    return np.asarray(x * inverse), inverse


@op("RMSNormalization")
def rms_normalization(call: Call, x: Array, scale: Array) -> Array:
    """x over its root mean square over the axes from `axis` on, times the scale."""
    stash = np_dtype(int(call.get("stash_type", 1)))
    work = np.float64 if x.dtype == np.float64 else stash
    axes = tuple(range(normal_axis(call.integer("axis"), x.ndim), x.ndim))
    y, _ = root_mean_square(x.astype(work), axes, call.number("epsilon"))
    return np.asarray(y * wide(scale)).astype(scale.dtype)


@op("GroupNormalization")
def group_normalization(call: Call, x: Array, scale: Array, bias: Array) -> Array:
    """Normalises groups of channels; below opset 21 scale and bias are one per group, from 21 on one per channel."""
    groups = call.integer("num_groups")
    y = normalize_groups(wide(x), groups, call.number("epsilon"))
    if call.opset < 21:
        many = x.shape[1] // groups
        scale, bias = np.repeat(scale, many), np.repeat(bias, many)
    return (y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(x.dtype)


def normalize_groups(x: Array, groups: int, epsilon: float) -> Array:
    """x [N, C, …] with mean 0 and variance 1 in each group of channels."""
    if x.shape[1] % groups:
        raise ShapeError(f"{x.shape[1]} channels do not divide into {groups} groups")
    flat = x.reshape(x.shape[0], groups, -1)
    return standardize(flat, (2,), epsilon)[0].reshape(x.shape)


@op("LpNormalization")
def lp_normalization(call: Call, x: Array) -> Array:
    """x over its p-norm along an axis; zero where the norm is zero."""
    axis, p = normal_axis(call.integer("axis"), x.ndim), call.integer("p")
    w = wide(x)
    norm = np.sum(np.abs(w), axis, keepdims=True) if p == 1 else np.sqrt(np.sum(np.square(w), axis, keepdims=True))
    return np.where(norm == 0, 0, w / np.where(norm == 0, 1, norm)).astype(x.dtype)


@op("LRN")
def local_response(call: Call, x: Array) -> Array:
    """x over a power of the squares in neighbouring channels."""
    size = call.integer("size")
    before, after = (size - 1) // 2, size // 2
    squares = np.square(wide(x))
    padded = np.zeros((x.shape[0], x.shape[1] + size - 1, *x.shape[2:]), squares.dtype)
    padded[:, before : before + x.shape[1]] = squares
    total = np.zeros_like(squares)
    for i in range(before + after + 1):
        total += padded[:, i : i + x.shape[1]]
    scale = call.number("bias") + call.number("alpha") / size * total
    return (wide(x) / scale ** call.number("beta")).astype(x.dtype)


@op("MeanVarianceNormalization")
def mean_variance(call: Call, x: Array) -> Array:
    """x with mean 0 and variance 1 along axes, [0, 2, 3] by default; 1e-9 is added to the deviation."""
    axes = normal_axes(call.ints("axes") or [0, 2, 3], x.ndim)
    w = wide(x)
    centred = w - np.mean(w, axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(np.square(centred), axis=axes, keepdims=True))
    return np.asarray(centred / (deviation + 1e-9)).astype(x.dtype)
