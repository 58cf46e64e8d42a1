"""com.microsoft's fused activations, products, convolutions and normalisations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.activation import gelu, gelu_tanh, sigmoid
from webrt.host.conv import conv
from webrt.host.gather import checked, gather_nd
from webrt.host.matmul import gemm
from webrt.host.norm import normalize_groups, per_channel, root_mean_square, standardize
from webrt.host.pool import max_pool
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.slicing import pad, trilu
from webrt.host.softmax import softmax
from webrt.host.values import Array, np_dtype, wide
from webrt.schemas import MS_DOMAIN


@op("Gelu", domain=MS_DOMAIN)
def gelu_op(call: Call, x: Array) -> Array:
    """x Φ(x)."""
    return gelu(wide(x)).astype(x.dtype)


@op("BiasGelu", domain=MS_DOMAIN)
def bias_gelu(call: Call, x: Array, bias: Array) -> Array:
    """Gelu of x plus a bias."""
    return gelu(np.asarray(wide(x) + wide(bias))).astype(x.dtype)


@op("FastGelu", domain=MS_DOMAIN)
def fast_gelu(call: Call, x: Array, bias: Array | None = None) -> Array:
    """Gelu by tanh, of x plus an optional bias."""
    return gelu_tanh(wide(x) if bias is None else np.asarray(wide(x) + wide(bias))).astype(x.dtype)


@op("QuickGelu", domain=MS_DOMAIN)
def quick_gelu(call: Call, x: Array) -> Array:
    """x σ(alpha x)."""
    w = wide(x)
    return (w * sigmoid(np.asarray(w * call.number("alpha")))).astype(x.dtype)


@op("BiasAdd", domain=MS_DOMAIN)
def bias_add(call: Call, x: Array, bias: Array, skip: Array) -> Array:
    """x plus a bias plus a residual."""
    return (wide(x) + wide(bias) + wide(skip)).astype(x.dtype)


@op("BiasSplitGelu", domain=MS_DOMAIN)
def bias_split_gelu(call: Call, x: Array, bias: Array) -> Array:
    """The first half of x + bias, times Gelu of the second."""
    left, right = np.split(np.asarray(wide(x) + wide(bias)), 2, -1)
    return (left * gelu(right)).astype(x.dtype)


@op("BiasSoftmax", domain=MS_DOMAIN)
def bias_softmax(call: Call, x: Array, bias: Array) -> Array:
    """Softmax of x + bias over the axes from `axis` on."""
    axis = normal_axis(call.integer("axis"), x.ndim)
    if not call.integer("is_inner_broadcast") and bias.ndim < x.ndim:
        bias = bias.reshape(bias.shape[:1] + (1,) * (x.ndim - bias.ndim) + bias.shape[1:])
    total = np.asarray(wide(x) + wide(bias))
    return softmax(total.reshape(*x.shape[:axis], -1)).reshape(x.shape).astype(x.dtype)


@op("FusedMatMul", "TransposeMatMul", domain=MS_DOMAIN)
def fused_matmul(call: Call, a: Array, b: Array) -> Array:
    """alpha A' B'; batch and matrix axes may be exchanged first."""
    left = _turned(wide(a), call.integer("transA"), int(call.get("transBatchA", 0)))
    right = _turned(wide(b), call.integer("transB"), int(call.get("transBatchB", 0)))
    return np.asarray(np.matmul(left, right) * np.asarray(call.number("alpha"), left.dtype)).astype(a.dtype)


def _turned(x: Array, trans: int, batch: int) -> Array:
    if batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if trans and x.ndim > 1 else x


def activated(call: Call, x: Array) -> Array:
    """x through the activation that a fused node names."""
    name, p = call.get("activation"), call.floats("activation_params")
    alpha = p[0] if p else float(call.get("activation_alpha", 0.0) or 0.0)
    beta = p[1] if len(p) > 1 else float(call.get("activation_beta", 0.0) or 0.0)
    if not name:
        return x
    if name == "Clip":
        return np.clip(x, alpha, beta)
    table: dict[str, Callable[[], Array]] = {
        "Relu": lambda: np.maximum(x, 0), "Tanh": lambda: np.tanh(x), "Sigmoid": lambda: sigmoid(x),
        "LeakyRelu": lambda: np.where(x < 0, alpha * x, x), "HardSigmoid": lambda: np.clip(alpha * x + beta, 0, 1),
        "HardSwish": lambda: x * np.clip(alpha * x + beta, 0, 1),
    }  # fmt: skip
    if name not in table:
        raise InvalidModel(f"the activation {name!r} is not one that fused nodes know")
    return np.asarray(table[name]())


@op("FusedGemm", domain=MS_DOMAIN)
def fused_gemm(call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    """Gemm and an activation."""
    return activated(call, gemm(call, a, b, c)).astype(a.dtype)


@op("FusedConv", domain=MS_DOMAIN)
def fused_conv(call: Call, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
    """Conv, a residual, and an activation."""
    y = conv(call, wide(x), wide(w), None if bias is None else wide(bias))
    return activated(call, y if z is None else np.asarray(y + wide(z))).astype(x.dtype)


@op("NhwcConv", "NhwcFusedConv", domain=MS_DOMAIN)
def nhwc_conv(call: Call, x: Array, w: Array, bias: Array | None = None, z: Array | None = None) -> Array:
    """The same with channels last; the filters stay [M, C, kernel]."""
    moved = None if z is None else np.moveaxis(z, -1, 1)
    return np.ascontiguousarray(np.moveaxis(fused_conv(call, np.moveaxis(x, -1, 1), w, bias, moved), 1, -1))


@op("NhwcMaxPool", domain=MS_DOMAIN)
def nhwc_max_pool(call: Call, x: Array) -> Array:
    """MaxPool with channels last."""
    return np.ascontiguousarray(np.moveaxis(max_pool(call, np.moveaxis(x, -1, 1))[0], 1, -1))


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain=MS_DOMAIN)
def simplified_layer_normalization(call: Call, x: Array, scale: Array) -> tuple[Array, Array]:
    """x over its root mean square from `axis` on, times the scale; also the inverse of the latter."""
    stash = np_dtype(int(call.get("stash_type", 1)))
    work = x.astype(np.float64 if x.dtype == np.float64 else stash)
    axes = tuple(range(normal_axis(call.integer("axis"), x.ndim), x.ndim))
    y, inverse = root_mean_square(work, axes, call.number("epsilon"))
    return np.asarray(y * wide(scale)).astype(scale.dtype), inverse


@op("SkipSimplifiedLayerNormalization", domain=MS_DOMAIN)
def skip_simplified(
    call: Call, x: Array, skip: Array, gamma: Array, bias: Array | None = None
) -> tuple[Array | None, ...]:
    """The sum of input, residual and bias over its root mean square; also that sum."""
    total = _sum(x, skip, bias)
    y, inverse = root_mean_square(total, (x.ndim - 1,), call.number("epsilon"))
    return (y * wide(gamma)).astype(x.dtype), np.zeros_like(inverse), inverse, total.astype(x.dtype)


@op("SkipLayerNormalization", domain=MS_DOMAIN)
def skip_layer_normalization(
    call: Call, x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None
) -> tuple[Array, ...]:
    """The sum of input, residual and bias, normalised over the last axis; also that sum."""
    total = _sum(x, skip, bias)
    y, mean, inverse = standardize(total, (x.ndim - 1,), call.number("epsilon"))
    y = y * wide(gamma) if beta is None else y * wide(gamma) + wide(beta)
    return y.astype(x.dtype), mean, inverse, total.astype(x.dtype)


def _sum(x: Array, skip: Array, bias: Array | None) -> Array:
    total = np.asarray(wide(x) + wide(skip))
    if total.shape != x.shape:
        raise ShapeError(f"skip {skip.shape} does not broadcast to {x.shape}; check its shape")
    return total if bias is None else np.asarray(total + wide(bias))


@op("EmbedLayerNormalization", domain=MS_DOMAIN)
def embed_layer_normalization(
    call: Call, ids: Array, segments: Array | None, words: Array, places: Array, kinds: Array | None, gamma: Array,
    beta: Array, mask: Array | None = None, positions: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Word, position and segment embeddings summed and normalised; also how many ids each mask keeps."""
    at = np.arange(ids.shape[1]) if positions is None else positions
    total = wide(words)[checked(ids, words.shape[0], "the vocabulary")]
    total = total + wide(places)[checked(np.asarray(at), places.shape[0], "the position table")]
    if segments is not None and kinds is not None:
        total = total + wide(kinds)[checked(segments, kinds.shape[0], "the segment table")]
    y, _, _ = standardize(np.asarray(total), (2,), call.number("epsilon"))
    kept = np.zeros(ids.shape[0], np.int32) if mask is None else np.sum(mask != 0, 1).astype(np.int32)
    return (y * wide(gamma) + wide(beta)).astype(words.dtype), kept, np.asarray(total).astype(words.dtype)


