"""com.microsoft's MultiHeadAttention and Attention: biases, padding masks, caches, separate or packed inputs.

Sources: ONNX Runtime's ContribOperators.md and core/providers/cpu's attention kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, op, require
from webrt.ops.attend import attend
from webrt.ops.head_views import Heads
from webrt.ops.matmul import multiply
from webrt.ops.vectors import IDENTITY, Epilogue, kind
from webrt.ops.view import View, move

MS = "com.microsoft"
LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Part:
    """Queries, keys or values: element [n, h, s, d] of `shape` is `x`'s element offset + n·steps[0] + h·steps[1] +
    s·steps[2] + d, plus element `bias_at` + h·D + d of the bias."""

    x: Value
    shape: Shape
    steps: tuple[Dim, Dim, Dim]
    offset: Dim = 0
    bias_at: Dim = 0

    @property
    def width(self) -> Dim:
        return D.mul(self.shape[1], self.shape[3])


@dataclass(frozen=True)
class Past:
    """A cache [n, h, length, D] that begins at element `offset`."""

    x: Value
    length: Dim
    offset: Dim = 0


def _rows(x: Value, heads: int, first: Dim = 0, width: Dim | None = None) -> Part:
    """[N, S, W], of which columns first … first + width are heads; or [N, heads, S, D]."""
    shape = x.known_shape
    if len(shape) == 4:
        batch, own, steps, head = shape
        return Part(x, shape, (D.prod((own, steps, head)), D.mul(steps, head), head))
    if len(shape) != 3:
        raise ShapeError(f"queries, keys or values of rank {len(shape)}")
    batch, steps, row = shape
    head = D.floordiv(row if width is None else width, heads)
    return Part(x, (batch, heads, steps, head), (D.mul(steps, row), head, row), first)


def _packed(x: Value, index: int) -> Part:
    """[N, S, heads, parts, D]."""
    batch, steps, heads, parts, head = x.known_shape
    each = D.mul(parts, head)
    return Part(x, (batch, heads, steps, head), (D.prod((steps, heads, each)), each, D.mul(heads, each)), index * head)


def _parts(n: Node) -> tuple[Part, Part, Part]:
    heads, query = int(n.attr("num_heads")), n.input(0)
    if query.rank == 5:
        return _packed(query, 0), _packed(query, 1), _packed(query, 2)
    q = _rows(query, heads)
    if n.has(1) and n.input(1).rank == 5:
        k, v = _packed(n.input(1), 0), _packed(n.input(1), 1)
    elif n.has(1) and n.has(2):
        k, v = _rows(n.input(1), heads), _rows(n.input(2), heads)
    else:
        raise InvalidModel("key and value are missing, and the query is not packed")
    k = Part(k.x, k.shape, k.steps, k.offset, q.width)
    return q, k, Part(v.x, v.shape, v.steps, v.offset, D.add(q.width, k.width))


def _mha_shape(n: Node) -> list[Info]:
    (q, k, v), dtype = _parts(n), n.input(0).dtype
    total = D.add(k.shape[2], n.input(6).known_shape[2]) if n.has(6) else k.shape[2]
    batch, heads, steps, _ = q.shape
    infos: list[Info] = [(dtype, (batch, steps, v.width))]
    infos += [(dtype, (batch, heads, total, p.shape[3])) for p in (k, v)]
    return [*infos, (dtype, (batch, heads, steps, total))][: len(n.outputs)]


@op("MultiHeadAttention", shape=_mha_shape, domain=MS)
def multi_head_attention(n: Node, b: Builder) -> None:
    require([v for k, v in enumerate(n.inputs) if k not in (4, 8, 9)], *T.FLOATS)
    if n.has(8) or n.has(9) or n.wants(3):
        raise UnsupportedOp("MultiHeadAttention with a shared cache, or its logits as output")
    bias = n.input(3) if n.has(3) else None
    q, k, v = _parts(n)
    _check_parts(b, q, k, v)
    if bias is not None:
        width = D.add(D.add(q.width, k.width), v.width)
        b.check(D.eq(bias.elements, width), f"the bias has {bias.elements} elements, {width} are needed")
    for j, part in ((6, k), (7, v)):
        if n.has(j):
            _check_past(b, n.input(j).known_shape, part)
    past = [Past(n.input(j), n.input(j).known_shape[2]) if n.has(j) else None for j in (6, 7)]
    keys, values = (
        _by_head(b, part, bias, cache, n.output(j) if n.wants(j) else None)
        for j, part, cache in ((1, k, past[0]), (2, v, past[1]))
    )
    mask = n.input(4) if n.has(4) else None
    _attend(n, b, _by_head(b, q, bias, None, None), keys, values, mask, n.input(5) if n.has(5) else None)


def _check_parts(b: Builder, q: Part, k: Part, v: Part) -> None:
    """Raises ShapeError for queries, keys and values that do not fit together."""
    for part, name in ((q, "queries"), (k, "keys"), (v, "values")):
        row = part.x.known_shape[-1]
        if (part.x.rank == 3 and part.x is not q.x) or (part is q and part.x.rank == 3):
            b.check(D.eq(D.mod(row, part.shape[1]), 0), f"{name} of {row} columns for {part.shape[1]} heads")
        b.check(D.eq(part.shape[0], q.shape[0]), f"{part.shape[0]} batches of {name} for {q.shape[0]} of queries")
        b.check(D.eq(part.shape[1], q.shape[1]), f"{part.shape[1]} heads of {name} for {q.shape[1]} of queries")
    b.check(D.eq(q.shape[3], k.shape[3]), f"heads of {q.shape[3]} numbers in queries and {k.shape[3]} in keys")
    b.check(D.eq(k.shape[2], v.shape[2]), f"{k.shape[2]} keys and {v.shape[2]} values")


def _check_past(b: Builder, past: Shape, part: Part) -> None:
    """A cache [n, h, length, D] of a part's batches, heads and head size."""
    if len(past) != 4:
        raise ShapeError(f"a cache of rank {len(past)}, 4 is needed")
    for a, what in ((0, "batches"), (1, "heads"), (3, "numbers in a head")):
        b.check(D.eq(past[a], part.shape[a]), f"a cache of {past[a]} {what} for {part.shape[a]}")


