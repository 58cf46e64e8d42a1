"""Conv of channels-last images by runs of a row: what is loaded of it serves several taps of several pixels.

For software adapters, where a load costs as much as dozens of products. A lane computes pixels of one row, and of the
row of the input that a row of the kernel meets it loads each pixel that it needs once for a few taps, all of which are
in the text. On SwiftShader the lanes of a quad work on the same output channels and swap their weights. Of up to
DOTTED output channels each sum is a vec4 of four input channels' sums, which are added up at last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from webrt import dims as D
from webrt.dims import Dim
from webrt.lowering import Variant, grid
from webrt.ops.bands import Band
from webrt.ops.conv_quads import Text
from webrt.ops.loaders import MOST, epilogue4, in_fours
from webrt.ops.product_variants import LLVMPIPE, SOFTWARE, subgroups
from webrt.ops.quads import LANES, PLUS, SWAPS, held, hold
from webrt.ops.windows import Axis

REQUIRES = subgroups(LANES, SOFTWARE)
DOTTED = 2
RUNS = ((DOTTED, 8, 8, 1), (4, 8, 5, 2), (8, 4, 5, 3))
"""(output channels, pixels, taps at most and at least): up to so many channels, runs of so many pixels, and of which
numbers of taps that the kernel's row is made of. More text than that does not fit in what a core has for decoded
instructions."""


@dataclass(frozen=True)
class Run:
    """`pixels` of a row times `vectors` fours of output channels in a lane, `taps` of a row of the kernel in a turn;
    `dots` > 0: so many output channels instead. Neighbours of the pixels are `apart`, and their windows begin `step`
    elements of the kernel's row apart."""

    pixels: int
    vectors: int
    taps: int
    dots: int = 0
    apart: int = 1
    step: int = 1

    @property
    def places(self) -> list[int]:
        """What a turn loads of a row, in elements of the kernel's row."""
        return sorted({i * self.step + t for i in range(self.pixels) for t in range(self.taps)})

    @property
    def span(self) -> int:
        """Output channels of a lane."""
        return self.dots or 4 * self.vectors


