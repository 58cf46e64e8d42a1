"""The unrolled text of a register tile: `rows` rows and `vectors` vectors of 4 columns of a matrix product.

Of four steps of k all terms are added in one expression: a software adapter keeps sums in memory between statements. As
the product of a matrix of b's columns with four elements of a they are added column by column there, which needs fewer
registers than row by row. An operand whose lines run the other way is read in fours along them all the same, four by
four elements at a time, and these change places in registers. Rows and columns are counted in fours where they can be:
SwiftShader shifts lane by lane. The loop that stores has a constant count: with one known only at a run, Mesa's
llvmpipe takes milliseconds a dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from webrt.ops.panels import PANEL
from webrt.ops.product_text import Lines
from webrt.ops.vectors import in_turn


@dataclass(frozen=True)
class Tile:
    """`lanes` > 0: what is loaded of a is shared by a subgroup of so many invocations. `tail`: k may be no multiple of
    4. `floats`: the operands are no integers. `band`: the first row is p.first_row."""

    rows: int
    vectors: int
    lanes: int
    a: Lines
    b: Lines
    tail: bool = False
    floats: bool = True
    band: bool = False

    @property
    def apart(self) -> bool:
        """Whether the four columns of a vector are not next to each other."""
        return not (self.b.fours or self.b.turned)

    @property
    def fn(self) -> str:
        """`fn tile(z, row, first, lanes, lane)`: computes and stores; `first` is the invocation's first vector of
        columns, the next ones are `lanes` further on, and `lane` is its place in the subgroup."""
        return _text_of(self)

    def text(self) -> str:
        """`fn`, written anew."""
        each = [(r, j) for r in range(self.rows) for j in range(self.vectors)]
        tail = ["for (; k < k_last; k++) {", *self._ones(), "}"] if self.tail else []
        a = "row + k * p.a_line" if self.a.turned else "row * p.a_line + k"
        b = "k" if self.b.turned else "k * p.b_line"
        b0 = [] if self.b.panels else [f"var b0 = (offsets.y + {b}){self.b.unit};"]
        return "\n".join(
            [
                f"fn tile(z: u32, {'row_in' if self.band else 'row'}: u32, first: u32, lanes: u32, lane: u32) {{",
                *(["let row = p.first_row + row_in;"] if self.band else []),
                "let offsets = batch_offsets(z); let k_last = p.k_last; var k = p.k_first;",
                f"let a_line = p.a_line{self._a_unit}; var at = (offsets.x + {a}){self._a_unit};",
                f"let b_line = p.b_line{self.b.unit};",
                *b0,
                *self._columns(),
                *(self._panels() if self.b.panels else ()),
                *(f"let r{r} = {self._start(r)};" for r in range(self.loads)),
                *(f"let s{j} = 4u * t{j} * b_line;" for j in range(self.vectors) if self.b.turned),
                *(f"var c{r}_{j} = vec4<Out>();" for r, j in each),
                "for (; k + 4u <= k_last; k += 4u) {", *self._fours(), "}", *tail,
                *self._ends(),
                "}",
            ]
        )  # fmt: skip

    def _columns(self) -> Iterator[str]:
        """t0, t1, …: the invocation's vectors of columns."""
        yield from (f"let t{j} = first + {j * (4 if self.apart else 1)}u * lanes;" for j in range(self.vectors))

    def _panels(self) -> Iterator[str]:
        """q0, q1, …: where each vector of columns starts in its panel; l0, l1, …: the fours of a panel's row."""
        for j in range(self.vectors):
            first = f"(t{j} & {2**32 - PANEL}u)"
            yield f"let l{j} = min({PANEL}u, b_line - {first}); var q{j} = {first} * k_last + (t{j} & {PANEL - 1}u);"

    def _ends(self) -> Iterator[str]:
        """Stores all vectors, `c0_0` being the tile's vector i."""
        row, column = f"row + i / {self.vectors}u", f"i % {self.vectors}u * {4 if self.apart else 1}u * lanes"
        start, end = ("", "p.first_row + p.m") if self.band else ("z * p.m + ", "p.m")
        store = f"if ({row} < {end}) {{ store4(({start}{row}) * p.n, first + {column}, lanes, c0_0); }}"
        yield from in_turn([[f"c{r}_{j}"] for r in range(self.rows) for j in range(self.vectors)], store, "i")

    @property
    def _blocks(self) -> int:
        """Fours of rows that are loaded at once, of a turned operand."""
        return self.rows // 4 if self.a.turned else 0

    @property
    def _a_unit(self) -> str:
        return self.a.unit if self._blocks or not self.a.turned else ""

    @property
    def loads(self) -> int:
        """How many places of its own an invocation loads from of a: rows, or fours of rows at a step each."""
        places = 4 * self._blocks if self.a.turned else self.rows
        return -(-places // self.lanes) if self.lanes else places

    def _start(self, r: int) -> str:
        at = f"(lane + {r * self.lanes}u)" if self.lanes else f"{r}u"
        if not self.a.turned:
            return f"{at} * a_line"
        return f"{at} % 4u * a_line + {at} / 4u * {self.a.four}u"

    def _fours(self) -> Iterator[str]:
        yield from self._rows_of_fours()
        yield from self._columns_of_fours()
        for j in range(self.vectors):
            yield from self._vector(j)
            if not self._blocks:
                yield from (self._product(r, j) for r in range(self.rows))
        for block in range(self._blocks):
            yield from self._block(block)
        yield f"at += {'4u * a_line' if self.a.turned else f'{self.a.four}u'};"

    def _vector(self, j: int) -> Iterator[str]:
        """What the products with a vector of columns begin with."""
        if self.floats:
            yield f"let e{j} = mat4x4<B>({', '.join(f'e{j}_{i}' for i in range(4))});"

    def _product(self, r: int, j: int) -> str:
        """Adds four steps to a vector of a row."""
        terms = (f"x{r}.{c} * e{j}_{i}" for i, c in enumerate("xyzw"))
        return f"c{r}_{j} += {f'e{j} * x{r}' if self.floats else ' + '.join(terms)};"

    def _rows_of_fours(self) -> Iterator[str]:
        """x0, x1, …: four steps of each row; of blocks what is loaded of them."""
        if self.a.turned and not self._blocks:
            yield f"let x0 = vec4<A>({', '.join(f'load_a(at + {i}u * a_line)' for i in range(4))});"
            return
        yield from (f"let own{r} = {self._own(r)};" for r in range(self.loads))
        if not self.a.turned:
            yield from (f"let x{r} = {self._shared(r)};" for r in range(self.rows))

    def _own(self, r: int) -> str:
        """What is loaded from a place."""
        return f"load4_a(at + r{r})"

    def _one(self, r: int) -> str:
        """A row's element of a step, of y0, y1, … that hold four rows' each."""
        return f"y{r // 4}.{'xyzw'[r % 4]}"

    def _block(self, block: int) -> Iterator[str]:
        """x of four rows, and at once their products: of all rows together SwiftShader would keep them in memory."""
        rows = range(4 * block, 4 * block + 4)
        yield from (f"let y{q} = {self._shared(q)};" for q in rows)
        for r, c in zip(rows, "xyzw"):
            yield f"let x{r} = vec4<A>({', '.join(f'y{q}.{c}' for q in rows)});"
            yield from (self._product(r, j) for j in range(self.vectors))

    def _columns_of_fours(self) -> Iterator[str]:
        """e0_0, e0_1, …: of each vector of columns four steps."""
        if self.b.panels:
            for j in range(self.vectors):
                yield f"let q{j}_1 = q{j} + l{j}; let q{j}_2 = q{j}_1 + l{j}; let q{j}_3 = q{j}_2 + l{j};"
                yield f"let e{j}_0 = load4_b(q{j});"
                yield " ".join(f"let e{j}_{i} = load4_b(q{j}_{i});" for i in (1, 2, 3))
                yield f"q{j} = q{j}_3 + l{j};"
            return
        if not self.b.turned:
            yield " ".join(f"let b{i} = b{i - 1} + b_line;" for i in (1, 2, 3))
            for j in range(self.vectors):
                yield " ".join(f"let e{j}_{i} = columns_b(b{i}, t{j}, lanes);" for i in range(4))
            yield "b0 = b3 + b_line;"
            return
        for j in range(self.vectors):
            yield " ".join(f"let w{j}_{i} = load4_b(b0 + s{j} + {i}u * b_line);" for i in range(4))
            for i, c in enumerate("xyzw"):
                yield f"let e{j}_{i} = vec4<B>({', '.join(f'w{j}_{column}.{c}' for column in range(4))});"
        yield f"b0 += {self.b.four}u;"

    def _ones(self) -> Iterator[str]:
        yield from self._columns_of_ones()
        if self.a.turned and not self._blocks:
            yield "let x0 = load_a(at);"
        elif self.a.turned:
            yield from (f"let y{i} = load4_a(at + {i * self.a.four}u);" for i in range(self._blocks))
            yield from (f"let x{r} = {self._one(r)};" for r in range(self.rows))
        else:
            yield from (f"let own{r} = load_a(at + r{r});" for r in range(self.loads))
            yield from (f"let x{r} = {self._shared(r)};" for r in range(self.rows))
        for r in range(self.rows):
            yield " ".join(f"c{r}_{j} += x{r} * e{j};" for j in range(self.vectors))
        yield f"at += {'a_line' if self.a.turned else '1u'};"
        if self.b.panels:
            yield " ".join(f"q{j} += l{j};" for j in range(self.vectors))
        else:
            yield f"b0 += {'1u' if self.b.turned else 'b_line'};"

    def _columns_of_ones(self) -> Iterator[str]:
        for j in range(self.vectors):
            value = f"columns_b(b0, t{j}, lanes)"
            if self.b.panels:
                value = f"load4_b(q{j})"
            if self.b.turned:
                value = f"vec4<B>({', '.join(f'load_b(b0 + s{j} + {i}u * b_line)' for i in range(4))})"
            yield f"let e{j} = {value};"

    def _shared(self, r: int) -> str:
        """What one invocation of the subgroup has loaded, by its number among all that they load."""
        if not self.lanes:
            return f"own{r}"
        return f"subgroupBroadcast(own{r // self.lanes}, {r % self.lanes}u)"


@lru_cache(maxsize=256)
def _text_of(tile: Tile) -> str:
    return tile.text()