@op("GroupNorm", domain=MS_DOMAIN)
def group_norm(call: Call, x: Array, gamma: Array, beta: Array) -> Array:
    """GroupNormalization with channels last by default and an optional SiLU."""
    last = bool(call.integer("channels_last"))
    w = np.moveaxis(wide(x), -1, 1) if last else wide(x)
    y = normalize_groups(np.ascontiguousarray(w), call.integer("groups"), call.number("epsilon"))
    y = np.asarray(y * per_channel(gamma, x.ndim) + per_channel(beta, x.ndim))
    y = y * sigmoid(y) if call.integer("activation") else y
    return np.ascontiguousarray(np.moveaxis(y, 1, -1) if last else y).astype(x.dtype)


@op("SkipGroupNorm", domain=MS_DOMAIN)
def skip_group_norm(
    call: Call, x: Array, gamma: Array, beta: Array, skip: Array, bias: Array | None = None
) -> tuple[Array, Array]:
    """GroupNorm of the sum of input, residual and bias; also that sum."""
    extra = skip if skip.ndim == x.ndim else skip.reshape(skip.shape[0], *(1,) * (x.ndim - 2), -1)
    total = wide(x) + wide(extra) if bias is None else wide(x) + wide(extra) + wide(bias)
    summed = np.asarray(total).astype(x.dtype)
    return group_norm(call, summed, gamma, beta), summed