def _hidden(n: Node) -> list[Dim]:
    """The widths of queries, keys and values."""
    given = n.attr("qkv_hidden_sizes")
    return [int(s) for s in given] if given else [D.floordiv(n.input(1).known_shape[1], 3)] * 3


def _attention_shape(n: Node) -> list[Info]:
    (batch, steps, _), dtype, heads = n.input(0).known_shape, n.input(0).dtype, int(n.attr("num_heads"))
    total = D.add(steps, n.input(4).known_shape[3]) if n.has(4) else steps
    sizes = _hidden(n)
    present = (2, batch, heads, total, D.floordiv(sizes[1], heads))
    infos: list[Info] = [(dtype, (batch, steps, sizes[2])), (dtype, present)]
    return infos[: len(n.outputs)]


@op("Attention", shape=_attention_shape, domain=MS)
def attention(n: Node, b: Builder) -> None:
    require([v for k, v in enumerate(n.inputs) if k not in (3, 6)], *T.FLOATS)
    if n.has(6) or n.attr("do_rotary", 0):
        raise UnsupportedOp("Attention with a shared cache or rotary embedding")
    x, weights, heads, sizes = n.input(0), n.input(1), int(n.attr("num_heads")), _hidden(n)
    width = weights.known_shape[1]
    total = D.add(D.add(sizes[0], sizes[1]), sizes[2])
    b.check(D.eq(width, total), f"weights of {width} columns, {total} are needed")
    for size in sizes:
        b.check(D.eq(D.mod(size, heads), 0), f"{size} columns for {heads} heads")
    if n.has(2):
        b.check(D.eq(n.input(2).elements, width), f"the bias has {n.input(2).elements} elements, {width} are needed")
    joined = b.temp(T.F32 if x.dtype == T.F32 else kind(x), (*x.known_shape[:2], width))
    epilogue = IDENTITY
    if n.has(2):
        epilogue = Epilogue("return v + load_bias(i % p.width);", {"bias": n.input(2)}, {"width": width})
    multiply(b, x, weights, joined, epilogue, "attention_projection")
    starts = [0, sizes[0], D.add(sizes[0], sizes[1])]
    q, k, v = (_rows(joined, heads, start, size) for start, size in zip(starts, sizes))
    past: list[Past | None] = [None, None]
    if n.has(4):
        cache = n.input(4)
        _check_past(b, cache.known_shape[1:], k)
        past = [Past(cache, cache.known_shape[3], D.mul(j, D.floordiv(cache.elements, 2))) for j in (0, 1)]
    keys, values = (_by_head(b, part, None, cache, None) for part, cache in ((k, past[0]), (v, past[1])))
    if n.wants(1):
        half = "if (i < p.half) { return load_k(i); }\nreturn load_v(i - p.half);"
        keys, values = _stored(b, keys), _stored(b, values)
        params = {"half": keys.x.elements}
        b.map(n.output(1), half, reads={"k": keys.x, "v": values.x}, params=params, name="attention_cache")
    mask = n.input(3) if n.has(3) else None
    _attend(n, b, _by_head(b, q, None, None, None), keys, values, mask, n.input(5) if n.has(5) else None)


