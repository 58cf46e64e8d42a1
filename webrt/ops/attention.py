"""com.microsoft's GroupQueryAttention: causal attention over a cache, grouped key heads, optional rotary embedding.

Source: ONNX Runtime's ContribOperators.md. ONNX's own Attention has a function body and needs no kernel here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, op, require
from webrt.ops.attend import attend
from webrt.ops.head_views import Empty, Heads
from webrt.ops.outline import Recorder, launch_outlines, needed
from webrt.ops.rotary import Turn, rotate
from webrt.ops.vectors import Epilogue
from webrt.ops.view import View, move, one_by_one

MS = "com.microsoft"


@dataclass(frozen=True)
class Sizes:
    """[batch, heads, steps, head] queries; `groups` key heads with `room` places in the cache."""

    batch: Dim
    steps: Dim
    heads: int
    groups: int
    head: Dim
    room: Dim
    total: Dim


def _sizes(n: Node) -> Sizes:
    heads, groups = int(n.attr("num_heads")), int(n.attr("kv_num_heads"))
    batch, steps, width = n.input(0).known_shape
    head = D.floordiv(width, heads if n.has(1) else heads + 2 * groups)
    total = n.dims(6)[0]
    room = D.maximum(total, n.input(3).known_shape[2]) if n.has(3) else total
    return Sizes(batch, steps, heads, groups, head, room, total)


def _shape(n: Node) -> list[Info]:
    s, dtype = _sizes(n), n.input(0).dtype
    present: Info = (dtype, (s.batch, s.groups, s.room, s.head))
    logits: Info = (dtype, (s.batch, s.heads, s.steps, s.total))
    return [(dtype, (s.batch, s.steps, D.mul(s.heads, s.head))), present, present, logits][: len(n.outputs)]


@op("GroupQueryAttention", shape=_shape, domain=MS)
def group_query_attention(n: Node, b: Builder) -> None:
    _supported(n)
    s = _sizes(n)
    _check(n, b, s)
    dtype = n.input(0).dtype or T.F32
    cache = (s.batch, s.groups, s.room, s.head)
    keys, values = (n.output(j) if n.wants(j) else b.temp(dtype, cache) for j in (1, 2))
    queries = _before(n, b, s, keys, values)
    by_head = View.of((s.batch, s.steps, s.heads, s.head)).permute((0, 2, 1, 3))
    attend(
        b, Heads(queries, by_head), Heads.of(keys), Heads.of(values), Heads(n.output(), by_head), _logits(n, s),
        Empty.HIDDEN,
    )  # fmt: skip


def _before(n: Node, b: Builder, s: Sizes, keys: Value, values: Value) -> Value:
    """Writes the caches, a kernel each; returns the queries. What is cut and turned on the way is not stored."""
    recorder = Recorder(b.target)
    with one_by_one():
        before = b.temp(T.I32, (s.batch,))
        text = f"return {_START.format(batch='i')};"
        reads, params = {"lengths": n.input(5)}, {"steps": s.steps, "total": s.total}
        recorder.map(before, text, reads=reads, params=params)
        q, k, v = _turned(n, recorder, s, before, *_inputs(n, recorder, s))
        for out, new, past in ((keys, k, 3), (values, v, 4)):
            _append(recorder, out, new, n.input(past) if n.has(past) else None, s, before)
    b.checks += recorder.checks
    outlines = {o.out: o for o in recorder.outlines}
    for out, name in ((q, "attention_queries"), (keys, "attention_cache"), (values, "attention_cache")):
        if out in outlines:
            launch_outlines(b, out, needed(outlines, out), name)
    return q


def _supported(n: Node) -> None:
    require([n.input(0), *(n.input(k) for k in (1, 2, 3, 4, 7, 8, 10) if n.has(k))], *T.FLOATS)
    require([n.input(5)], T.I32)
    if any(n.has(k) for k in range(11, 17)) or n.wants(3) or n.attr("smooth_softmax") == 1:
        raise UnsupportedOp("GroupQueryAttention with a sink, a quantised cache, norms or its logits as output")
    if n.attr("sliding_window_cache", 0):
        raise UnsupportedOp("GroupQueryAttention with a cache that slides")


def _check(n: Node, b: Builder, s: Sizes) -> None:
    """The sizes of the inputs must agree with each other and with the numbers of heads."""
    if s.groups < 1 or s.heads % s.groups:
        raise ShapeError(f"GroupQueryAttention with {s.heads} heads of queries for {s.groups} of keys")
    b.check(D.minimum(s.head, 1), "GroupQueryAttention with a head size of 0")
    wanted: list[tuple[int, tuple[Dim, ...]]] = []
    if n.has(1):
        wanted = [(0, (s.batch, s.steps, D.mul(s.heads, s.head)))]
        wanted += [(k, (s.batch, s.steps, D.mul(s.groups, s.head))) for k in (1, 2)]
    wanted += [(k, (s.batch, s.groups, n.input(3).known_shape[2], s.head)) for k in (3, 4) if n.has(k)]
    for k, shape in wanted:
        given = n.input(k).known_shape
        if len(given) != len(shape):
            raise ShapeError(f"GroupQueryAttention's input {k} has rank {len(given)}, expected {len(shape)}")
        for x, want in zip(given, shape):
            b.check(D.eq(x, want), f"GroupQueryAttention's input {k} has shape {list(given)}, expected {list(shape)}")


def _inputs(n: Node, b: Builder, s: Sizes) -> tuple[Value, Value, Value]:
    """Query, key and value, [batch, steps, heads · head] each, cut from one tensor where they are packed."""
    if n.has(1):
        return n.input(0), n.input(1), n.input(2)
    x, parts = n.input(0), list[Value]()
    at: Dim = 0
    for count in (s.heads, s.groups, s.groups):
        width = D.mul(count, s.head)
        part = b.temp(x.dtype or T.F32, (s.batch, s.steps, width))
        move(b, part, x, View.of(x.known_shape).cut(2, at, width))
        parts.append(part)
        at = D.add(at, width)
    return parts[0], parts[1], parts[2]


def _turned(n: Node, b: Builder, s: Sizes, before: Value, q: Value, k: Value, v: Value) -> tuple[Value, Value, Value]:
    """Queries and keys turned by their positions, where the node asks for it."""
    if not n.attr("do_rotary", 0):
        return q, k, v
    ids = n.input(9) if n.has(9) else b.temp(T.I32, (s.batch, s.steps))
    if not n.has(9):
        text = "return load_before(i / p.steps) + i32(i % p.steps);"
        b.map(ids, text, reads={"before": before}, params={"steps": s.steps}, name="attention_positions")
    cos = n.input(7)
    width = cos.known_shape[-1]
    turn = Turn(
        cos, n.input(8), ids, s.head, 2 * width if isinstance(width, int) else 0, bool(n.attr("rotary_interleaved", 0))
    )
    out = []
    for x in (q, k):
        out.append(b.temp(x.dtype or T.F32, x.known_shape))
        rotate(b, out[-1], x, turn)
    return out[0], out[1], v


def _append(b: Builder, out: Value, new: Value, past: Value | None, s: Sizes, before: Value) -> None:
    """The cache [batch, groups, room, head]: the valid past of each entry, then the new rows, then zeros."""
    params: dict[str, Dim] = {"head": s.head, "room": s.room, "groups": s.groups, "steps": s.steps}
    kept = "return Out();"
    reads = {"x": new, "before": before}
    if past is not None:
        reads["past"], params["length"] = past, past.known_shape[2]
        kept = "return load_past((owner * p.length + u32(r)) * p.head + k);"
    b.map(out, _APPEND.format(kept=kept), reads=reads, params=params, name="attention_cache")


_APPEND = """let k = i % p.head;
let r = i32((i / p.head) % p.room);
let owner = i / (p.head * p.room);
let batch = owner / p.groups;
let start = load_before(batch);
if (r < start) {{ {kept} }}
if (r >= start + i32(p.steps)) {{ return Out(); }}
return load_x(((batch * p.steps + u32(r - start)) * p.groups + owner % p.groups) * p.head + k);"""


_START = "select(load_lengths({batch}) + 1 - i32(p.steps), 0, p.steps == p.total)"
"""How many keys of an entry were there before."""


def _logits(n: Node, s: Sizes) -> Epilogue:
    """Scale, cap, bias and mask of a logit."""
    scale = float(n.attr("scale", 0.0)) or (1 / math.sqrt(s.head) if isinstance(s.head, int) else 0.0)
    if not scale:
        raise UnsupportedOp("GroupQueryAttention whose head size is not known")
    cap, window = float(n.attr("softcap", 0.0)), int(n.attr("local_window_size"))
    params: dict[str, Dim | float] = {
        "scale": scale, "keys": s.room, "queries": s.steps, "heads": s.heads, "lowest": -math.inf, "window": window,
        "total": s.total,
    }  # fmt: skip
    reads = {"lengths": n.input(5)}
    lines = ["let t = i % p.keys; let query = (i / p.keys) % p.queries; let owner = i / (p.keys * p.queries);"]
    lines += ["var w = v * bitcast<f32>(p.scale);"]
    if cap:
        params["cap"] = cap
        lines += ["let cap = bitcast<f32>(p.cap); w = cap * tanh(clamp(w / cap, -15.0, 15.0));"]
    if n.has(10):
        bias = n.input(10)
        reads["bias"] = bias
        one, each, _, wide = bias.known_shape
        params |= {"wide": wide, "by_batch": D.select(D.eq(one, 1), 0, each), "by_head": D.select(D.eq(each, 1), 0, 1)}
        at = "((owner / p.heads) * p.by_batch + (owner % p.heads) * p.by_head) * p.queries + query"
        lines += [f"w += load_bias(({at}) * p.wide + min(t, p.wide - 1u));"]
    start = _START.format(batch="owner / p.heads").replace("p.steps", "p.queries")
    lines += [f"let ahead = i32(t) - i32(query) - {start};"]
    hidden = "ahead > 0" if n.attr("causal", 1) else "t >= p.total"
    if window >= 0:
        hidden += " || ahead <= -i32(p.window)"
    lines += [f"return select(w, bitcast<f32>(p.lowest), {hidden});"]
    return Epilogue(" ".join(lines), reads, params)
