"""How a matrix product runs on which adapter: register tiles over buffers and textures, with and without subgroups, and
tiles of workgroups.

On software adapters what costs is to bring an operand into a lane, least so from a texture, and a subgroup can share
the rows of a. On GPUs a workgroup shares both. The last variant needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Value
from webrt.lowering import Groups, Operand, Variant, grid
from webrt.ops.tiles import Tile
from webrt.ops.vectors import Epilogue, can_load4, kind, load4, store_fours, vec_of

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
    for the rows of a, as that splits a compute pass. `body` is a file of shaders/ other than the register tile's."""

    rows: int
    vectors: int
    lanes: int = 0
    loader: str = "buffer"
    requires: Mapping[str, Any] = field(default_factory=dict)
    least: int = 0
    most: int = 0
    worth: int = 0
    body: str = ""

    def applies(self, m: Dim) -> Dim:
        """0 where a product of `m` rows is not for this form."""
        few = D.lt(m, self.most + 1) if self.most else 1
        return D.mul(few, _not(D.lt(m, self.least)) if self.least else 1)


FORMS = (
    Form(1, 2, 0, "storage", LLVMPIPE, most=1, worth=1 << 17),
    Form(1, 2, 0, "sampled", SOFTWARE, most=1, worth=1 << 22),
    Form(1, 1, most=1),
    Form(16, 2, 8, "storage", subgroups(8, LLVMPIPE), least=24, worth=1 << 20),
    Form(8, 2, 8, "storage", subgroups(8, LLVMPIPE), worth=1 << 20),
    Form(8, 2, 0, "storage", LLVMPIPE, worth=1 << 20),
    Form(16, 2, 4, "sampled", subgroups(4, SOFTWARE), least=24, worth=1 << 21),
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
    """What is read and written in aligned fours: rows of a, rows of b, rows of the output."""

    a: bool
    b: bool
    out: bool


@dataclass(frozen=True)
class Operands:
    """The bindings of a product and its sizes: `width` columns are computed of n, all of them unless `part`; `row` is
    the length of b's rows. `batch_offsets` is that function's text. `band`: the rows are some of the output's."""

    left: Operand
    right: Operand
    out: Operand
    epilogue: Epilogue
    m: Dim
    n: Dim
    k: Dim
    row: Dim
    width: Dim
    batches: Dim
    part: bool
    batch_offsets: str
    band: bool = False

    @property
    def sizes(self) -> tuple[Dim, Dim, Dim]:
        """How many rows, columns and matrices are computed."""
        return self.m, self.width, self.batches


def variants(o: Operands) -> Iterator[Variant]:
    """The variants of a product, in order of preference; those that read fours where only the run's sizes allow it come
    before those that never do."""
    known = Fours(can_load4(kind(o.left), o.k), can_load4(kind(o.right), o.row), can_load4(kind(o.out), o.n))
    known = replace(known, out=known.out and known.b)
    hoped, condition = _hoped(o, known)
    for form in FORMS:
        applies = form.applies(o.m)
        pays = _not(D.lt(D.prod((*o.sizes, o.k)), form.worth)) if _in_slot(o.left) and form.worth else 1
        for textures, right in ((_textures(o, form), pays), ({"b": form.loader}, _not(pays))):
            if right != 0:
                when = D.mul(applies, right)
                if hoped != known:
                    yield _variant(o, form, hoped, textures, D.mul(when, condition))
                yield _variant(o, form, known, textures, when)


def _in_slot(v: Operand) -> bool:
    return not isinstance(v, Value) or v.const is None


def _hoped(o: Operands, known: Fours) -> tuple[Fours, Dim]:
    """What could be read and written in fours, and the size that is not 0 where it can."""
    a, b, out = (_is_four(x) for x in (o.k, o.row, o.n))
    if kind(o.left).bits < 16 or kind(o.right).bits < 16:
        return known, 1
    hoped = Fours(a != 0, b != 0, out != 0 and b != 0 and kind(o.out).bits >= 16)
    return hoped, D.prod([d for d in (a, b, out) if d != 0])


def _is_four(x: Dim) -> Dim:
    return D.eq(D.mod(x, 4), 0)


def _variant(o: Operands, form: Form, fours: Fours, textures: Mapping[str, str], when: Dim) -> Variant:
    kinds = {"a": kind(o.left), "b": kind(o.right), "out": kind(o.out)}
    tile = Tile(form.rows, form.vectors, form.lanes, not fours.a, not fours.b, kinds["out"] == T.F32, o.band)
    loads = [load4("a", kinds["a"], fours.a, not form.body), _load_columns(kinds["b"], fours.b, not form.body)]
    fns = [
        o.batch_offsets, *loads,
        o.epilogue.fn4 if fours.out else o.epilogue.fn,
        *_store(kinds["out"], fours, o.part), *([] if form.body else [tile.fn]),
    ]  # fmt: skip
    consts = {} if form.body else {"ROWS": form.rows, "VECTORS": form.vectors}
    if form.lanes and not form.body:
        consts["LANES"] = form.lanes
    if form.lanes:
        consts["SPAN"] = form.vectors * form.lanes * (1 if fours.b else 4)
    return Variant(
        form.body or ("matmul_broadcast" if form.lanes else "matmul_tile"),
        _groups(o, form),
        consts=consts,
        fns=fns,
        use=o.epilogue.use,
        vec=vec_of(a=(kinds["a"], fours.a), b=(kinds["b"], fours.b), out=(kinds["out"], fours.out)),
        requires=form.requires,
        textures=textures,
        when=when,
    )


def _textures(o: Operands, form: Form) -> dict[str, str]:
    """What a form reads through textures: a, b, and on lavapipe what the epilogue reads."""
    if form.loader == "buffer":
        return {}
    others = [name for name, v in o.epilogue.reads.items() if kind(v).bits <= 32] if form.loader == "storage" else []
    return dict.fromkeys(["a", "b", *others][:MOST_TEXTURES], form.loader)


def _groups(o: Operands, form: Form) -> Groups:
    rows = D.ceildiv(o.m, form.rows)
    spans = D.ceildiv(o.width, 4 * form.vectors * max(1, form.lanes))
    return grid(D.prod((rows, spans, o.batches)), 1 if form.lanes else 64)


def _load_columns(dtype: DType, aligned: bool, fours: bool) -> str:
    """`columns_b(row, t, lanes)`: of the row that starts at `row` columns 4t … 4t+3, or four that are `lanes` apart.
    `fours`: where rows are aligned, `row` counts fours."""
    if aligned:
        load, at = load4("b", dtype, True, fours), "t" if fours else "4u * t"
        return f"{load}\nfn columns_b(row: u32, t: u32, lanes: u32) -> vec4<B> {{ return load4_b(row + {at}); }}"
    value = ", ".join(f"load_b(i + {k}u * lanes)" for k in range(4))
    return f"fn columns_b(row: u32, t: u32, lanes: u32) -> vec4<B> {{ let i = row + t; return vec4<B>({value}); }}"


def _store(dtype: DType, fours: Fours, part: bool) -> list[str]:
    """`store4(start, t, lanes, v)`: columns of the row that starts at `start`, as `columns_b` counts them."""
    head = "fn store4(start: u32, t: u32, lanes: u32, v: vec4<Out>)"
    row = "start + p.column" if part else "start"
    if fours.out:
        body = f"if (4u * t < p.width) {{ let i = {row} + 4u * t; let r = epilogue4(v, i); {store_fours(dtype)} }}"
        return [f"{head} {{ {body} }}"]
    column = "4u * t + {k}u" if fours.b else "t + {k}u * lanes"
    store = f"let i = {row} + at; out[i] = epilogue(v, i);"
    one = f"fn store1(start: u32, at: u32, v: Out) {{ if (at < p.width) {{ {store} }} }}"
    calls = " ".join(f"store1(start, {column.format(k=k)}, v.{c});" for k, c in enumerate("xyzw"))
    return [one, f"{head} {{ {calls} }}"]
