"""How a product with packed weights runs on which adapter: register tiles with weights through textures, or workgroups.

Where invocations of a quad have rows of a in common, each loads one. On GPUs a workgroup shares the blocks of few rows,
and unpacks the weights of many into its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Groups, Variant, grid
from webrt.ops.nbits_numbers import Numbers, Zeros
from webrt.ops.product_text import Lines, fetches_a, place_b
from webrt.ops.product_variants import GPU, LLVMPIPE, SOFTWARE, Form, subgroups
from webrt.ops.quads import LANES, PLUS, SWAPS, held, hold
from webrt.ops.vectors import Epilogue, can_load4, kind, load4, vec_of

WORTH, COLUMNS = 1 << 21, 16
"""Terms from which on it pays to copy a into a texture, and how many columns it needs for each of its rows."""
FORMS = (
    Form(1, 2, 0, "storage", LLVMPIPE, most=1),
    Form(1, 2, 0, "sampled", SOFTWARE, most=1),
    Form(4, 2, 4, "storage", subgroups(8, LLVMPIPE)),
    Form(4, 2, 4, "sampled", subgroups(4, SOFTWARE), most=4),
    Form(8, 2, 4, "sampled", subgroups(4, SOFTWARE)),
    Form(4, 1, 0, "storage", LLVMPIPE),
    Form(4, 1, 0, "sampled", SOFTWARE),
    Form(1, 1, requires=GPU, most=1, body="matmul_nbits_reduce"),
    Form(4, 1, requires=GPU, most=15, body="matmul_nbits_reduce"),
    Form(64, 1, requires=GPU, body="matmul_workgroup"),
)
"""In order of preference; those of 4 lanes share rows in quads."""
TALL = (
    Form(16, 2, 4, "storage", subgroups(8, LLVMPIPE), least=24, worth=WORTH),
    Form(12, 2, 4, "sampled", subgroups(4, SOFTWARE), least=9, worth=WORTH),
)
"""What goes before them with weights of 8 bits: more rows for each weight that is unpacked."""
GROUP = 8
"""Invocations of a workgroup: few, so that all cores have some where columns are few."""
SLICES = 8
"""Parts of a workgroup that share the blocks along k."""
_STORE = """fn store4(row: u32, t: u32, v: vec4<f32>) {
  let i = row * p.n + 4u * t;
  let r = vec4<f32>(epilogue(v.x, i), epilogue(v.y, i + 1u), epilogue(v.z, i + 2u), epilogue(v.w, i + 3u));
  if (row < p.m && t < p.fours) { out[i >> 2u] = r; }
}"""

_STORE_FOUR = "fn store(four: u32, v: vec4<f32>) { out[four] = epilogue4(v, 4u * four); }"


def tile_variants(a: Value, m: Dim, columns: int, bits: int, zeros: Zeros, epilogue: Epilogue) -> Iterator[Variant]:
    """The variants for `m` rows of a and a multiple of 4 columns."""
    dtype = kind(a)
    fours = can_load4(dtype, a.known_shape[-1])
    load, vec = load4("a", dtype, fours, True), {**vec_of(a=(dtype, fours)), "out": 4}
    packed = {"w": 4, "scale": 4}
    for form in (*TALL, *FORMS) if bits == 8 else FORMS:
        made = Variant(
            form.body or ("matmul_nbits_quads" if form.lanes else "matmul_nbits_tile"), _groups(form, m, columns),
            use=epilogue.use, requires=form.requires, when=form.applies(m),
        )  # fmt: skip
        fns = [load, epilogue.fn, _STORE, NbitsTile(form, bits, zeros, fours).fn]
        if form.loader == "sampled":
            names, stores = held([epilogue.fn4, _STORE_FOUR])
            fns = [
                load,
                *stores,
                PLUS,
                NbitsTile(form, bits, zeros, fours, names, epilogue.long or bool(epilogue.use)).fn,
            ]
        if form.body == "matmul_workgroup":
            reads = [*fetches_a(dtype, Lines(fours)), place_b(), _unpacked(bits, zeros)]
            fns = [_ONE_MATRIX, *reads, epilogue.fn, _STORE_TILE]
            yield replace(made, consts={"SPAN": 16}, fns=fns, vec={**vec, **packed})
        elif form.body:
            consts = {"ROWS": form.rows, "GROUP": GROUP, "SLICES": SLICES}
            yield replace(made, consts=consts, fns=fns, vec={**vec, **packed})
        else:
            consts = {"ROWS": form.rows, "VECTORS": form.vectors, "GROUP": GROUP}
            textures = dict.fromkeys(("w", "scale"), form.loader)
            made = replace(made, consts=consts, fns=fns, vec=vec, textures=textures)
            copied = D.mul(form.applies(m), _copied(m, a.known_shape[-1], columns)) if form.worth and fours else 0
            if copied != 0:
                yield replace(made, textures={**textures, "a": form.loader}, when=copied)
            yield made


def _copied(m: Dim, k: Dim, columns: int) -> Dim:
    """Not 0 where a goes into a texture: products are many, and it takes a quarter of the bytes of weights or less."""
    many = D.sub(1, D.lt(D.prod((m, k, columns)), WORTH))
    return D.mul(many, D.le(D.mul(m, COLUMNS), columns))


def _groups(form: Form, m: Dim, columns: int) -> Groups:
    span = 64 if form.body == "matmul_workgroup" else 4 * form.vectors * GROUP
    return grid(D.mul(D.ceildiv(m, form.rows), -(-columns // span)), 1)


_ONE_MATRIX = "fn batch_offsets(z: u32) -> vec2<u32> { return vec2<u32>(); }"
_COLUMNS = """fn four_b(at: u32, k: u32, t: u32) -> vec4<f32> {{
  let column = min(t, p.fours - 1u);
  let word = k / {each}u;
  let bit = {bit};
  let number = vec4<f32>((fours_w(word * p.fours + column) >> vec4<u32>(bit)) & vec4<u32>({most}u));
  let place = word / p.words_per_block * {parts}u * p.fours + column;
  return (number - {zero}) * fours_scale(place);
}}"""
_BITS = {4: "k % 4u * 8u + k / 4u % 2u * 4u", 8: "k % 4u * 8u"}
"""Where in its word the number of row k begins."""


def _unpacked(bits: int, zeros: Zeros) -> str:
    """Columns of row k of the weights, where a product would read its right operand."""
    most = (1 << bits) - 1
    return _COLUMNS.format(
        each=32 // bits, bit=_BITS[bits], most=most, parts=zeros.parts, zero=zeros.at("place", "p.fours")
    )


_STORE_TILE = """fn store4(start: u32, t: u32, lanes: u32, v: vec4<f32>) {
  let i = start + 4u * t;
  let r = vec4<f32>(epilogue(v.x, i), epilogue(v.y, i + 1u), epilogue(v.z, i + 2u), epilogue(v.w, i + 3u));
  if (t < p.fours) { out[i >> 2u] = r; }
}"""


@dataclass(frozen=True)
class NbitsTile:
    """The unrolled text of a tile of 32-bit words that hold 32 / `bits` weights along k, in the order that
    shaders/matmul_nbits.wgsl tells. `fours`: rows of a are read in aligned fours, and counted in them."""

    form: Form
    bits: int
    zeros: Zeros
    fours: bool
    held: tuple[str, ...] = ()
    rolled: bool = False

    @property
    def sampled(self) -> bool:
        """Whether it is for SwiftShader, as quads.py tells; `held` and `rolled` are a QuadTile's then."""
        return self.form.loader == "sampled"

    @property
    def fn(self) -> str:
        """`fn tile(row, first, lane)`: computes and stores; `first` is the invocation's first vector of columns, the
        next ones are GROUP further on, and `lane` is its place in the quad."""
        rows, vectors = self.form.rows, self.form.vectors
        each = [(r, j) for r in range(rows) for j in range(vectors)]
        numbers = Numbers(self.bits, self.zeros, self.sampled)
        zeros = list(numbers.subtrahends(vectors))
        return "\n".join(
            [
                "fn tile(row: u32, first: u32, lane: u32) {",
                "let fours = p.fours; let last_row = p.m - 1u; let words = p.words; let each = p.words_per_block;",
                f"let a_line = p.k{' / 4u' if self.fours else ''};",
                *(f"let t{j} = min(first + {j}u * GROUP, fours - 1u);" for j in range(vectors)),
                *(f"let r{r} = min(row + {self._start(r)}, last_row) * a_line;" for r in range(self.loads)),
                *(f"var c{r}_{j} = vec4<f32>();" for r, j in each),
                *self._first(),
                *numbers.constants(), *([] if self.zeros.all is None else zeros),
                "while (word < words) {", *(zeros if self.zeros.all is None else []),
                *(f"var b{r}_{j} = vec4<f32>();" for r, j in each),
                "let last = min(word + each, words);",
                "for (; word < last; word++) {",
                *numbers.weights(vectors), *self._products(), f"k += {self._places(numbers.count)}u;", "}",
                *(f"c{r}_{j} += fours_scale(block + t{j}) * b{r}_{j};" for r, j in each),
                *self._next(), "}",
                *(self._from_lanes(each) if self.sampled else (f"{self._store(r, j)};" for r, j in each)),
                "}",
            ]
        )  # fmt: skip

    def _first(self) -> Iterator[str]:
        """The first block."""
        slice_ = "lane / GROUP" if self.form.body else "0u"
        yield f"let slice = {slice_}; var word = slice * each;"
        yield f"var k = word * {self._places(32 // self.bits)}u; var block = slice * {self.zeros.parts}u * fours;"

    def _next(self) -> Iterator[str]:
        """On to the next block, of a slice the one that it has next."""
        if self.form.body:
            yield f"word += {SLICES - 1}u * each; k = word * {self._places(32 // self.bits)}u;"
        yield f"block += {self.zeros.parts * (SLICES if self.form.body else 1)}u * fours;"

    def _store(self, r: int, j: int) -> str:
        at = f"row + {r}u, first + {j}u * GROUP"
        return f"gather({at}, lane, c{r}_{j})" if self.form.body else f"store4({at}, c{r}_{j})"

    def _from_lanes(self, each: Sequence[tuple[int, int]]) -> Iterator[str]:
        """Stores on SwiftShader. Rows and columns past the end are the last ones once more."""
        yield hold(self.held)
        if not self.rolled:
            for r, j in each:
                row = f"{r // LANES * LANES}u + (lane ^ {r % LANES}u)" if self.form.lanes else f"{r}u"
                yield f"store(min(row + {row}, last_row) * fours + t{j}, c{r}_{j});"
            return
        yield f"var sums: array<vec4<f32>, {len(each)}>;"
        yield from (f"sums[{i}] = c{r}_{j};" for i, (r, j) in enumerate(each))
        yield f"for (var r = 0u; r < {self.form.rows}u; r++) {{"
        yield f"let start = min(row + {'(r ^ lane)' if self.form.lanes else 'r'}, last_row) * fours;"
        yield from (f"store(start + t{j}, sums[r * {self.form.vectors}u + {j}u]);" for j in range(self.form.vectors))
        yield "}"

    @property
    def loads(self) -> int:
        """How many rows of a an invocation loads."""
        return self.form.rows // max(1, self.form.lanes)

    def _places(self, elements: int) -> int:
        """Elements of a row of a, counted as `load4_a` counts."""
        return elements // 4 if self.fours else elements

    def _start(self, r: int) -> str:
        return f"(lane + {r * self.form.lanes}u)" if self.form.lanes else f"{r}u"

    def _products(self) -> Iterator[str]:
        for first in range(0, 32 // self.bits, 4):
            yield from (f"let own{r}_{first} = load4_a(r{r} + k + {self._places(first)}u);" for r in range(self.loads))
            for r in range(self.form.rows):
                yield f"let x{r}_{first} = {self._row(r, first)};"
                for j in range(self.form.vectors):
                    if self.sampled:
                        weights = ", ".join(f"w{j}_{first + i}" for i in range(4))
                        yield f"b{r}_{j} = plus(b{r}_{j}, x{r}_{first}, {weights});"
                        continue
                    terms = (f"x{r}_{first}.{c} * w{j}_{first + i}" for i, c in enumerate("xyzw"))
                    yield f"b{r}_{j} += {' + '.join(terms)};"

    def _row(self, r: int, first: int) -> str:
        lanes = self.form.lanes
        if self.sampled and lanes:
            return SWAPS[r % LANES].format(f"own{r // LANES}_{first}")
        return f"quadBroadcast(own{r // lanes}_{first}, {r % lanes}u)" if lanes else f"own{r}_{first}"
