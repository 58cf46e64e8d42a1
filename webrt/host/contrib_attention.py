"""com.microsoft's attention operators. Source: ONNX Runtime's ContribOperators.md and its CPU kernels."""

from __future__ import annotations

import math

import numpy as np

from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.host.attention import join_heads, masked_softmax, repeat_heads, rotate, split_heads
from webrt.host.norm import root_mean_square
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_float, wide
from webrt.schemas import MS_DOMAIN


@op("RotaryEmbedding", domain=MS_DOMAIN)
def rotary_embedding(call: Call, x: Array, positions: Array, cos: Array, sin: Array) -> Array:
    """Queries or keys turned by their positions; one position counts up over the sequence."""
    size, heads = int(call.get("rotary_embedding_dim", 0)), int(call.get("num_heads", 0))
    if x.ndim == 3 and not heads:
        width = size or cos.shape[1] * 2
        heads = x.shape[2] // width
    parts = split_heads(x, heads)
    steps = parts.shape[2]
    if positions.size == 1:
        positions = (positions.reshape(()) + np.arange(steps))[None]
    turned = rotate(parts, *_angles(cos, sin, positions), bool(call.get("interleaved", 0)))
    return join_heads(turned) if x.ndim == 3 else turned


def _angles(cos: Array, sin: Array, positions: Array) -> tuple[Array, Array]:
    if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= cos.shape[0]):
        raise IndexError(f"positions reach {int(positions.max())}, the caches end at {cos.shape[0]}")
    return wide(cos)[positions][:, None], wide(sin)[positions][:, None]


@op("GroupQueryAttention", domain=MS_DOMAIN)
def group_query_attention(
    call: Call, query: Array, key: Array | None, value: Array | None, past_key: Array | None,
    past_value: Array | None, lengths: Array, total: Array, cos: Array | None = None, sin: Array | None = None,
    positions: Array | None = None, bias: Array | None = None, sink: Array | None = None,
    k_scale: Array | None = None, v_scale: Array | None = None, q_norm: Array | None = None,
    k_norm: Array | None = None, query_lengths: Array | None = None,
) -> tuple[Array, Array, Array, Array | None]:  # fmt: skip
    """Causal attention with grouped key heads, a cache, and optional rotary embedding, window, cap and sink.

    `lengths` is, per batch entry, the number of valid keys less one; `total` the longest number of keys.
    """
    if (past_key is not None and not is_float(past_key.dtype)) or k_scale is not None or query_lengths is not None:
        raise UnsupportedOp("GroupQueryAttention with a quantised cache or query_seqlens")
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    q, k, v = _qkv(query, key, value, heads, groups)
    if q_norm is not None and k_norm is not None:
        q, k = _normed(call, "q", q, q_norm), _normed(call, "k", k, k_norm)
    steps, longest = q.shape[2], int(total.reshape(-1)[0])
    ends = lengths.reshape(-1).astype(np.int64) + 1
    before = np.zeros_like(ends) if steps == longest else ends - steps
    if call.get("do_rotary", 0) and cos is not None and sin is not None:
        at = before[:, None] + np.arange(steps) if positions is None else positions
        angles = _angles(cos, sin, np.minimum(at, cos.shape[0] - 1) if positions is None else at)
        q, k = (rotate(x, *angles, bool(call.get("rotary_interleaved", 0))) for x in (q, k))
    present_k, present_v = _append(k, past_key, before, longest), _append(v, past_value, before, longest)
    keys, values = repeat_heads(present_k[:, :, :longest], heads), repeat_heads(present_v[:, :, :longest], heads)
    scale = float(call.get("scale") or 0) or 1 / math.sqrt(q.shape[-1])
    logits = np.asarray(np.matmul(wide(q), wide(keys).swapaxes(2, 3)) * np.asarray(scale, wide(q).dtype))
    weights, shown = _gqa_weights(call, logits, bias, before, sink)
    y = np.matmul(weights, wide(values)).astype(query.dtype)
    return join_heads(y), present_k, present_v, None if shown is None else shown.astype(query.dtype)