def run_of(outs: int, columns: Dim, width: Axis) -> Run | None:
    """The form for so many output channels of a group and pixels of a row; None where runs do not pay."""
    apart = width.dilation // gcd(width.stride, width.dilation)
    step = width.stride // gcd(width.stride, width.dilation)
    for most, pixels, at_most, at_least in RUNS:
        if outs > most:
            continue
        taps = max(t for t in range(1, at_most + 1) if width.kernel % t == 0)
        if outs <= DOTTED:
            pixels *= 2 if taps == 1 else 1
            while isinstance(columns, int) and columns < pixels:
                pixels //= 2
            return Run(pixels, 0, taps, outs, apart, step)
        filled = not isinstance(columns, int) or -(-columns // (pixels * apart)) * pixels * apart * 4 <= columns * 5
        pays = taps >= at_least and step < taps and filled
        return Run(pixels, -(-outs // 4), taps, 0, apart, step) if pays else None
    return None


@dataclass(frozen=True)
class _Tile:
    """The text of a tile for a run. `whole`: the output is written in fours; `full`: every row has at least the pixels
    of a run, so that the last ones overlap."""

    run: Run
    text: Text
    whole: bool
    full: bool

    @property
    def fns(self) -> list[str]:
        """The tile and, where the output is written in fours, its epilogue with parameters that are read once."""
        plus = [] if self.run.dots else [PLUS]
        if not self.whole:
            return [*plus, "\n".join(self._tile([]))]
        names, fns = held([epilogue4(self.text.epilogue, by_fours=True)])
        store = "fn store(at: u32, v: vec4<Out>) { out[at] = epilogue4(v, at); }"
        return [*fns, *plus, store, "\n".join(self._tile(names))]

    def _tile(self, names: Sequence[str]) -> Iterator[str]:
        """`tile(image, row, column, span, group, lane)`: pixels from `column` on of a span of output channels."""
        r, of = self.run, self.text.of
        yield "const ALL = 0xffffffffu;"
        arguments = of.arguments.replace("column", "from_column") if self.full else of.arguments
        yield f"fn tile({arguments}, span: u32, group: u32, lane: u32) {{"
        if self.full:
            relative = "_in" if of.first else ""
            yield f"let column{relative} = min(from_column{relative}, p.columns - {r.pixels}u);"
        yield of.head
        yield "let row_fours = p.row_fours; let fours = p.fours; let tap_weights = p.tap_weights;"
        yield "let size_0 = p.size_0; let size_1 = p.size_1; let taps = p.taps; let kernel_1 = p.kernel_1;"
        yield "let dilation_0 = i32(p.dilation_0); let dilation_1 = i32(p.dilation_1);"
        yield "let hop = p.dilation_1 * row_fours;"
        yield "let left = i32(column * p.stride_1 - p.pad_1); let top = i32(row * p.stride_0 - p.pad_0);"
        yield "let line = i32(image * size_0) + top; let own = group * fours;"
        yield from self._weights()
        yield from self._sums()
        yield hold(names)
        yield f"let first = (image * {of.height} + row) * {of.width} + column;"
        yield from self._dots() if r.dots else self._stores()
        yield "}"

    def _weights(self) -> Iterator[str]:
        """begin: where the weights that a lane loads begin; four0, four1, … the fours that it computes."""
        r, four = self.run, self.text.block // 4
        yield "let weights = p.weights; let outs = (p.outs + 3u) / 4u;"
        if r.dots:
            yield "let begin = group * p.group_blocks * weights; let bias = fours_w(begin + weights - 1u);"
            yield from (f"var a{i}_{t} = vec4<f32>();" for i in range(r.pixels) for t in range(r.dots))
            return
        yield f"let base = span * {r.vectors}u; let column_of = lane & {r.vectors - 1}u;"
        yield "let load = min(base + column_of, outs - 1u);"
        yield f"let begin = (group * p.group_blocks + load / {four}u) * weights + load % {four}u;"
        yield f"let own_bias = fours_w(begin + weights - {four}u);"
        for t in range(r.vectors):
            yield f"let four{t} = min(base + (column_of ^ {t}u), outs - 1u);"
            yield f"let bias{t} = {SWAPS[t].format('own_bias')};"
        yield from (f"var a{i}_{t} = bias{t};" for i in range(r.pixels) for t in range(r.vectors))

    def _sums(self) -> Iterator[str]:
        """The loops over taps and fours of input channels."""
        r = self.run
        yield "var down = 0; var tap_x = 0u; var weight = begin;"
        yield f"for (var tap = 0u; tap < taps; tap += {r.taps}u) {{"
        yield "let x = left + i32(tap_x) * dilation_1;"
        if self.text.padded:
            yield "let row_in = u32(top + down) < size_0;"
            for m in r.places:
                yield f"let in{m} = vec4<u32>(select(0u, ALL, row_in && u32(x + {m} * dilation_1) < size_1));"
        yield "let start = u32((line + down) * i32(size_1) + x) * row_fours + own;"
        yield "let four = 0u;" if self.text.single else "for (var four = 0u; four < fours; four++) {"
        yield from self._products()
        yield f"weight += {self.text.block}u;"
        yield "" if self.text.single else "}"
        if r.taps > 1:
            yield f"weight += {r.taps - 1}u * tap_weights;"
        yield f"tap_x += {r.taps}u; let next = tap_x == kernel_1; tap_x = select(tap_x, 0u, next);"
        yield "down += select(0, dilation_0, next);\n}"

    def _products(self) -> Iterator[str]:
        """Those of four input channels at the taps of a turn."""
        r, four = self.run, self.text.block // 4
        yield "let at = start + four;"
        for m in r.places:
            load = f"fours_x(at + {m}u * hop)"
            inside = f"bitcast<vec4<f32>>(bitcast<vec4<u32>>({load}) & in{m})"
            yield f"let x{m} = {inside if self.text.padded else load};"
        for t in range(r.taps):
            yield f"let w{t} = weight + {t}u * tap_weights;"
            if r.dots:
                yield from (f"let w{t}_{v} = fours_w(w{t} + {v}u);" for v in range(r.dots))
                yield from (
                    f"a{i}_{v} += x{i * r.step + t} * w{t}_{v};" for i in range(r.pixels) for v in range(r.dots)
                )
                continue
            yield from (f"let c{t}_{k} = fours_w(w{t} + {k * four}u);" for k in range(4))
            for v in range(r.vectors):
                yield from (f"let w{t}_{v}_{k} = {SWAPS[v].format(f'c{t}_{k}')};" for k in range(4))
            for i in range(r.pixels):
                for v in range(r.vectors):
                    columns = ", ".join(f"w{t}_{v}_{k}" for k in range(4))
                    yield f"a{i}_{v} = plus(a{i}_{v}, x{i * r.step + t}, {columns});"

    def _stores(self) -> Iterator[str]:
        """One by one, or, where formulas take long to compile, pixel by pixel in a loop."""
        r = self.run
        each = [(i, t) for i in range(r.pixels) for t in range(r.vectors)]
        yield "let all = p.all / 4u; let start_out = group * outs;" if self.whole else ""
        if self.text.straight:
            for i in range(r.pixels):
                stores = " ".join(f"store(to + four{t}, a{i}_{t});" for t in range(r.vectors))
                yield self._guard(f"{i * r.apart}u", f"let to = (first + {i * r.apart}u) * all + start_out; {stores}")
            return
        yield f"var sums: array<vec4<f32>, {len(each)}>;"
        yield from (f"sums[{n}] = a{i}_{t};" for n, (i, t) in enumerate(each))
        yield f"for (var i = 0u; i < {r.pixels}u; i++) {{ let pixel = first + i * {r.apart}u;"
        values = [f"sums[i * {r.vectors}u + {t}u]" for t in range(r.vectors)]
        if self.whole:
            stores = " ".join(f"store(to + four{t}, {v});" for t, v in enumerate(values))
            yield self._guard(f"i * {r.apart}u", f"let to = pixel * all + start_out; {stores}")
        else:
            stores = " ".join(f"store4(pixel, group, 4u * four{t}, {v});" for t, v in enumerate(values))
            yield self._guard(f"i * {r.apart}u", stores)
        yield "}"

    def _dots(self) -> Iterator[str]:
        """Single elements, or of one output channel four pixels at a time."""
        r = self.run
        total = [[f"dot(a{i}_{t}, vec4<f32>(1.0)) + bias.{'xyz'[t]}" for t in range(r.dots)] for i in range(r.pixels)]
        if self.whole:
            for i in range(0, r.pixels, 4):
                yield f"store(first / 4u + {i // 4}u, vec4<f32>({', '.join(t[0] for t in total[i : i + 4])}));"
            return
        yield f"var sums: array<f32, {r.pixels * r.dots}>;"
        yield from (f"sums[{i * r.dots + t}] = {v};" for i, row in enumerate(total) for t, v in enumerate(row))
        yield f"for (var i = 0u; i < {r.pixels}u; i++) {{ let to = place(first + i * {r.apart}u, group, 0u);"
        stores = " ".join(f"out[to + {t}u] = epilogue(sums[i * {r.dots}u + {t}u], to + {t}u);" for t in range(r.dots))
        yield self._guard(f"i * {r.apart}u", stores)
        yield "}"

    def _guard(self, further: str, text: str) -> str:
        """The statements for the pixel `further` on, if there is one."""
        return f"{{ {text} }}" if self.full else f"if (column + {further} < {self.text.of.end_column}) {{ {text} }}"


def by_rows(
    variant: Variant, names: Sequence[str], groups: int, outs: int, band: Band, width: Axis, text: Text
) -> tuple[Variant, ...]:
    """The forms of a `conv_last` variant whose functions are an epilogue, `place`, `store4` and its tile; none where
    runs do not pay. It computes `outs` output channels in each of the groups. `names`: what it may read through
    textures."""
    run = run_of(outs, band.columns, width)
    if run is None:
        return ()
    full = run.apart == 1 and isinstance(band.columns, int) and band.columns >= run.pixels
    by_four = full and all(D.mod(d, 4) == 0 for d in (run.pixels, band.columns, width.out))
    whole = by_four and outs == 1 if run.dots else text.whole
    fours = in_fours(text.epilogue) if whole else ()
    tile = _Tile(run, text, whole, full)
    tiles = D.prod((band.images, band.rows, D.ceildiv(band.columns, run.pixels * run.apart), run.apart))
    return tuple(
        replace(
            variant,
            body="conv_rows",
            groups=grid(D.prod((D.ceildiv(tiles, lanes), -(-outs // run.span), groups)), 1),
            consts={"PIXELS": run.pixels, "APART": run.apart, "SPAN": run.span, "LANES": lanes},
            fns=tile.fns if whole else [*variant.fns[:-1], *tile.fns],
            vec={"x": 4, "w": 4, "out": 4 if whole else 1, **dict.fromkeys(fours, 4)},
            requires=requires,
            textures=dict.fromkeys([*names[:2], *fours][:MOST], loader),
        )
        for lanes, loader, requires in (_DOTS if run.dots else _SHARED)
    )


_DOTS: tuple[tuple[int, str, dict[str, Any]], ...] = ((8, "storage", LLVMPIPE), (LANES, "sampled", SOFTWARE))
_SHARED: tuple[tuple[int, str, dict[str, Any]], ...] = ((LANES, "sampled", REQUIRES),)
