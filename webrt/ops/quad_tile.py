"""The register tile of a matrix product for quads: each lane loads a row of four, and swaps bring it the others.

SwiftShader merges every variable of a loop at each turn, branches around each store, and looks a parameter up wherever
the text mentions it: results are stored one by one, by parameters that were read before, and rows and columns past the
end are the last ones once more, where they can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webrt.dtypes import DType
from webrt.ops.quads import LANES, SWAPS, hold
from webrt.ops.tiles import Tile
from webrt.ops.vectors import store_fours


@dataclass(frozen=True)
class QuadTile(Tile):
    """`held`: the parameters that the functions for storing read, as variables held_<name>. `rolled`: a store is in the
    text once. `fours`: rows of the output are written by `store`, else by `store4`. `columns`: what the former takes of
    a column, by the names of operands."""

    held: tuple[str, ...] = ()
    rolled: bool = False
    fours: bool = False
    columns: tuple[str, ...] = ()
    part: bool = False

    @property
    def clamped(self) -> bool:
        """Whether no row or column past the end is computed. Rows of a turned operand come four at a time."""
        return self.fours and not self.a.turned

    def _columns(self) -> Iterator[str]:
        if not self.clamped:
            yield from super()._columns()
            return
        yield f"let last_row = {'p.first_row + ' if self.band else ''}p.m - 1u;"
        yield "let last_four = (p.width + 3u) / 4u - 1u;"
        yield from (f"let t{j} = min(first + {j * LANES}u, last_four);" for j in range(self.vectors))

    def _start(self, r: int) -> str:
        return f"(min(row + lane + {r * LANES}u, last_row) - row) * a_line" if self.clamped else super()._start(r)

    def _own(self, r: int) -> str:
        return f"across({super()._own(r)}, lane)" if self.a.turned else super()._own(r)

    def _shared(self, r: int) -> str:
        return SWAPS[r % LANES].format(f"own{r // LANES}")

    def _one(self, r: int) -> str:
        return f"y{r // LANES}[lane ^ {r % LANES}u]"

    def _block(self, block: int) -> Iterator[str]:
        for r in range(LANES * block, LANES * block + LANES):
            yield f"let x{r} = {self._shared(r)};"
            yield from (self._product(r, j) for j in range(self.vectors))

    def _vector(self, j: int) -> Iterator[str]:
        return iter(())

    def _product(self, r: int, j: int) -> str:
        if not self.floats:
            return super()._product(r, j)
        return f"c{r}_{j} = plus(c{r}_{j}, x{r}, {', '.join(f'e{j}_{i}' for i in range(4))});"

    def _ends(self) -> Iterator[str]:
        yield hold(self.held)
        yield f"let row_start = {'0u' if self.band else 'z * p.m'}; let row_size = p.n{' / 4u' if self.fours else ''};"
        if not self.clamped:
            yield f"let row_end = {'p.first_row + ' if self.band else ''}p.m; let width = p.width;"
        before = " + held_column / 4u" if self.part else ""
        for j in range(self.vectors):
            yield from (f"let {k}_{j} = fours_{k}(t{j}{before});" for k in self.columns)
        if not self.rolled:
            for r in range(self.rows):
                yield self._stores(f"{r // LANES * LANES}u + (lane ^ {r % LANES}u)", r)
            return
        yield f"var sums: array<vec4<Out>, {self.rows * self.vectors}>;"
        for r in range(self.rows):
            yield from (f"sums[{r * self.vectors + j}] = c{r}_{j};" for j in range(self.vectors))
        yield f"for (var r = 0u; r < {self.rows}u; r++) {{"
        yield from (self._stores("(r ^ lane)", None), "}")

    def _stores(self, row: str, r: int | None) -> str:
        """A row's; None: the one with number r."""
        values = [f"c{r}_{j}" if r is not None else f"sums[r * {self.vectors}u + {j}u]" for j in range(self.vectors)]
        own = " ".join(self._store(j, v) for j, v in enumerate(values))
        if self.clamped:
            return f"{{ let start = (row_start + min(row + {row}, last_row)) * row_size; {own} }}"
        return f"if (row + {row} < row_end) {{ let start = (row_start + row + {row}) * row_size; {own} }}"

    def _store(self, j: int, value: str) -> str:
        if not self.fours:
            return f"store4(start, t{j}, lanes, {value});"
        store = f"store(start + t{j}, {value}{''.join(f', {k}_{j}' for k in self.columns)});"
        return store if self.clamped else f"if (4u * t{j} < width) {{ {store} }}"


def store_four(dtype: DType, part: bool, columns: Sequence[str] = ()) -> str:
    """`store(four, v, …)`: the four of the output with that number, counted from p.column on where it is a `part`; the
    rest are what epilogue4 takes of `columns`."""
    at = "four + p.column / 4u" if part else "four"
    store = "out[at] = r;" if dtype.bits == 32 else f"let i = 4u * at; {store_fours(dtype)}"
    more = "".join(f", in_{k}: vec4<f32>" for k in columns)
    call = f"epilogue4(v, at{''.join(f', in_{k}' for k in columns)})"
    return f"fn store(four: u32, v: vec4<Out>{more}) {{ let at = {at}; let r = {call}; {store} }}"
