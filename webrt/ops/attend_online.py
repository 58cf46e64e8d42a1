"""Attention in one pass over the keys: which tile on which adapter, and where the results go.

Where rows are few the keys are split into spans, of which each has its own sums, and a second kernel merges them. Few
logits are in registers at a time, none is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Builder, Variant, grid, static_bytes
from webrt.ops.attend_tile import OnlineTile
from webrt.ops.head_views import Empty, Heads
from webrt.ops.product_variants import LLVMPIPE, MOST_TEXTURES, SOFTWARE, subgroups
from webrt.ops.vectors import Epilogue, finish, kind, load4, through_temp, vec_of

MOST_FOURS = 32
"""Of a head: a row of queries and its result are in registers."""
SMALL = 1 << 22
"""Bytes of an operand of the logits that is worth a texture."""
LEAST_SPAN, SPAN_STEP, FEW = 32, 16, 256
"""Keys of a span; where there are fewer than FEW rows, there are spans to make up for it."""


@dataclass(frozen=True)
class Form:
    """A tile of up to `rows`, and not more than fill `registers` with fours of a head; the `lanes` that load for each
    other; the `loader` of operands, from `worth` products of a query and a key's number on. For `least` to `most` rows
    (0: any number); `group`: invocations of a workgroup."""

    rows: int
    registers: int
    lanes: int = 0
    loader: str = "buffer"
    requires: Mapping[str, Any] = field(default_factory=dict)
    least: int = 0
    most: int = 0
    worth: int = 0
    group: int = 64

    def rows_of(self, fours: int) -> int:
        return max(1, min(self.rows, self.registers // fours))


FORMS = (
    Form(4, 32, requires=SOFTWARE, most=7, group=8),
    Form(4, 32, 8, "storage", subgroups(8, LLVMPIPE), worth=1 << 20),
    Form(4, 32, 4, "sampled", subgroups(4, SOFTWARE), worth=1 << 21),
    Form(4, 32, 0, "storage", LLVMPIPE, worth=1 << 20),
    Form(4, 32, 0, "sampled", SOFTWARE, worth=1 << 21),
    Form(4, 32, requires=SOFTWARE, group=8),
    Form(2, 16),
)
"""In order of preference. The figures were measured on two cores."""


@dataclass(frozen=True)
class Sizes:
    """`m` rows of each of `batches` key heads, over `n` keys; `share` query heads of `steps` rows share one of `groups`
    key heads. Heads of `head` numbers in queries and of `width` in values."""

    m: Dim
    n: Dim
    batches: Dim
    groups: Dim
    share: Dim
    steps: Dim
    head: int
    width: int

    @property
    def products(self) -> Dim:
        return D.prod((self.batches, self.m, self.n, self.head))


def covers(b: Builder, q: Heads, k: Heads, v: Heads, epilogue: Epilogue) -> bool:
    """Whether heads are of a size that is known and small, are read in fours, and all bindings fit."""
    sizes = [q.view.shape[3], k.view.shape[3], v.view.shape[3]]
    known = [s for s in sizes if isinstance(s, int) and 0 < s <= 4 * MOST_FOURS and s % 4 == 0]
    bindings = 4 + len(epilogue.reads)
    fit = bindings <= b.target.limit("maxStorageBuffersPerShaderStage")
    return len(known) == 3 and fit and q.fours and k.fours and v.fours


def attend_online(
    b: Builder, s: Sizes, q: Heads, k: Heads, v: Heads, out: Heads, epilogue: Epilogue, empty: Empty
) -> None:
    """Writes the attention of what is covered to `out`."""
    splits, span = _spans(s)
    target = replace(out, x=through_temp(b, out.x))
    batch = out.view.shape[0]
    common = {"m": s.m, "batches": s.batches, "groups": s.groups, "share": s.share, "steps": D.maximum(s.steps, 1)}
    params: dict[str, Dim | float] = {**common, "n": s.n, "splits": splits, "span": span}
    params |= _in_fours(q, "q", "s", batch) | _in_fours(k, "k", "t", batch) | _in_fours(v, "v", "t", batch)
    reads = {"q": q.x, "k": k.x, "v": v.x, **epilogue.reads}
    whole = splits == 1
    part = target.x if whole else b.temp(T.F32, (splits, s.batches, s.m, s.width + 4))
    if whole:
        params |= target.params("o", batch)
    ends = [_store4(target), _factor(empty), _WHOLE]
    if not whole:
        ends = [_PART.format(fours=s.width // 4, each=s.width // 4 + 1)]
    written = vec_of(out=(kind(target.x), target.fours)) if whole else {"out": 4}
    shared = [_Q_START, epilogue.fn4, *ends]
    variants = list(_variants(s, q, k, v, epilogue, splits, shared, written))
    params |= epilogue.params
    b.launch(*variants, reads=reads, writes={"out": part}, params=params, name="attention")
    if not whole:
        fours = s.width // 4
        merged = {**common, "splits": splits, "fours": fours, **target.params("o", batch)}
        variant = Variant(
            "attention_merge", grid(D.prod((s.batches, s.m, fours))), consts={"EMPTY": int(empty)},
            fns=[_store4(target), _factor(empty)],
            vec={"part": 4, **vec_of(out=(kind(target.x), target.fours))},
        )  # fmt: skip
        b.launch(variant, reads={"part": part}, writes={"out": target.x}, params=merged, name="attention_merge")
    finish(b, target.x, out.x, "attention")


def _spans(s: Sizes) -> tuple[Dim, Dim]:
    """How many spans of keys there are, and how many keys are in one."""
    most = D.floordiv(FEW, D.maximum(D.mul(s.batches, s.m), 1))
    splits = D.maximum(D.minimum(most, D.floordiv(s.n, LEAST_SPAN)), 1)
    if splits == 1:
        return 1, s.n
    return splits, D.mul(D.ceildiv(s.n, D.mul(splits, SPAN_STEP)), SPAN_STEP)


def _in_fours(heads: Heads, name: str, step: str, batch: Dim) -> dict[str, Dim]:
    params = heads.params(name, batch)
    return {k.replace(f"{name}_s", f"{name}_{step}"): D.floordiv(x, 4) for k, x in params.items() if k != f"{name}_d"}


def _variants(
    s: Sizes, q: Heads, k: Heads, v: Heads, epilogue: Epilogue, splits: Dim, ends: list[str], written: dict[str, int]
) -> Iterator[Variant]:
    operands = {"q": q, "k": k, "v": v}
    loads = [load4(name, kind(h.x), True, True) for name, h in operands.items()]
    for form in FORMS:
        rows = form.rows_of(max(s.head, s.width) // 4)
        if isinstance(s.m, int) and not form.lanes:
            rows = max(1, min(rows, s.m))
        tile = OnlineTile(rows, s.head // 4, s.width // 4, form.lanes)
        tiles = D.prod((s.batches, D.ceildiv(s.m, rows * max(1, form.lanes)), splits))
        yield Variant(
            "attention_broadcast" if form.lanes else "attention_online",
            grid(tiles, 1 if form.lanes else form.group),
            consts={"ROWS": rows, **({"LANES": form.lanes} if form.lanes else {"GROUP": form.group})},
            fns=[*loads, *ends, tile.fn],
            use=epilogue.use,
            vec={**vec_of(**{name: (kind(h.x), True) for name, h in operands.items()}), **written},
            requires=form.requires,
            textures=_textures(form, epilogue),
            when=_applies(form, s),
        )


def _applies(form: Form, s: Sizes) -> Dim:
    least = D.sub(1, D.lt(s.m, form.least)) if form.least else 1
    most = D.lt(s.m, form.most + 1) if form.most else 1
    worth = D.sub(1, D.lt(s.products, form.worth)) if form.worth else 1
    return D.prod((least, most, worth))


def _textures(form: Form, epilogue: Epilogue) -> dict[str, str]:
    """Queries, keys and values; where a texture is all that is cheap, small operands of the logits as well."""
    if form.loader == "buffer":
        return {}
    small = [name for name, v in epilogue.reads.items() if _is_small(v)] if form.loader == "storage" else []
    return dict.fromkeys(["q", "k", "v", *small][:MOST_TEXTURES], form.loader)


def _is_small(v: Value) -> bool:
    size = static_bytes(v)
    return kind(v).bits <= 32 and size is not None and size <= SMALL


def _store4(out: Heads) -> str:
    store = "for (var k = 0u; k < 4u; k++) { out[at + (d + k) * p.o_d] = v[k]; }"
    if out.fours:
        store = "out[(at + d) >> 2u] = v;"
    return f"fn store4(at: u32, d: u32, v: vec4<f32>) {{ {store} }}"


def _factor(empty: Empty) -> str:
    """`result_factor(total)`: what a row's sums are multiplied by, 0 where the row is 0. A largest logit of +inf or NaN
    leaves a total that is not finite; one of -inf a total of 0."""
    hidden = "f32_nan()" if empty == Empty.NAN else "0.0"
    other = "0.0" if empty == Empty.ZERO else "f32_nan()"
    finite = "!(is_nan(total) || is_inf(total))"
    return (
        "fn result_factor(total: f32) -> f32 "
        f"{{ return select({other}, select(1.0 / total, {hidden}, total == 0.0), {finite}); }}"
    )


_Q_START = """fn q_start(n: u32, g: u32, row: u32) -> u32 {
  let r = min(row, p.m - 1u);
  return p.q_at + n * p.q_n + (g * p.share + r / p.steps) * p.q_h + r % p.steps * p.q_s;
}"""
_WHOLE = """fn result_at(n: u32, g: u32, z: u32, row: u32, part: u32) -> u32 {
  return p.o_at + n * p.o_n + (g * p.share + row / p.steps) * p.o_h + row % p.steps * p.o_s;
}
fn result_end(at: u32, total: f32, top: f32) -> f32 { return result_factor(total); }
fn result4(at: u32, d: u32, v: vec4<f32>, factor: f32) {
  store4(at, d, select(v * factor, vec4<f32>(), factor == 0.0));
}"""
_PART = """fn result_at(n: u32, g: u32, z: u32, row: u32, part: u32) -> u32 {{
  return ((part * p.batches + z) * p.m + row) * {each}u;
}}
fn result_end(at: u32, total: f32, top: f32) -> f32 {{
  out[at + {fours}u] = vec4<f32>(total, top, 0.0, 0.0);
  return 1.0;
}}
fn result4(at: u32, d: u32, v: vec4<f32>, factor: f32) {{ out[at + d / 4u] = v; }}"""
