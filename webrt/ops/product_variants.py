"""How a matrix product runs on which adapter: register tiles over buffers and textures, with and without subgroups, and
tiles of workgroups.

On software adapters what costs is to bring an operand into a lane, least so from a texture, and a subgroup can share
the rows of a. On GPUs a workgroup shares both. The last variant needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Groups, Operand, Variant, grid
from webrt.ops.columns import by_columns
from webrt.ops.matrices import Matrices
from webrt.ops.product_text import Lines, fetches_a, fetches_b, stores, tile_loads
from webrt.ops.quad_tile import QuadTile, store_four
from webrt.ops.quads import ACROSS, PLUS, held
from webrt.ops.quads import LANES as QUAD
from webrt.ops.tiles import Tile
from webrt.ops.vectors import Epilogue, can_load4, kind, vec_of

SOFTWARE: dict[str, Any] = {"kinds": ["software"]}
LLVMPIPE: dict[str, Any] = {**SOFTWARE, "architectures": ["llvmpipe"]}
GPU: dict[str, Any] = {"kinds": ["gpu"]}
MOST_TEXTURES = 4
"""What every device has of storage textures in a stage."""


def subgroups(size: int, others: Mapping[str, Any]) -> dict[str, Any]:
    """The requirement that all subgroups are of this size, and others."""
    return {**others, "features": ["subgroups"], "subgroup_size": size}


@dataclass(frozen=True)
class Form:
    """A tile of `rows` by `vectors` for products of `least` to `most` rows (0: any number); the `loader` of operands;
    the `lanes` of the subgroup that shares rows. `worth`: the terms from which on it pays to copy a slot into a texture
    for the rows of a, as that splits a compute pass. `body` is a file of shaders/ other than the register tile's.
    `group`: invocations of a workgroup where no subgroup shares rows."""

    rows: int
    vectors: int
    lanes: int = 0
    loader: str = "buffer"
    requires: Mapping[str, Any] = field(default_factory=dict)
    least: int = 0
    most: int = 0
    worth: int = 0
    body: str = ""
    group: int = 64

    def applies(self, m: Dim) -> Dim:
        """0 where a product of `m` rows is not for this form."""
        few = D.lt(m, self.most + 1) if self.most else 1
        return D.mul(few, _not(D.lt(m, self.least)) if self.least else 1)


FORMS = (
    Form(1, 2, 0, "storage", LLVMPIPE, most=1, worth=1 << 17, group=8),
    Form(1, 2, 0, "sampled", SOFTWARE, most=1, worth=1 << 22, group=8),
    Form(1, 1, most=1),
    Form(16, 2, 8, "storage", subgroups(8, LLVMPIPE), least=24, worth=1 << 20),
    Form(8, 2, 8, "storage", subgroups(8, LLVMPIPE), worth=1 << 20),
    Form(8, 2, 0, "storage", LLVMPIPE, worth=1 << 20),
    Form(16, 2, 4, "sampled", subgroups(4, SOFTWARE), least=49, worth=1 << 21),
    Form(12, 2, 4, "sampled", subgroups(4, SOFTWARE), least=9, worth=1 << 21),
    Form(4, 2, 4, "sampled", subgroups(4, SOFTWARE), most=4, worth=1 << 21),
    Form(8, 2, 4, "sampled", subgroups(4, SOFTWARE), worth=1 << 21),
    Form(8, 2, 0, "sampled", SOFTWARE, worth=1 << 21),
    Form(64, 1, 16, requires=GPU, least=16, body="matmul_workgroup"),
    Form(8, 2),
)
"""In order of preference. The figures were measured on two cores."""


def _not(x: Dim) -> Dim:
    return D.sub(1, x)


@dataclass(frozen=True)
class Fours:
    """What is read and written in aligned fours: lines of a, lines of b, rows of the output; and whether there are
    whole fours of k."""

    a: bool
    b: bool
    out: bool
    k: bool


@dataclass(frozen=True)
class Operands:
    """The bindings of a product and its sizes: `width` columns are computed of n, all of them unless `part`; `a` and
    `b` say how the operands' matrices lie. `batch_offsets` is that function's text. `band`: the rows are some of the
    output's. `panels`: b's columns lie in them (panels.py)."""

    left: Operand
    right: Operand
    out: Operand
    epilogue: Epilogue
    m: Dim
    n: Dim
    k: Dim
    a: Matrices
    b: Matrices
    width: Dim
    batches: Dim
    part: bool
    batch_offsets: str
    band: bool = False
    panels: bool = False

    @property
    def sizes(self) -> tuple[Dim, Dim, Dim]:
        """How many rows, columns and matrices are computed."""
        return self.m, self.width, self.batches

    @property
    def starts(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """What is a multiple of 4 where a is read in fours, and b: along k in lines that run along k."""
        a, b = self.a.starts, self.b.starts
        return a if self.a.turned else (*a, self.k), (*b, self.k) if self.b.turned else b


def variants(o: Operands, may_use: Callable[[Mapping[str, Any]], bool]) -> Iterator[Variant]:
    """The variants of a product that `may_use` has a use for, by their requirements, in order of preference; those that
    read fours where only the run's sizes allow it come before those that never do."""
    a, b = o.starts
    known = Fours(
        can_load4(kind(o.left), *a), can_load4(kind(o.right), *b), can_load4(kind(o.out), o.n), D.mod(o.k, 4) == 0
    )
    known = replace(known, out=known.out and (known.b or o.b.turned))
    hoped, condition = _hoped(o, known)
    for form in FORMS:
        applies = form.applies(o.m) if may_use(form.requires) else 0
        pays = _not(D.lt(D.prod((*o.sizes, o.k)), form.worth)) if _in_slot(o.left) and form.worth else 1
        for textures, right in ((_textures(o, form), pays), ({"b": form.loader}, _not(pays))):
            when = D.mul(applies, right)
            if when != 0 and hoped != known:
                yield _variant(o, form, hoped, textures, D.mul(when, condition))
            if when != 0:
                yield _variant(o, form, known, textures, when)


