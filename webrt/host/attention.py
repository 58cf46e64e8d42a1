"""Attention and rotary embedding, as ONNX defines them from opset 23 on."""

from __future__ import annotations

import math

import numpy as np

from webrt.errors import InvalidModel, ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, np_dtype, wide


def split_heads(x: Array, heads: int) -> Array:
    """[N, S, heads * D] → [N, heads, S, D]; other ranks stay."""
    if x.ndim != 3:
        return x
    if not heads or x.shape[2] % heads:
        raise ShapeError(f"{x.shape[2]} features do not divide into {heads} heads")
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def join_heads(x: Array) -> Array:
    """[N, heads, S, D] → [N, S, heads * D]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def repeat_heads(x: Array, heads: int) -> Array:
    """Key or value heads, each repeated for the query heads that share it."""
    if x.shape[1] == heads:
        return x
    if not x.shape[1] or heads % x.shape[1]:
        raise ShapeError(f"{heads} query heads are no multiple of {x.shape[1]} key heads")
    return np.repeat(x, heads // x.shape[1], 1)


def masked_softmax(x: Array, sink: Array | None = None) -> Array:
    """Softmax over the last axis; a row of -inf gives zeros. `sink` is one more logit that takes its share."""
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isneginf(top), 0, top)
    e = np.exp(x - top)
    total = np.sum(e, axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    return np.asarray(e / np.where(total == 0, 1, total)).astype(x.dtype, copy=False)


def _positions(queries: int, keys: int, offset: Array) -> Array:
    """Key position minus query position, [N, 1, queries, keys] or [queries, keys]."""
    line = np.arange(keys) - np.arange(queries)[:, None]
    return line - offset[:, None, None, None] if offset.ndim else line - offset


def _bias(call: Call, mask: Array | None, queries: int, keys: int, offset: Array, valid: Array | None) -> Array:
    """Everything that is added to the logits: mask, causality, window, and the length of padded caches."""
    total: Array = np.zeros((queries, keys), np.float32)
    if mask is not None:
        if mask.shape[-1] < keys:
            blank = False if mask.dtype == np.bool_ else -np.inf
            mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])], constant_values=blank)
        total = total + (np.where(mask, 0, -np.inf) if mask.dtype == np.bool_ else wide(mask))
    distance = _positions(queries, keys, offset)
    left, right = int(call.get("left_window_size", -1)), int(call.get("right_window_size", -1))
    hidden = np.zeros(distance.shape, bool)
    if call.get("is_causal", 0):
        hidden |= distance > 0
    if left >= 0:
        hidden |= -distance > left
    if right >= 0:
        hidden |= distance > right
    if valid is not None:
        hidden = hidden | (np.arange(keys) >= valid[:, None, None, None])
    return np.asarray(np.where(hidden, -np.inf, total))


@op("Attention", since=23)
def attention(
    call: Call, q: Array, k: Array, v: Array, mask: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, valid: Array | None = None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """softmax(q kᵀ scale + bias) v over heads, with caches; also the caches and the logits at a chosen stage."""
    if (past_key is None) != (past_value is None) or (past_key is not None and valid is not None):
        raise InvalidModel("past_key and past_value come together, and not with nonpad_kv_seqlen")
    dtype, flat = q.dtype, q.ndim == 3
    q = split_heads(q, int(call.get("q_num_heads", 0) or 0))
    k, v = (split_heads(x, int(call.get("kv_num_heads", 0) or 0)) for x in (k, v))
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    offset = np.asarray(0 if past_key is None else past_key.shape[2])
    if valid is not None:
        valid = valid.reshape(-1).astype(np.int64)
        offset = valid - q.shape[2]
    bias = _bias(call, mask, q.shape[2], k.shape[2], offset, valid)
    scale = float(call.get("scale") or 1 / math.sqrt(q.shape[-1]))
    keys, values = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    root = np.asarray(math.sqrt(scale), wide(q).dtype)
    logits = np.matmul(wide(q) * root, (wide(keys) * root).swapaxes(2, 3))
    y, shown = _weigh(call, np.asarray(logits), bias, wide(values))
    y = y.astype(dtype)
    return join_heads(y) if flat else y, k, v, shown.astype(dtype)


def _weigh(call: Call, logits: Array, bias: Array, values: Array) -> tuple[Array, Array]:
    """The weighted values, and the logits after the stage that qk_matmul_output_mode names."""
    cap, mode = float(call.get("softcap", 0.0)), int(call.get("qk_matmul_output_mode", 0))
    stages = [logits]
    if cap > 0:
        logits = np.asarray(np.tanh(logits / cap) * cap)
    biased = np.asarray(logits + bias)
    stages += [logits, biased]
    precision = call.get("softmax_precision")
    work = np_dtype(int(precision)) if precision else logits.dtype
    weights = masked_softmax(biased.astype(work if work.itemsize > 2 else np.float32))
    empty = np.isneginf(np.max(bias, axis=-1, keepdims=True, initial=-np.inf))
    weights = np.where(empty, 0, weights).astype(values.dtype)
    stages.append(weights)
    return np.asarray(np.matmul(weights, values)), stages[mode]


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """x [N, heads, S, D] turned by angles [N, 1, S, D'/2]; what lies behind D' stays."""
    size = cos.shape[-1] * 2
    if size > x.shape[-1]:
        raise ShapeError(f"angles for {size} features, heads have {x.shape[-1]}; check rotary_embedding_dim")
    part, rest = wide(x[..., :size]), x[..., size:]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., : size // 2], part[..., size // 2 :])
    real, imaginary = a * cos - b * sin, b * cos + a * sin
    if interleaved:
        turned = np.stack([real, imaginary], -1).reshape(part.shape)
    else:
        turned = np.concatenate([real, imaginary], -1)
    return np.concatenate([turned.astype(x.dtype), rest], -1)


@op("RotaryEmbedding", since=23)
def rotary_embedding(call: Call, x: Array, cos: Array, sin: Array, positions: Array | None = None) -> Array:
    """Queries or keys turned by their positions."""
    heads = split_heads(x, call.integer("num_heads", 0))
    size = int(call.get("rotary_embedding_dim", 0)) or heads.shape[-1]
    if positions is not None:
        if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= cos.shape[0]):
            raise IndexError(f"position {int(positions.max())} is out of range for a cache of {cos.shape[0]}")
        cos, sin = cos[positions], sin[positions]
    if cos.shape[-1] != size // 2:
        raise ShapeError(f"the caches have {cos.shape[-1]} angles, {size // 2} are needed")
    turned = rotate(heads, wide(cos)[:, None], wide(sin)[:, None], bool(call.get("interleaved", 0)))
    return join_heads(turned) if x.ndim == 3 else turned
