"""softmax(q · kᵀ) · v over heads: in one pass over the keys (attend_online.py), or, where heads are large, of a size
that is not known or not read in fours, in two kernels: logits with what follows them, then weights and values at once.

Queries, keys, values and the result are views, so nothing is transposed, split or repeated beforehand; query heads may
share key heads. The weights are never stored: the second kernel takes each row's largest logit and sums while it
multiplies (the two passes of https://arxiv.org/abs/2112.05682, section 2, within one kernel).
"""

from __future__ import annotations

import math
from dataclasses import replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError, UnsupportedOp
from webrt.ir import Value
from webrt.lowering import Builder, Variant, grid, require
from webrt.ops.attend_online import Sizes, attend_online, covers
from webrt.ops.head_views import Empty, Heads
from webrt.ops.vectors import IDENTITY, Epilogue, finish, kind, through_temp, vec_of

MOST_KEYS = 96_000
"""Two loops over fours of keys in one invocation."""


def attend(
    b: Builder, q: Heads, k: Heads, v: Heads, out: Heads, epilogue: Epilogue = IDENTITY, empty: Empty = Empty.NAN
) -> None:
    """Writes the attention of q over k and v to `out`. The epilogue works on element i of the logits [batch, heads,
    steps, keys]. Keys and values have as many heads as queries, or each is for several neighbouring query heads.

    Raises UnsupportedOp and UnsupportedType."""
    require([q.x, k.x, v.x, out.x], *T.FLOATS)
    if q.x.dtype != k.x.dtype:
        raise UnsupportedOp(f"attention of {q.x.dtype} over {k.x.dtype}")
    (batch, heads, steps, _), (_, groups, keys, _) = q.view.shape, k.view.shape
    b.check(D.lt(keys, MOST_KEYS), f"attention over more than {MOST_KEYS} keys")
    share = D.floordiv(heads, groups)
    rows, batches = D.mul(share, steps), D.mul(batch, groups)
    if covers(b, q, k, v, epilogue):
        sizes = Sizes(rows, keys, batches, groups, share, steps, *(int(str(h.view.shape[3])) for h in (q, v)))
        attend_online(b, sizes, q, k, v, out, epilogue, empty)
        return
    four = D.ceildiv(keys, 4)
    logits = b.temp(T.F32, (batch, heads, steps, D.mul(four, 4)))
    common: dict[str, Dim | float] = {
        "m": rows, "n": keys, "row": four, "batches": batches, "groups": groups,
        "steps": D.maximum(steps, 1), "lowest": -math.inf,
    }  # fmt: skip
    _logits(b, q, k, logits, common, epilogue)
    _values(b, logits, v, out, common, empty)


def _logits(b: Builder, q: Heads, k: Heads, out: Value, common: dict[str, Dim | float], epilogue: Epilogue) -> None:
    rows, columns = D.ceildiv(_dim(common["m"]), 8), _dim(common["row"])
    params = {**common, "head": q.view.shape[3], "rows": rows, "columns": columns, **q.params("q", q.view.shape[0])}
    params |= {name.replace("k_s", "k_t"): x for name, x in k.params("k", q.view.shape[0]).items()}
    variant = Variant(
        "attention_logits", grid(D.prod((_dim(common["batches"]), rows, columns))),
        fns=[q.loader("q"), k.loader("k"), epilogue.fn], use=epilogue.use,
        vec={"out": 4, **vec_of(q=(kind(q.x), q.fours), k=(kind(k.x), k.fours))},
    )  # fmt: skip
    reads = {"q": q.x, "k": k.x, **epilogue.reads}
    b.launch(variant, reads=reads, writes={"out": out}, params={**params, **epilogue.params}, name="attention_logits")


def _values(b: Builder, logits: Value, v: Heads, out: Heads, common: dict[str, Dim | float], empty: Empty) -> None:
    rows, columns = D.ceildiv(_dim(common["m"]), 4), D.ceildiv(v.view.shape[3], 16)
    params = {**common, "head": v.view.shape[3], "rows": rows, "columns": columns}
    params |= {name.replace("v_s", "v_t"): x for name, x in v.params("v", out.view.shape[0]).items()} | out.params(
        "o", out.view.shape[0]
    )
    target = replace(out, x=through_temp(b, out.x))
    store = "for (var k = 0u; k < 4u; k++) { if (d + k < p.head) { out[at + (d + k) * p.o_d] = v[k]; } }"
    if target.fours:
        store = "if (d < p.head) { out[(at + d) >> 2u] = v; }"
    variant = Variant(
        "attention_values", grid(D.prod((_dim(common["batches"]), rows, columns))), consts={"EMPTY": int(empty)},
        fns=[v.loader("v"), f"fn store4(at: u32, d: u32, v: vec4<f32>) {{ {store} }}"],
        vec={"w": 4, **vec_of(v=(kind(v.x), v.fours), out=(kind(target.x), target.fours))},
    )  # fmt: skip
    reads = {"w": logits, "v": v.x}
    b.launch(variant, reads=reads, writes={"out": target.x}, params=params, name="attention_values")
    finish(b, target.x, out.x, "attention")


def _dim(x: Dim | float) -> Dim:
    if isinstance(x, float):
        raise ShapeError(f"{x} is no size")
    return x
