"""The unrolled text of a register tile: `rows` rows and `vectors` vectors of 4 columns of a matrix product.

Of four steps of k all terms are added in one expression: a software adapter keeps sums in memory between statements. As
the product of a matrix of b's columns with four elements of a they are added column by column there, which needs fewer
registers than row by row. Rows and columns are counted in fours where they can be: SwiftShader shifts lane by lane.
The loop that stores has a constant count: with one known only at a run, Mesa's llvmpipe takes milliseconds a dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webrt.ops.vectors import in_turn


@dataclass(frozen=True)
class Tile:
    """`lanes` > 0: the rows of a are shared by a subgroup of so many invocations; one of 4 is a quad. `tail`: k may be
    no multiple of 4, and a is counted in elements; `apart`: the four columns of a vector are not next to each other,
    and b is counted in elements. `floats`: the operands are no integers. `band`: the first row is p.first_row."""

    rows: int
    vectors: int
    lanes: int = 0
    tail: bool = False
    apart: bool = False
    floats: bool = True
    band: bool = False

    @property
    def fn(self) -> str:
        """`fn tile(z, row, first, lanes, lane)`: computes and stores; `first` is the invocation's first vector of
        columns, the next ones are `lanes` further on, and `lane` is its place in the subgroup."""
        each = [(r, j) for r in range(self.rows) for j in range(self.vectors)]
        tail = ["for (; k < k_last; k++) {", *self._ones(), "}"] if self.tail else []
        a_unit, b_unit = "" if self.tail else " / 4u", "" if self.apart else " / 4u"
        return "\n".join(
            [
                f"fn tile(z: u32, {'row_in' if self.band else 'row'}: u32, first: u32, lanes: u32, lane: u32) {{",
                *(["let row = p.first_row + row_in;"] if self.band else []),
                "let offsets = batch_offsets(z); let k_last = p.k_last; var k = p.k_first;",
                f"let a_row = p.k{a_unit}; var at = (offsets.x + row * p.k + k){a_unit};",
                f"let b_row = p.b_row{b_unit}; var b0 = (offsets.y + k * p.b_row){b_unit};",
                *(f"let t{j} = first + {j * (4 if self.apart else 1)}u * lanes;" for j in range(self.vectors)),
                *(f"let r{r} = {self._start(r)} * a_row;" for r in range(self.loads)),
                *(f"var c{r}_{j} = vec4<Out>();" for r, j in each),
                "for (; k + 4u <= k_last; k += 4u) {", *self._fours(), "b0 = b3 + b_row;", "}", *tail,
                *in_turn([[f"c{r}_{j}"] for r, j in each], self._store, "i"),
                "}",
            ]
        )  # fmt: skip

    @property
    def _store(self) -> str:
        """Stores the vector `c0_0`, which is the tile's vector i."""
        row, column = f"row + i / {self.vectors}u", f"i % {self.vectors}u * {4 if self.apart else 1}u * lanes"
        start, end = ("", "p.first_row + p.m") if self.band else ("z * p.m + ", "p.m")
        return f"if ({row} < {end}) {{ store4(({start}{row}) * p.n, first + {column}, lanes, c0_0); }}"

    @property
    def loads(self) -> int:
        """How many rows of a an invocation loads."""
        return -(-self.rows // self.lanes) if self.lanes else self.rows

    def _start(self, r: int) -> str:
        return f"(lane + {r * self.lanes}u)" if self.lanes else f"{r}u"

    def _fours(self) -> Iterator[str]:
        yield " ".join(f"let b{i} = b{i - 1} + b_row;" for i in (1, 2, 3))
        yield from (f"let own{r} = load4_a(at + r{r});" for r in range(self.loads))
        yield from (f"let x{r} = {self._row(r)};" for r in range(self.rows))
        for j in range(self.vectors):
            each = [f"e{j}_{i}" for i in range(4)]
            yield " ".join(f"let {e} = columns_b(b{i}, t{j}, lanes);" for i, e in enumerate(each))
            if self.floats:
                yield f"let e{j} = mat4x4<B>({', '.join(each)});"
            for r in range(self.rows):
                terms = (f"x{r}.{c} * {e}" for c, e in zip("xyzw", each))
                yield f"c{r}_{j} += {f'e{j} * x{r}' if self.floats else ' + '.join(terms)};"
        yield f"at += {4 if self.tail else 1}u;"

    def _ones(self) -> Iterator[str]:
        yield from (f"let e{j} = columns_b(b0, t{j}, lanes);" for j in range(self.vectors))
        yield from (f"let own{r} = load_a(at + r{r});" for r in range(self.loads))
        for r in range(self.rows):
            yield f"let x{r} = {self._row(r)};"
            yield " ".join(f"c{r}_{j} += x{r} * e{j};" for j in range(self.vectors))
        yield "at++; b0 += b_row;"

    def _row(self, r: int) -> str:
        if not self.lanes:
            return f"own{r}"
        broadcast = "quadBroadcast" if self.lanes == 4 else "subgroupBroadcast"
        return f"{broadcast}(own{r // self.lanes}, {r % self.lanes}u)"
