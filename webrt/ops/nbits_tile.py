"""How a product with packed weights runs on software adapters: register tiles, weights through textures.

A number becomes a float by putting its bits into the mantissa of a power of two and subtracting that: three
instructions for four columns, and exact. Where invocations of a quad have rows of a in common, each loads one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webrt import dims as D
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Variant, grid
from webrt.ops.product_variants import LLVMPIPE, SOFTWARE, Form, subgroups
from webrt.ops.vectors import Epilogue, can_load4, kind, load4, vec_of

FORMS = (
    Form(1, 2, 0, "storage", LLVMPIPE, most=1),
    Form(1, 2, 0, "sampled", SOFTWARE, most=1),
    Form(4, 2, 4, "storage", subgroups(8, LLVMPIPE)),
    Form(4, 2, 4, "sampled", subgroups(4, SOFTWARE)),
    Form(4, 1, 0, "storage", LLVMPIPE),
    Form(4, 1, 0, "sampled", SOFTWARE),
)
"""In order of preference; those of 4 lanes share rows in quads."""
TALL = (
    Form(16, 2, 4, "storage", subgroups(8, LLVMPIPE), least=24),
    Form(8, 2, 4, "sampled", subgroups(4, SOFTWARE), least=24),
)
"""What goes before them with weights of 8 bits: more rows for each weight that is unpacked."""
GROUP = 8
"""Invocations of a workgroup: few, so that all cores have some where columns are few."""
MANTISSA, BIAS = 23, 127
_STORE = """fn store4(row: u32, t: u32, v: vec4<f32>) {
  let i = row * p.n + 4u * t;
  let r = vec4<f32>(epilogue(v.x, i), epilogue(v.y, i + 1u), epilogue(v.z, i + 2u), epilogue(v.w, i + 3u));
  if (row < p.m && t < p.fours) { out[i >> 2u] = r; }
}"""


def tile_variants(a: Value, m: Dim, columns: int, bits: int, whole: bool, epilogue: Epilogue) -> Iterator[Variant]:
    """The variants for `m` rows of a and a multiple of 4 columns; `whole`: all zero points are numbers that weights of
    so many bits may be."""
    dtype = kind(a)
    fours = can_load4(dtype, a.known_shape[-1])
    for form in (*TALL, *FORMS) if bits == 8 else FORMS:
        spans = -(-columns // (4 * form.vectors * GROUP))
        yield Variant(
            "matmul_nbits_quads" if form.lanes else "matmul_nbits_tile",
            grid(D.mul(D.ceildiv(m, form.rows), spans), 1),
            consts={"ROWS": form.rows, "VECTORS": form.vectors, "GROUP": GROUP},
            fns=[load4("a", dtype, fours), epilogue.fn, _STORE, NbitsTile(form, bits, whole).fn],
            use=epilogue.use,
            vec={**vec_of(a=(dtype, fours)), "out": 4},
            requires=form.requires,
            textures=dict.fromkeys(("w", "scale"), form.loader),
            when=form.applies(m),
        )


@dataclass(frozen=True)
class NbitsTile:
    """The unrolled text of a tile of 32-bit words that hold 32 / `bits` weights along k, in the order that
    shaders/matmul_nbits.wgsl tells."""

    form: Form
    bits: int
    whole: bool

    @property
    def fn(self) -> str:
        """`fn tile(row, first, lane)`: computes and stores; `first` is the invocation's first vector of columns, the
        next ones are GROUP further on, and `lane` is its place in the quad."""
        each = [(r, j) for r in range(self.form.rows) for j in range(self.form.vectors)]
        return "\n".join(
            [
                "fn tile(row: u32, first: u32, lane: u32) {",
                *(f"let t{j} = min(first + {j}u * GROUP, p.fours - 1u);" for j in range(self.form.vectors)),
                *(f"let r{r} = min(row + {self._start(r)}, p.m - 1u) * p.k;" for r in range(self.loads)),
                *(f"var c{r}_{j} = vec4<f32>();" for r, j in each),
                "var word = 0u; var k = 0u; var block = 0u;",
                "while (word < p.words) {",
                *self._zeros(),
                *(f"var b{r}_{j} = vec4<f32>();" for r, j in each),
                "let last = min(word + p.words_per_block, p.words);",
                "for (; word < last; word++) {", *self._weights(), *self._products(), f"k += {32 // self.bits}u;", "}",
                *(f"c{r}_{j} += fours_scale(block + t{j}) * b{r}_{j};" for r, j in each),
                "block += 2u * p.fours; }",
                *(f"store4(row + {r}u, first + {j}u * GROUP, c{r}_{j});" for r, j in each),
                "}",
            ]
        )  # fmt: skip

    @property
    def loads(self) -> int:
        """How many rows of a an invocation loads."""
        return self.form.rows // max(1, self.form.lanes)

    def _start(self, r: int) -> str:
        return f"(lane + {r * self.form.lanes}u)" if self.form.lanes else f"{r}u"

    @property
    def _places(self) -> list[tuple[str, int]]:
        """Of each number of a word, in the order of k: which half it is in, and its first bit there."""
        return [(half, bit + low) for low in range(0, 8, self.bits) for half in ("lo", "hi") for bit in (0, 8)]

    def _zeros(self) -> Iterator[str]:
        """What is subtracted, for each first bit."""
        for j in range(self.form.vectors):
            yield f"let zero{j} = fours_scale(block + p.fours + t{j});"
            for bit in sorted({bit for _, bit in self._places}):
                yield f"let z{j}_{bit} = {float(1 << MANTISSA - bit)}{f' + zero{j}' if self.whole else ''};"

    def _weights(self) -> Iterator[str]:
        for j in range(self.form.vectors):
            yield f"let lo{j} = fours_w(word * p.fours + t{j}); let hi{j} = lo{j} >> vec4<u32>(16u);"
            for i, (half, bit) in enumerate(self._places):
                mask, power = ((1 << self.bits) - 1) << bit, BIAS + MANTISSA - bit << MANTISSA
                number = f"bitcast<vec4<f32>>(({half}{j} & vec4<u32>({mask}u)) | vec4<u32>({power}u)) - z{j}_{bit}"
                yield f"let w{j}_{i} = {number}{'' if self.whole else f' - zero{j}'};"

    def _products(self) -> Iterator[str]:
        for first in range(0, 32 // self.bits, 4):
            yield from (f"let own{r}_{first} = load4_a(r{r} + k + {first}u);" for r in range(self.loads))
            for r in range(self.form.rows):
                yield f"let x{r}_{first} = {self._row(r, first)};"
                for j in range(self.form.vectors):
                    terms = (f"x{r}_{first}.{c} * w{j}_{first + i}" for i, c in enumerate("xyzw"))
                    yield f"b{r}_{j} += {' + '.join(terms)};"

    def _row(self, r: int, first: int) -> str:
        lanes = self.form.lanes
        return f"quadBroadcast(own{r // lanes}_{first}, {r % lanes}u)" if lanes else f"own{r}_{first}"