def _in_slot(v: Operand) -> bool:
    return not isinstance(v, Value) or v.const is None


def _hoped(o: Operands, known: Fours) -> tuple[Fours, Dim]:
    """What could be read and written in fours, and the size that is not 0 where it can."""
    if kind(o.left).bits < 16 or kind(o.right).bits < 16:
        return known, 1
    sizes = (*o.starts, (o.n,), (o.k,))
    a, b, out, k = (all(_is_four(x) != 0 for x in those) for those in sizes)
    hoped = Fours(a, b, out and (b or o.b.turned) and kind(o.out).bits >= 16, k)
    needed = [those for those, yes in zip(sizes, (a, b, out, k)) if yes]
    return hoped, D.prod([_is_four(x) for x in dict.fromkeys(x for those in needed for x in those)])


def _is_four(x: Dim) -> Dim:
    return D.eq(D.mod(x, 4), 0)


def _variant(o: Operands, form: Form, fours: Fours, textures: Mapping[str, str], when: Dim) -> Variant:
    kinds = {"a": kind(o.left), "b": kind(o.right), "out": kind(o.out)}
    a, b = Lines(fours.a, o.a.turned), Lines(fours.b, o.b.turned, o.panels)
    tile = Tile(form.rows, form.vectors, form.lanes, a, b, not fours.k, kinds["out"] == T.F32, o.band)
    ends = [o.epilogue.fn4 if fours.out else o.epilogue.fn, *stores(kinds["out"], fours.out, tile.apart, o.part)]
    vec = vec_of(a=(kinds["a"], fours.a), b=(kinds["b"], fours.b), out=(kinds["out"], fours.out))
    if form.lanes == QUAD:
        tile, ends, wide = _in_quads(o, tile, fours, ends)
        vec |= dict.fromkeys(wide, 4)
    fetches = [*fetches_a(kinds["a"], a), *fetches_b(kinds["b"], b)]
    fns = [
        o.batch_offsets, *(fetches if form.body else tile_loads(kinds["a"], a, kinds["b"], b)),
        *ends, *([] if form.body else [tile.fn]),
    ]  # fmt: skip
    consts = {} if form.body else {"ROWS": form.rows, "VECTORS": form.vectors}
    if not form.body:
        consts |= {"LANES": form.lanes} if form.lanes else {"GROUP": form.group}
    if form.lanes:
        consts["SPAN"] = form.vectors * form.lanes * (4 if tile.apart else 1)
    return Variant(
        form.body or ("matmul_broadcast" if form.lanes else "matmul_tile"),
        _groups(o, form),
        consts=consts,
        fns=fns,
        use=o.epilogue.use,
        vec=vec,
        requires=form.requires,
        textures=textures,
        when=when,
    )


def _in_quads(o: Operands, tile: Tile, fours: Fours, ends: list[str]) -> tuple[Tile, list[str], tuple[str, ...]]:
    """The tile for quads, what stores, and the epilogue's operands that are bound as vec4s."""
    columns, wide = tuple[str, ...](), tuple[str, ...]()
    if fours.out:
        found = by_columns(o.epilogue, o.n)
        columns, wide = found.columns, (*found.whole, *found.columns)
        ends = [found.text, store_four(kind(o.out), o.part, columns)]
    names, ends = held(ends)
    sizes = (tile.rows, tile.vectors, tile.lanes, tile.a, tile.b, tile.tail, tile.floats, tile.band)
    rolled = o.epilogue.long or bool(o.epilogue.use) or not fours.out
    ends += [*([PLUS] if tile.floats else []), *([ACROSS] if tile.a.turned else [])]
    return QuadTile(*sizes, names, rolled, fours.out, columns, o.part), ends, wide


def _textures(o: Operands, form: Form) -> dict[str, str]:
    """What a form reads through textures: a, b, and on lavapipe what the epilogue reads."""
    if form.loader == "buffer":
        return {}
    others = [name for name, v in o.epilogue.reads.items() if kind(v).bits <= 32] if form.loader == "storage" else []
    return dict.fromkeys(["a", "b", *others][:MOST_TEXTURES], form.loader)


def _groups(o: Operands, form: Form) -> Groups:
    rows = D.ceildiv(o.m, form.rows)
    spans = D.ceildiv(o.width, 4 * form.vectors * max(1, form.lanes))
    return grid(D.prod((rows, spans, o.batches)), 1 if form.lanes else form.group)
