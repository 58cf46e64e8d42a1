"""Dispatches that take a large operand a band at a time, so that no copy of it in a texture is large.

On software adapters kernels read slots through textures, and a copy takes as many bytes as what it is of. There an
operand of more than BAND bytes is read by several dispatches: each computes the part of the output for which it needs
a window of the operand, and the windows are copied one after another into one texture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from webrt import dims as D
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import WINDOW_ALIGN, Builder, Operand, Window, static_bytes
from webrt.ops.loaders import in_fours
from webrt.ops.vectors import Epilogue
from webrt.ops.windows import Axis
from webrt.plan import ALIGN

BAND = 1 << 19
"""Bytes of an operand that are copied at a time, where that makes no more than MOST_BANDS."""
MOST_BANDS = 16
TILE = 16
"""Rows of a product and pixels of a line that a band has a multiple of: the largest tiles have so many."""

_Three: TypeAlias = tuple[int, int, int]
_Part: TypeAlias = tuple[_Three, _Three, tuple[int, int]]


@dataclass(frozen=True)
class Names:
    """What the text of a convolution's tile calls the numbers that depend on whether it computes a band: its arguments
    and what it says first; where the rows and columns that it computes end; the output's rows and columns, and the
    first pixel that is computed."""

    arguments: str = "image: u32, row: u32, column: u32"
    head: str = ""
    end_row: str = "p.rows"
    end_column: str = "p.columns"
    height: str = "p.rows"
    width: str = "p.columns"
    first: str = ""


WHOLE = Names()
BANDED = Names(
    "image_in: u32, row_in: u32, column_in: u32",
    "let image = p.first_image + image_in; let row = p.first_row + row_in; let column = p.first_column + column_in;",
    "(p.first_row + p.rows)",
    "(p.first_column + p.columns)",
    "p.out_0",
    "p.out_1",
    "(p.first_image * p.out_0 + p.first_row) * p.out_1 + p.first_column + ",
)


@dataclass(frozen=True)
class Band:
    """Consecutive pixels (rows) of an output of a convolution (product), and the operand that they are made of: so many
    `images` of so many `rows` and `columns`. `params` say where they begin, `pixels` are (first, count), where they are
    not all of the output's."""

    left: Operand
    rows: Dim
    columns: Dim = 1
    images: Dim = 1
    params: Mapping[str, Dim | float] = field(default_factory=dict)
    pixels: tuple[int, int] | None = None

    @property
    def names(self) -> Names:
        return BANDED if self.params else WHOLE

    @property
    def pixel_count(self) -> Dim:
        """How many pixels are computed."""
        return D.prod((self.images, self.rows, self.columns))

    def operands(self, epilogue: Epilogue, out: Value, channels: Dim) -> dict[str, Operand]:
        """What the epilogue of an output with so many channels reads: of operands that it reads as it writes the output
        what belongs to the band."""
        found: dict[str, Operand] = dict(epilogue.reads)
        if self.pixels is None or not isinstance(channels, int):
            return found
        first, count = self.pixels
        for k in in_fours(epilogue):
            v = epilogue.reads[k]
            if v.const is None and v.elements == out.elements:
                found[k] = _window(v, 4 * channels * first, 4 * channels * (first + count))
        return found


def bands(b: Builder, x: Value, images: Dim, height: Axis, width: Axis) -> Iterator[Band]:
    """The bands of a convolution of x, [images, height.size, width.size, fours of f32 channels]: one where sizes are
    free or x is not large, else images, rows of an image, or columns of one that has a single row."""
    sizes = _known(images, height.size, width.size, height.out, width.out, height.before, width.before)
    most = _most(b, x)
    found = list(_parts(sizes, (static_bytes(x) or 0) // sizes[0], most, height, width)) if most and sizes else []
    if len(found) < 2:
        yield Band(x, height.out, width.out, images)
        return
    rows, columns = sizes[3:5]
    for (image, row, column), (n, tall, wide), (first, last) in found:
        begin = {"out_0": rows, "out_1": columns, "first_image": image, "first_row": row, "first_column": column}
        pixels = (image * rows + row) * columns + column, n * tall * wide
        yield Band(_window(x, first, last), tall, wide, n, begin, pixels)


def _parts(sizes: Sequence[int], image: int, most: int, height: Axis, width: Axis) -> Iterator[_Part]:
    """(first image, row and column), (images, rows, columns) and (first, last byte) of parts that need `most` bytes or,
    where neighbours would share more than half of them, more; `image` is the bytes of one."""
    count, tall, wide, rows, columns, above, left = sizes
    if image <= most:
        for i, n in _split(count, most // image):
            yield (i, 0, 0), (n, rows, columns), (i * image, (i + n) * image)
        return
    axis, out, size, before = (height, rows, tall, above) if rows > 1 else (width, columns, wide, left)
    step = image // size
    fit = max((most // step - axis.reach) // axis.stride + 1, -(-(axis.reach - axis.stride) // axis.stride))
    for i in range(count):
        for at, n in _split(out, fit, 1 if rows > 1 else TILE):
            first = min(max(at * axis.stride - before, 0), size - 1)
            last = max(min((at + n - 1) * axis.stride - before + axis.reach, size), first + 1)
            place, shape = ((i, at, 0), (1, n, columns)) if rows > 1 else ((i, 0, at), (1, 1, n))
            yield place, shape, (i * image + first * step, i * image + last * step)


def row_bands(b: Builder, left: Value, rows: Dim, row: int | None) -> Iterator[Band]:
    """The bands of a product with `rows` of `row` bytes each (None: that is not known); one where they are read
    whole."""
    most = _most(b, left)
    if not most or not row or not isinstance(rows, int):
        yield Band(left, rows)
        return
    for first, n in _split(rows, most // row, TILE):
        yield Band(_window(left, first * row, (first + n) * row), n, 1, 1, {"first_row": first}, (first, n))


def _most(b: Builder, x: Value) -> int:
    """The bytes of a band of x; 0 where it is read whole."""
    total = static_bytes(x)
    if b.target.kind != "software" or x.const is not None or total is None:
        return 0
    most = max(BAND, total // MOST_BANDS)
    return most if total > most else 0


def _known(*sizes: Dim) -> list[int]:
    """The sizes; none where one is free."""
    found = [s for s in sizes if isinstance(s, int)]
    return found if len(found) == len(sizes) else []


def _split(count: int, most: int, unit: int = 1) -> list[tuple[int, int]]:
    """(first, count) of parts of at most `most`, as equal as whole units allow; one unit at least in each."""
    units = -(-count // unit)
    parts = max(1, -(-units // max(1, most // unit)))
    ends = [min(units * i // parts * unit, count) for i in range(parts + 1)]
    return [(a, z - a) for a, z in pairwise(ends)]


def _window(v: Value, first: int, last: int) -> Window:
    """Bytes of a value that include those from `first` to `last`."""
    start = first // WINDOW_ALIGN * WINDOW_ALIGN
    return Window(v, start, min(-(-last // ALIGN) * ALIGN, static_bytes(v) or 0) - start, by_whole=True)
