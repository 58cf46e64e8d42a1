"""The text of a strip for SwiftShader: the rows of the input above its first turn are written out before the loop, and
sums are chains of fma() of fours of channels.

So no turn stores nothing: to SwiftShader a store under a condition that does not hold costs as much as one that runs.
It works out fma() of fours component by component, so that products stay in registers; that text is half as long as
one of products and sums, too. A strip that would end beyond its row begins earlier and computes pixels of its
neighbour again; where a row is shorter than a strip, the pixels beyond it are stored first, where its last one follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.dims import Dim
from webrt.ops.bands import Names
from webrt.ops.depthwise_strip import COLUMNS, Strip
from webrt.ops.vectors import Epilogue
from webrt.ops.windows import Axis

MAX_COLUMNS = 7
USUAL = 112
"""Pixels of a row whose number is free: most networks have a few sevens of them."""
MAX_CARRIED = 16
"""Fours of channels that the loop carries."""


@dataclass(frozen=True)
class Sweep(Strip):
    """A strip of exactly `columns` pixels' width, whose epilogue is short."""

    columns: int = COLUMNS

    @property
    def fn(self) -> str:
        """`fn tile(image, row, column, four)`: computes up to ROWS rows from `row` on and stores them by
        `store4(at, v)`, `at` a place in fours."""
        return "\n".join([*self._first(), *self._above(), *self._turn()])

    @property
    def cost(self) -> int:
        """What a turn takes about, in ns: its loads, and sums and stores."""
        pixel = 40 + 5 * self.height.kernel * self.width.kernel
        return 27 * len(self._places) * self.height.stride + pixel * self.columns

    @property
    def _places(self) -> list[int]:
        return sorted({self._place(c, k) for c in range(self.columns) for k in range(self.width.kernel)})

    def _inside(self, place: int) -> bool:
        w = self.width
        left = D.sub(place, w.before)
        starts = [D.sub(w.out, self.columns), *([] if D.at_least(w.out, self.columns) else [0])]
        ends = [D.sub(w.size, D.add(D.mul(start, w.stride), left)) for start in starts]
        return D.at_least(left, 0) and all(D.at_least(end, 1) for end in ends)

    def _first(self) -> Iterator[str]:
        of, taps = self.of, self.height.kernel * self.width.kernel
        yield "const ALL = 0xffffffffu;"
        yield f"fn tile({of.arguments}, four: u32) {{{of.head}"
        yield f"let turns = min(ROWS, {of.end_row} - row); let end = {of.end_column};"
        yield f"let start = min(column, max(end, {self.columns}u) - {self.columns}u);"
        yield "let fours = p.fours; let tall = p.size_0; let wide = p.size_1; let line = wide * fours;"
        yield f"let bias = fours_w({taps}u * fours + four);"
        yield from (f"let w{k} = fours_w({k}u * fours + four);" for k in range(taps))
        yield f"let left = i32(start * {self.width.stride}u - p.pad_1);"
        for x in self._places:
            yield f"let off{x} = u32(left + {x}) * fours + four;"
            if not self._inside(x):
                yield f"let in{x} = select(0u, ALL, u32(left + {x}) < wide);"
        yield f"let top = i32(row * {self.height.stride}u - p.pad_0); let above = image * tall;"
        yield f"let step = {of.width} * fours;"
        yield f"let first = (image * {of.height} + row) * step + four;"
        yield from (f"let to{c} = first + min(start + {c}u, end - 1u) * fours;" for c in range(self.columns))

    def _above(self) -> Iterator[str]:
        """`a<d>_<column>`: the first rows' sums of all rows of the input before those of the first turn."""
        h, sums = self.height, [["bias"] * self.columns for _ in range(self.begun)]
        for y in range(self._window - h.stride):
            taps = [(d, *divmod(y - d * h.stride, h.dilation)) for d in range(self.begun)]
            parts = [(d, k) for d, k, rest in taps if rest == 0 and 0 <= k < h.kernel]
            if parts:
                yield from self._load(f"b{y}", str(y))
            for d, k in parts:
                sums[d] = [self._plus(sums[d][c], f"b{y}", k, c) for c in range(self.columns)]
        yield from (f"var a{d}_{c} = {v};" for d, row in enumerate(sums) for c, v in enumerate(row))

    def _turn(self) -> Iterator[str]:
        h = self.height
        yield "for (var r = 0u; r != turns; r++) {"
        yield f"let base = i32(r * {h.stride}u); let down = r * step;"
        for i in sorted({i for i, _, _ in self._taps()}):
            yield from self._load(f"x{i}", f"base + {self._window - h.stride + i}")
        for d in range(self.begun + 1):
            for c in reversed(range(self.columns)):
                value = f"a{d}_{c}" if d < self.begun else "bias"
                for i, of, k in self._taps():
                    value = self._plus(value, f"x{i}", k, c) if of == d else value
                yield f"let n{d}_{c} = {value};" if d else f"store4(to{c} + down, {value});"
        yield from (f"a{d}_{c} = n{d + 1}_{c};" for d in range(self.begun) for c in range(self.columns))
        yield "}\n}"

    def _load(self, name: str, below: str) -> Iterator[str]:
        """The pixels `<name>_<place>` of the row of the input that is so far below the first."""
        yield f"let y_{name} = u32(top + {below}); let line_{name} = (above + y_{name}) * line;"
        yield f"let row_{name} = select(0u, ALL, y_{name} < tall);"
        yield from self._pixels(name, f"line_{name}", f"row_{name}")

    def _plus(self, value: str, row: str, ky: int, column: int) -> str:
        for kx in range(self.width.kernel):
            value = f"fma(w{ky * self.width.kernel + kx}, {row}_{self._place(column, kx)}, {value})"
        return value


def sweep(height: Axis, width: Axis, columns: Sequence[Dim], names: Names, epilogue: Epilogue) -> Sweep | None:
    """The form for bands with rows of so many pixels; None where a strip is better. Strips that overlap store pixels
    twice: what the epilogue reads must not be what is overwritten."""
    form = Sweep(height, width, epilogue.long, True, names)
    if not form.fits or epilogue.long:
        return None
    forms = [replace(form, columns=n) for n in range(COLUMNS, MAX_COLUMNS + 1) if n * form.begun <= MAX_CARRIED]
    known = [n for n in columns if isinstance(n, int)]
    if epilogue.reads:
        return next((f for f in reversed(forms) if all(D.mod(n, f.columns) == 0 for n in columns)), None)
    costs = {f: sum(-(-n // f.columns) for n in known or [USUAL]) * f.cost for f in forms}
    return min(costs, key=costs.__getitem__, default=None)
