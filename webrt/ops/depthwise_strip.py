"""The text of a depthwise convolution's tile for small kernels: a strip of COLUMNS pixels' width, row after row.

Each row of the input is loaded once and goes into all sums it has a part in; those of rows that are not finished stay
in registers. The sums are of a channel of COLUMNS pixels, as products of a matrix of the input with a row of weights:
a software adapter has the elements of vectors in registers of their own, and adds up such products one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from webrt import dims as D
from webrt.ops.bands import WHOLE, Names
from webrt.ops.vectors import in_turn
from webrt.ops.windows import Axis

COLUMNS = 4
MAX_TAPS = 25
MAX_BEGUN = 4
"""Rows of sums in registers."""


@dataclass(frozen=True)
class Strip:
    """`long`: the store has a long text. `even`: no strip ends beyond the row."""

    height: Axis
    width: Axis
    long: bool
    even: bool = False
    of: Names = WHOLE

    @property
    def fits(self) -> bool:
        """Whether the kernel is small enough to be written out."""
        return self.height.kernel * self.width.kernel <= MAX_TAPS and self.begun <= MAX_BEGUN

    @property
    def fn(self) -> str:
        """`fn tile(image, row, column, four)`: computes ROWS rows from `row` on and stores them by `store4(at, v)`,
        `at` a place in fours."""
        return "\n".join([*self._before(), *self._new_rows(), *self._sums(), *self._after()])

    @property
    def _window(self) -> int:
        """Rows of the input from the first that a row of the output needs to the last that the loop loads for it."""
        return max((self.height.kernel - 1) * self.height.dilation + 1, self.height.stride)

    @property
    def begun(self) -> int:
        """How many rows of the output are begun when one is finished."""
        return -(-(self._window - self.height.stride) // self.height.stride)

    @property
    def _places(self) -> list[int]:
        """The columns of the input that the pixels need."""
        return sorted({self._place(c, k) for c in range(COLUMNS) for k in range(self.width.kernel)})

    def _place(self, column: int, tap: int) -> int:
        return column * self.width.stride + tap * self.width.dilation

    def _inside(self, place: int) -> bool:
        """Whether a place is never padding, neither in the first strip nor in the last one."""
        w = self.width
        left = D.sub(place, w.before)
        right = D.add(D.mul(D.sub(w.out, COLUMNS), w.stride), left)
        return self.even and D.at_least(left, 0) and D.at_least(D.sub(w.size, right), 1)

    def _taps(self) -> Iterator[tuple[int, int, int]]:
        """(i, d, k): the i-th of a turn's new rows has weights k in the row of the output that is d further on."""
        h = self.height
        for i in range(h.stride):
            for d in range(self.begun + 1):
                k, rest = divmod(self._window - h.stride + i - d * h.stride, h.dilation)
                if rest == 0 and 0 <= k < h.kernel:
                    yield i, d, k

    def _runs(self) -> list[range]:
        """The taps of a row, in as few runs of at most 4 as there can be."""
        count, kernel = -(-self.width.kernel // 4), self.width.kernel
        ends = [kernel * n // count for n in range(count + 1)]
        return [range(a, b) for a, b in pairwise(ends)]

    def _before(self) -> Iterator[str]:
        yield "const ALL = 0xffffffffu;"
        yield f"fn tile({self.of.arguments}, four: u32) {{{self.of.head}"
        yield f"let last = min(row + ROWS, {self.of.end_row}); let left = i32(column * p.stride_1 - p.pad_1);"
        yield "let bias = fours_w(p.kernel_0 * p.kernel_1 * p.fours + four);"
        for ky in range(self.height.kernel):
            for kx in range(self.width.kernel):
                yield f"let w{ky}_{kx} = fours_w({ky * self.width.kernel + kx}u * p.fours + four);"
        for x in self._places:
            if not self._inside(x):
                yield f"let in{x} = select(0u, ALL, u32(left + {x}) < p.size_1);"
            yield f"let off{x} = u32(left + {x}) * p.fours + four;"
        for c in "xyzw":
            yield f"let b_{c} = vec4<f32>(bias.{c});"
            yield from (f"var a{d}_{c} = b_{c};" for d in range(self.begun))
        yield "let line = p.size_1 * p.fours; let first_line = image * p.size_0;"
        yield f"let first = (image * {self.of.height} * {self.of.width} + column) * p.fours + four;"
        yield f"let step = {self.of.width} * p.fours;"
        yield f"for (var r = row - {self.begun}u; r != last; r++) {{"

    def _new_rows(self) -> Iterator[str]:
        """Loads a turn's new rows: `m<i>_<run>_<c>` has a column for each tap of a run, of channel c of the pixels.

        All places are worked out from `r`: a variable that a loop changes costs SwiftShader ten instructions a turn."""
        used = {i for i, _, _ in self._taps()}
        for i in range(self.height.stride):
            if i in used:
                above = self._window - self.height.stride + i
                yield f"let y{i} = i32(r * p.stride_0 - p.pad_0) + {above};"
                yield f"let start{i} = (first_line + u32(y{i})) * line;"
                yield f"let row{i} = select(0u, ALL, u32(y{i}) < p.size_0);"
                yield from self._pixels(f"x{i}", f"start{i}", f"row{i}")
                yield from (self._matrix(i, n, c) for n in range(len(self._runs())) for c in "xyzw")

    def _pixels(self, name: str, start: str, row: str) -> Iterator[str]:
        """`<name>_<place>`: the pixels of the row of the input that starts at `start`, zeros where they are padding;
        `row` is ALL where the row is none."""
        for x in self._places:
            mask = row if self._inside(x) else f"{row} & in{x}"
            loaded = f"bitcast<vec4<u32>>(fours_x({start} + off{x}))"
            yield f"let {name}_{x} = bitcast<vec4<f32>>({loaded} & vec4<u32>({mask}));"

    def _matrix(self, i: int, n: int, c: str) -> str:
        run = self._runs()[n]
        pixels = [", ".join(f"x{i}_{self._place(column, k)}.{c}" for column in range(COLUMNS)) for k in run]
        columns = ", ".join(f"vec4<f32>({p})" for p in pixels)
        return f"let m{i}_{n}_{c} = {columns if len(run) == 1 else f'mat{len(run)}x4<f32>({columns})'};"

    def _sums(self) -> Iterator[str]:
        """`n<d>_<c>`: the sums of the row of the output that is d further on, as far as they go now."""
        for d in range(self.begun + 1):
            for c in "xyzw":
                terms = [f"a{d}_{c}" if d < self.begun else f"b_{c}"]
                for i, of, ky in self._taps():
                    terms += [self._product(i, n, ky, c) for n in range(len(self._runs())) if of == d]
                yield f"let n{d}_{c} = {' + '.join(terms)};"

    def _product(self, i: int, n: int, ky: int, c: str) -> str:
        run = self._runs()[n]
        weights = ", ".join(f"w{ky}_{k}.{c}" for k in run)
        return f"m{i}_{n}_{c} * {weights if len(run) == 1 else f'vec{len(run)}<f32>({weights})'}"

    def _after(self) -> Iterator[str]:
        yield "let whole = i32(r) >= i32(row); let to = first + r * step;"
        pixels = [f"vec4<f32>({', '.join(f'n0_{c}[{k}]' for c in 'xyzw')})" for k in range(COLUMNS)]
        store = "store4(to + {k} * p.fours, {v});"
        inside = f"whole && column + {{k}} < {self.of.end_column}"
        if self.even and not self.long:
            stores = " ".join(store.format(k=f"{k}u", v=pixel) for k, pixel in enumerate(pixels))
            yield f"if (whole) {{ {stores} }}"
        store = f"if ({inside}) {{{{ {store} }}}}"
        if self.long:
            yield from (f"var v{k} = {pixel};" for k, pixel in enumerate(pixels))
            yield from in_turn([[f"v{k}"] for k in range(COLUMNS)], store.format(k="k", v="v0"), "k")
        elif not self.even:
            yield from (store.format(k=f"{k}u", v=pixel) for k, pixel in enumerate(pixels))
        yield from (f"a{d}_{c} = n{d + 1}_{c};" for d in range(self.begun) for c in "xyzw")
        yield "}\n}"