def _by_head(b: Builder, part: Part, bias: Value | None, past: Past | None, out: Value | None) -> Heads:
    """[N, heads, steps, D], behind what the cache holds; written where a bias, a cache or an output asks for it."""
    batch, heads, steps, head = part.shape
    if bias is None and past is None:
        view = View(part.shape, (*part.steps, 1), part.offset)
        if out is not None:
            move(b, out, part.x, view, "attention_heads")
        return Heads(part.x, view)
    total = D.add(steps, past.length) if past is not None else steps
    out = out or b.temp(kind(part.x), (batch, heads, total, head))
    params: dict[str, Dim] = {
        "head": head, "total": total, "heads": heads, "by_batch": part.steps[0], "by_head": part.steps[1],
        "by_step": part.steps[2], "offset": part.offset,
    }  # fmt: skip
    reads = {"x": part.x}
    lines = ["let d = i % p.head; let h = i / (p.head * p.total) % p.heads;", "var s = i / p.head % p.total;"]
    if past is not None:
        reads["past"] = past.x
        params |= {"length": past.length, "past_at": past.offset}
        lines.append(
            "if (s < p.length) { return load_past(p.past_at + (i / (p.head * p.total) * p.length + s) * p.head + d); }"
        )
        lines.append("s -= p.length;")
    at = "p.offset + i / (p.head * p.total * p.heads) * p.by_batch + h * p.by_head + s * p.by_step + d"
    text = f"load_x({at})"
    if bias is not None:
        reads["bias"], params["bias_at"] = bias, part.bias_at
        text += " + load_bias(p.bias_at + h * p.head + d)"
    b.map(out, "\n".join([*lines, f"return {text};"]), reads=reads, params=params, name="attention_heads")
    return Heads.of(out)


def _stored(b: Builder, heads: Heads) -> Heads:
    """The same heads as a tensor of their own."""
    if heads.view == View.of(heads.x.known_shape):
        return heads
    out = b.temp(kind(heads.x), heads.view.shape)
    move(b, out, heads.x, heads.view, "attention_heads")
    return Heads.of(out)


def _attend(n: Node, b: Builder, q: Heads, keys: Heads, values: Heads, mask: Value | None, extra: Value | None) -> None:
    (batch, heads, steps, _), total, width = q.view.shape, keys.view.shape[2], values.view.shape[3]
    out = View.of((batch, steps, heads, width)).permute((0, 2, 1, 3))
    attend(b, q, keys, values, Heads(n.output(), out), _logits(n, b, q, total, mask, extra))


