"""Attention in one pass over the keys: which tile on which adapter, and where the results go.

Where rows are few the keys are split into spans, of which each has its own sums, and a second kernel merges them. Few
logits are in registers at a time, none is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid, static_bytes
from webrt.ops.attend_tile import LOW, OnlineTile
from webrt.ops.head_views import Empty, Heads
from webrt.ops.product_variants import GPU, LLVMPIPE, MOST_TEXTURES, SOFTWARE, subgroups
from webrt.ops.quads import ORDER
from webrt.ops.vectors import IDENTITY, Epilogue, finish, kind, load4, through_temp, vec_of

MOST_FOURS = 32
"""Of a head: a row of queries and its result are in registers."""
SMALL = 1 << 22
"""Bytes of an operand of the logits that is worth a texture."""
LEAST_SPAN, SPAN_STEP, FEW = 64, 16, 256
"""Keys of a span; where there are fewer than FEW rows, there are spans to make up for it."""


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


@dataclass(frozen=True)
class Form:
    """A tile of up to `rows`, and not more than fill `registers` with fours of a head; the `lanes` that load for each
    other; the `loader` of operands, which pays from `least` rows and `worth` products of numbers on. Without textures
    keys are taken one by one. `group`: invocations of a workgroup. `body`: a file of shaders/ for the workgroups of
    GPUs, which `keys` at a time share, for `least` to `most` (0: any number) rows."""

    rows: int
    registers: int
    lanes: int = 0
    loader: str = "buffer"
    requires: Mapping[str, Any] = field(default_factory=dict)
    least: int = 0
    worth: int = 0
    group: int = 64
    body: str = ""
    keys: int = 0
    most: int = 0

    def tile(self, s: Sizes, epilogue: Epilogue) -> OnlineTile:
        """The tile for these sizes."""
        rows = max(1, min(self.rows, 4 * self.registers // max(s.head, s.width)))
        if isinstance(s.m, int) and not self.lanes:
            rows = max(1, min(rows, s.m))
        single = self.loader == "buffer" and not self.keys
        rolled = epilogue.long and not single and not self.keys
        return OnlineTile(rows, s.head // 4, s.width // 4, self.lanes, single, self.keys, rolled)

    def applies(self, s: Sizes, tile: OnlineTile) -> Dim:
        """0 where the form is not for these sizes."""
        least = D.sub(1, D.lt(s.m, self.least)) if self.least else 1
        worth = D.sub(1, D.lt(s.products, self.worth)) if self.worth else 1
        fits = D.lt(s.n, MAX_ITERATIONS * 4 // tile.turns) if tile.turns > 4 else 1
        most = D.lt(s.m, self.most + 1) if self.most else 1
        return D.prod((least, most, worth, fits))


FORMS = (
    Form(4, 32, 8, "storage", subgroups(8, LLVMPIPE), least=8, worth=1 << 20),
    Form(4, 32, 4, "sampled", subgroups(4, SOFTWARE), least=8, worth=1 << 14),
    Form(4, 32, 0, "storage", LLVMPIPE, least=8, worth=1 << 20),
    Form(4, 32, 0, "sampled", SOFTWARE, least=8, worth=1 << 21),
    Form(4, 32, requires=SOFTWARE, group=8),
    Form(1, 1, requires=GPU, body="attention_decode", most=15),
    Form(1, 1, requires=GPU, body="attention_shared", keys=16, least=16),
    Form(2, 16),
)
"""In order of preference. The figures were measured on two cores."""


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
    b.check(D.lt(span, MAX_ITERATIONS), f"attention over {MAX_ITERATIONS} keys or more")
    target = replace(out, x=through_temp(b, out.x))
    batch = out.view.shape[0]
    common = {
        "m": s.m, "batches": s.batches, "groups": s.groups, "share": s.share, "steps": D.maximum(s.steps, 1),
        "splits": splits,
    }  # fmt: skip
    ends, vec = [_store4(target), _factor(empty)], vec_of(out=(kind(target.x), target.fours))
    params: dict[str, Dim | float] = {**common, "n": s.n, "span": span, **epilogue.params}
    params |= _in_fours(q, "q", "s", batch) | _in_fours(k, "k", "t", batch) | _in_fours(v, "v", "t", batch)
    reads = {"q": q.x, "k": k.x, "v": v.x, **epilogue.reads}
    if splits == 1:
        params |= target.params("o", batch)
        variants = _variants(s, q, k, v, epilogue, splits, [*ends, _WHOLE], vec)
        b.launch(*variants, reads=reads, writes={"out": target.x}, params=params, name="attention")
    else:
        fours = s.width // 4
        part = b.temp(T.F32, (splits, s.batches, s.m, s.width + 4))
        fns = [_PART.format(fours=fours, each=fours + 1)]
        variants = _variants(s, q, k, v, epilogue, splits, fns, {"out": 4})
        b.launch(*variants, reads=reads, writes={"out": part}, params=params, name="attention")
        merge = Variant("attention_merge", grid(D.prod((s.batches, s.m, fours))), fns=ends, vec={"part": 4, **vec})
        sizes = {**common, "fours": fours, **target.params("o", batch)}
        b.launch(merge, reads={"part": part}, writes={"out": target.x}, params=sizes, name="attention_merge")
    finish(b, target.x, out.x, "attention")


def _spans(s: Sizes) -> tuple[Dim, Dim]:
    """How many spans of keys there are, and how many keys are in one. Where queries come with as many keys there is
    one, however many they are, and a batch entry is as good as several."""
    most = D.floordiv(FEW, D.maximum(D.mul(s.groups, s.m), 1))
    splits = 1 if s.n == s.steps else D.maximum(D.minimum(most, D.floordiv(s.n, LEAST_SPAN)), 1)
    if splits == 1:
        return 1, s.n
    return splits, D.mul(D.ceildiv(s.n, D.mul(splits, SPAN_STEP)), SPAN_STEP)


def _in_fours(heads: Heads, name: str, step: str, batch: Dim) -> dict[str, Dim]:
    params = heads.params(name, batch)
    return {k.replace(f"{name}_s", f"{name}_{step}"): D.floordiv(x, 4) for k, x in params.items() if k != f"{name}_d"}


def _variants(
    s: Sizes, q: Heads, k: Heads, v: Heads, epilogue: Epilogue, splits: Dim, ends: Sequence[str],
    written: Mapping[str, int],
) -> Iterator[Variant]:  # fmt: skip
    operands = {"q": q, "k": k, "v": v}
    loads = [load4(name, kind(h.x), True, True) for name, h in operands.items()]
    vec = {**vec_of(**{name: (kind(h.x), True) for name, h in operands.items()}), **written}
    for form in FORMS:
        tile = form.tile(s, epilogue)
        body, consts, (rows, invocations) = _body(form, tile)
        logits = _in_quads(epilogue) if tile.quads else epilogue.fn4
        yield Variant(
            body,
            grid(D.prod((s.batches, D.ceildiv(s.m, rows), splits)), invocations),
            consts=consts,
            fns=[*loads, _Q_START, logits, *ends, *([] if body == "attention_decode" else [tile.fn])],
            use=epilogue.use,
            vec=vec,
            requires=form.requires,
            textures=_textures(form, epilogue),
            when=form.applies(s, tile),
        )


def _in_quads(epilogue: Epilogue) -> str:
    """`fn epilogue4(v, i, lane)` of elements i + lane, i + (lane ^ 1) …, in this order."""
    calls = [f"epilogue(v.{c}, i + {k})" for c, k in zip("xyzw", ORDER)]
    body = f"return vec4<Out>({', '.join(calls)});"
    if epilogue == IDENTITY:
        body = "return v;"
    elif epilogue.long:
        turn = "r = vec4<Out>(r.yzw, epilogue(r.x, i + (lane ^ c)));"
        body = f"var r = v; for (var c = 0u; c < 4u; c++) {{ {turn} }} return r;"
    return f"{epilogue.fn}\nfn epilogue4(v: vec4<Out>, i: u32, lane: u32) -> vec4<Out> {{ {body} }}"


def _body(form: Form, tile: OnlineTile) -> tuple[str, dict[str, int | float], tuple[int, int]]:
    """The file of shaders/, its constants, the rows of an invocation or workgroup, and how many are in one group."""
    sizes = {"HEAD": tile.head, "WIDTH": tile.width}
    if form.body == "attention_decode":
        return form.body, {**sizes, "LOW": LOW}, (1, 1)
    if form.body:
        return form.body, {**sizes, "KEYS": form.keys}, (64, 1)
    if form.lanes:
        return "attention_broadcast", {"ROWS": tile.rows, "LANES": form.lanes}, (tile.rows * form.lanes, 1)
    return "attention_online", {"ROWS": tile.rows, "GROUP": form.group}, (tile.rows, form.group)


def _textures(form: Form, epilogue: Epilogue) -> dict[str, str]:
    """Keys and values, not queries, which are read once; where a texture is all that is cheap, small operands of the
    logits as well."""
    if form.loader == "buffer":
        return {}
    small = [name for name, v in epilogue.reads.items() if _is_small(v)] if form.loader == "storage" else []
    return dict.fromkeys(["k", "v", *small][:MOST_TEXTURES], form.loader)


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
fn result_scale(total: f32) -> f32 { return result_factor(total); }
fn result_sums(at: u32, total: f32, top: f32) {}
fn result4(at: u32, d: u32, v: vec4<f32>, factor: f32) {
  store4(at, d, select(v * factor, vec4<f32>(), factor == 0.0));
}"""
_PART = """fn result_at(n: u32, g: u32, z: u32, row: u32, part: u32) -> u32 {{
  return ((part * p.batches + z) * p.m + row) * {each}u;
}}
fn result_scale(total: f32) -> f32 {{ return 1.0; }}
fn result_sums(at: u32, total: f32, top: f32) {{ out[at + {fours}u] = vec4<f32>(total, top, 0.0, 0.0); }}
fn result4(at: u32, d: u32, v: vec4<f32>, factor: f32) {{ out[at + d / 4u] = v; }}"""