def _qkv(query: Array, key: Array | None, value: Array | None, heads: int, groups: int) -> tuple[Array, Array, Array]:
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        cuts = [heads * size, (heads + groups) * size]
        query, key, value = query[..., : cuts[0]], query[..., cuts[0] : cuts[1]], query[..., cuts[1] :]
    return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)


def _normed(call: Call, which: str, x: Array, weight: Array) -> Array:
    epsilon = float(call.get(f"{which}_norm_epsilon", call.get("qk_norm_epsilon", 1e-6)))
    return (root_mean_square(wide(x), (3,), epsilon)[0] * wide(weight)).astype(x.dtype)


def _append(new: Array, past: Array | None, before: Array, longest: int) -> Array:
    """The cache [N, heads, room, D] with new rows after each entry's own past."""
    room = max(longest, past.shape[2] if past is not None else 0)
    result = np.zeros((*new.shape[:2], room, new.shape[3]), new.dtype)
    for n, start in enumerate(before.tolist()):
        if start < 0 or start + new.shape[2] > room or (start and (past is None or past.shape[2] < start)):
            raise ShapeError(f"{new.shape[2]} new rows after {start} do not fit a cache of {room}; check seqlens_k")
        if past is not None and start:
            result[n, :, :start] = past[n, :, :start]
        result[n, :, start : start + new.shape[2]] = new[n]
    return result


def _gqa_weights(
    call: Call, logits: Array, bias: Array | None, before: Array, sink: Array | None
) -> tuple[Array, Array | None]:
    cap, window, mode = float(call.get("softcap") or 0), call.integer("local_window_size"), call.integer("qk_output")
    if cap > 0:
        logits = np.asarray(np.tanh(logits / cap) * cap)
    if bias is not None:
        logits = logits + wide(bias)[..., : logits.shape[-1]]
    distance = np.arange(logits.shape[3]) - (np.arange(logits.shape[2])[:, None] + before[:, None, None, None])
    hidden = (distance > 0) if call.get("causal", 1) else np.zeros_like(distance, bool)
    if window >= 0:
        hidden |= distance <= -window
    masked = np.where(hidden, -np.inf, logits).astype(logits.dtype)
    extra = None
    if sink is not None:
        extra = wide(sink).reshape(1, -1, 1, 1)
    elif call.get("smooth_softmax", 0) == 1:
        extra = np.zeros((1, 1, 1, 1), logits.dtype)
    weights = masked_softmax(masked, extra)
    return weights, (None, logits, weights)[mode] if mode in (1, 2) else None