def _logits(n: Node, b: Builder, q: Heads, total: Dim, mask: Value | None, extra: Value | None) -> Epilogue:
    """Scale, bias and masks of a logit."""
    batch, heads, steps, head = q.view.shape
    scale = float(n.attr("scale", 0.0)) or (1 / math.sqrt(max(head, 1)) if isinstance(head, int) else 0.0)
    if not scale:
        raise UnsupportedOp(f"{n.op_type} whose head size is not known")
    params: dict[str, Dim | float] = {"scale": scale, "keys": total, "queries": steps, "heads": heads}
    reads: dict[str, Value] = {}
    lines = ["let t = i % p.keys; let s = (i / p.keys) % p.queries; let h = i / (p.keys * p.queries) % p.heads;"]
    lines += ["let n = i / (p.keys * p.queries * p.heads); var w = v * bitcast<f32>(p.scale);"]
    if extra is not None:
        reads["extra"] = extra
        lines.append(f"w += load_extra({_broadcast(b, extra, (batch, heads, steps, total), params)});")
    if mask is not None:
        reads["mask"] = mask
        params["filtered"] = float(n.attr("mask_filter_value", -10000.0))
        lines.append(f"if (!({_visible(b, mask, batch, steps, total, params)})) {{ w += bitcast<f32>(p.filtered); }}")
    if n.attr("unidirectional", 0):
        params |= {"ahead": total - steps, "filled": LOWEST}
        lines.append("w = select(w, bitcast<f32>(p.filled), t > s + p.ahead);")
    return Epilogue(" ".join([*lines, "return w;"]), reads, params)


def _broadcast(b: Builder, extra: Value, shape: Shape, params: dict[str, Dim | float]) -> str:
    """The index of the bias's element for [n, h, s, t]."""
    if extra.rank != 4:
        raise UnsupportedOp(f"an attention bias of rank {extra.rank}")
    step: Dim = 1
    terms = []
    for letter, own, size in reversed(list(zip("nhst", extra.known_shape, shape))):
        if own != size:
            fits = D.select(D.eq(own, 1), 1, D.eq(own, size))
            b.check(fits, f"the attention bias has a size of {own}, not 1 or {size}")
        params[f"extra_{letter}"] = step if own == size else D.select(D.eq(own, 1), 0, step)
        terms.append(f"{letter} * p.extra_{letter}")
        step = D.mul(step, own)
    return " + ".join(terms)


def _visible(b: Builder, mask: Value, batch: Dim, steps: Dim, total: Dim, params: dict[str, Dim | float]) -> str:
    """Whether key t may be seen. 1-D masks hold the number of keys of each entry, and perhaps their starts."""
    require([mask], T.I32)
    shape = mask.known_shape
    params["entries"] = batch
    if len(shape) == 1:
        if shape[0] == 2 * batch:
            return "i32(t) < load_mask(n) && i32(t) >= load_mask(n + p.entries)"
        if shape[0] in (batch, 3 * batch + 2):
            return "i32(t) < load_mask(n)"
        raise UnsupportedOp(f"a mask of {shape[0]} elements for {batch} entries")
    if len(shape) == 2:
        b.check(D.eq(shape[0], batch), f"the mask has {shape[0]} rows for {batch} batches")
        b.check(D.le(total, shape[1]), f"the mask has {shape[1]} places for {total} keys")
        params["mask_row"] = shape[1]
        return "load_mask(n * p.mask_row + t) != 0"
    if len(shape) == 3:
        b.check(D.le(total, shape[2]), f"the mask has {shape[2]} places for {total} keys")
        b.check(D.eq(shape[1], steps), f"the mask has {shape[1]} rows for {steps} queries")
        params["mask_row"] = shape[2]
        return "load_mask((n * p.queries + s) * p.mask_row + t) != 0"
    raise UnsupportedOp(f"a mask of rank {len(shape)}")