@op("Trilu", domain=MS_DOMAIN)
def trilu_op(call: Call, x: Array, k: Array | None = None) -> Array:
    """ONNX's Trilu."""
    return trilu(call, x, k)


@op("Inverse", domain=MS_DOMAIN)
def inverse(call: Call, x: Array) -> Array:
    """Inverses of square matrices."""
    try:
        return np.linalg.inv(wide(x)).astype(x.dtype)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"a matrix has no inverse ({error})") from None


@op("ExpandDims", domain=MS_DOMAIN)
def expand_dims(call: Call, x: Array, axis: Array) -> Array:
    """One more axis of size 1."""
    return np.expand_dims(x, normal_axis(int(axis.reshape(-1)[0]), x.ndim + 1))


@op("GatherND", domain=MS_DOMAIN)
def gather_nd_op(call: Call, x: Array, indices: Array) -> Array:
    """ONNX's GatherND without batch axes."""
    return gather_nd(call, x, indices)


@op("Pad", domain=MS_DOMAIN)
def pad_op(call: Call, x: Array, pads: Array, value: Array | None = None) -> Array:
    """ONNX's Pad."""
    return pad(call, x, pads, value)


@op("Unique", domain=MS_DOMAIN)
def unique(call: Call, x: Array) -> tuple[Array, Array, Array]:
    """Distinct elements in the order of their first appearance, where each element is among them, and counts."""
    values, first, inverse_, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return values[order], rank[inverse_.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)


@op("IsAllFinite", domain=MS_DOMAIN)
def is_all_finite(call: Call, *inputs: Array) -> Array:
    """Whether no element is infinite or NaN; the attributes look for one of both only."""
    nan, inf = not call.integer("isinf_only"), not call.integer("isnan_only")
    found = any(bool((nan and np.isnan(wide(x)).any()) or (inf and np.isinf(wide(x)).any())) for x in inputs)
    return np.asarray(not found)