@op("MultiHeadAttention", domain=MS_DOMAIN)
def multi_head_attention(
    call: Call, query: Array, key: Array | None = None, value: Array | None = None, bias: Array | None = None,
    padding: Array | None = None, extra: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, past_length: Array | None = None, indirection: Array | None = None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Attention over heads, with biases, masks and caches, from separate or packed inputs."""
    if past_length is not None or indirection is not None:
        raise UnsupportedOp("MultiHeadAttention with past_sequence_length or cache_indirection")
    heads = call.integer("num_heads")
    q, k, v = _unpacked(query, key, value, heads)
    if bias is not None:
        q, k, v = _with_bias(q, k, v, bias)
    if past_key is not None and past_value is not None:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    mask = _padding_mask(call, padding, q.shape[0], q.shape[2], k.shape[2])
    y, logits = _plain_attention(call, q, k, v, mask, extra)
    return join_heads(y.astype(query.dtype)), k, v, logits.astype(query.dtype)


def _unpacked(query: Array, key: Array | None, value: Array | None, heads: int) -> tuple[Array, Array, Array]:
    """[N, heads, S, D] each, from [N, S, heads, 3, D], [N, L, heads, 2, D], or separate tensors."""
    if query.ndim == 5:
        q, k, v = (query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3))
        return q, k, v
    if key is not None and key.ndim == 5:
        k, v = (key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2))
        return split_heads(query, heads), k, v
    if key is None or value is None:
        raise InvalidModel("key and value are missing, and the query is not packed")
    return split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)


def _with_bias(q: Array, k: Array, v: Array, bias: Array) -> tuple[Array, Array, Array]:
    sizes = [x.shape[1] * x.shape[3] for x in (q, k, v)]
    parts = np.split(bias, np.cumsum(sizes)[:2])
    done = [x + p.reshape(1, x.shape[1], 1, x.shape[3]) for x, p in zip((q, k, v), parts)]
    return done[0], done[1], done[2]


def _padding_mask(call: Call, mask: Array | None, batch: int, queries: int, keys: int) -> Array | None:
    """Where a key may be seen, in a shape that broadcasts against [N, heads, S, T]."""
    if mask is None:
        return None
    line = np.arange(keys)
    if mask.ndim == 1 and mask.size == batch:
        return np.asarray(line < mask[:, None])[:, None, None]
    if mask.ndim == 1 and mask.size == 2 * batch:
        return np.asarray((line < mask[:batch, None]) & (line >= mask[batch:, None]))[:, None, None]
    if mask.ndim == 1 and mask.size == 3 * batch + 2:
        return np.asarray(line < mask[:batch, None])[:, None, None]
    if mask.ndim == 2:
        return np.asarray(mask[:, None, None, :keys] != 0)
    if mask.ndim == 3:
        return np.asarray(mask[:, None, :, :keys] != 0)
    if mask.ndim == 4:
        past = keys - queries
        return np.asarray(mask[:, :, past : past + queries, :keys] != 0)
    raise ShapeError(f"a mask of shape {mask.shape} for {batch} × {queries} × {keys}")


def _plain_attention(
    call: Call, q: Array, k: Array, v: Array, mask: Array | None, extra: Array | None
) -> tuple[Array, Array]:
    scale = float(call.get("scale") or 0) or 1 / math.sqrt(q.shape[-1])
    logits = np.asarray(np.matmul(wide(q), wide(k).swapaxes(2, 3)) * np.asarray(scale, wide(q).dtype))
    if extra is not None:
        logits = logits + wide(extra)
    low = np.asarray(call.get("mask_filter_value", -10000.0), logits.dtype)
    if mask is not None:
        logits = np.where(mask, logits, logits + low)
    if call.get("unidirectional", 0):
        distance = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
        logits = np.where(distance > 0, np.finfo(np.float32).min, logits)
    return np.asarray(np.matmul(masked_softmax(np.asarray(logits)), wide(v))), np.asarray(logits)


@op("Attention", domain=MS_DOMAIN)
def attention(
    call: Call, x: Array, weights: Array, bias: Array | None = None, mask: Array | None = None,
    past: Array | None = None, extra: Array | None = None, past_length: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Self-attention with the projections to queries, keys and values inside; the cache is [2, N, heads, S, D]."""
    if call.get("do_rotary", 0) or past_length is not None:
        raise UnsupportedOp("com.microsoft:Attention with do_rotary or a shared cache")
    heads = call.integer("num_heads")
    sizes = call.ints("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    joined = np.matmul(wide(x), wide(weights))
    joined = joined if bias is None else joined + wide(bias)
    cut = [int(n) for n in np.cumsum(sizes)]
    q, k, v = (
        split_heads(p, heads) for p in (joined[..., : cut[0]], joined[..., cut[0] : cut[1]], joined[..., cut[1] :])
    )
    if past is not None:
        k, v = np.concatenate([wide(past[0]), k], 2), np.concatenate([wide(past[1]), v], 2)
    allowed = _padding_mask(call, mask, x.shape[0], q.shape[2], k.shape[2])
    y, _ = _plain_attention(call, q, k, v, allowed, extra)
    present = np.stack([k, v]) if k.shape == v.shape else k[None]
    return join_heads(y).astype(x.dtype), present.astype(x.dtype)
