"""Conv of channels-last images by quads: subgroups of four lanes that swap what they have loaded.

For SwiftShader, where a swap within a quad is one instruction, any other exchange costs as much as a dozen of products
and a load from a texture as much as fifty. In step s a lane works on what the lane with number lane ^ s has loaded, and
stores what it makes of it where that lane would have stored it: nothing needs to be moved back. Places are counted in
fours, parameters read once and results stored one by one, since SwiftShader shifts lane by lane, looks a parameter up
each time that the text mentions it, and merges every variable of a loop at each turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from webrt.dims import Dim
from webrt.launches import MAX_GROUPS, Variant, grid
from webrt.ops.bands import Names
from webrt.ops.conv_shared import window
from webrt.ops.loaders import MOST, epilogue4
from webrt.ops.product_variants import SOFTWARE, subgroups
from webrt.ops.quads import LANES, PLUS, SWAPS, held, hold
from webrt.ops.vectors import Epilogue

REQUIRES = subgroups(LANES, SOFTWARE)


@dataclass(frozen=True)
class Quad:
    """A tile of `pixels` by `vectors` fours of output channels in each lane. `across` of the four lanes have pixels in
    common and share what they load of x, the others have channels in common and share weights."""

    pixels: int
    vectors: int
    across: int

    @property
    def span(self) -> int:
        """Output channels of a quad."""
        return 4 * self.vectors * self.across

    @property
    def tile(self) -> int:
        """Pixels of a quad."""
        return self.pixels * LANES // self.across

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(first, count) of the fours of a lane of which each lane that has them too loads one."""
        found, at = [], 0
        while at < self.vectors:
            size = LANES // self.across
            while size > self.vectors - at:
                size //= 2
            found.append((at, size))
            at += size
        return found

    def cost(self, pixels: int, outs: int) -> int:
        """What so much output takes about, for each four of input channels: sums and loads, in 1/7 of a sum."""
        loads = self.pixels // self.across + 4 * len(self.parts)
        tiles = -(-pixels // self.tile) * -(-outs // self.span)
        return tiles * (7 * self.pixels * self.vectors + 10 * loads)


QUADS = (Quad(16, 1, 4), Quad(8, 3, 2), Quad(16, 1, 2), Quad(16, 1, 1))
"""Larger tiles gain a few hundredths and take twice as long to compile, or do not fit in what a core has for decoded
instructions."""


def quad(pixels: Dim, outs: int) -> Quad:
    """The form for an output of so many pixels and channels of a group."""
    known = pixels if isinstance(pixels, int) else 1 << 16
    return min(QUADS, key=lambda q: q.cost(known, outs))


@dataclass(frozen=True)
class Text:
    """What the text of a tile depends on: its form, the output channels that the weights have together, whether there
    are several groups, the output is written in fours, a pixel becomes several, the window is one pixel, parts of it
    may lie outside, and it has four channels."""

    form: Quad
    block: int
    grouped: bool
    whole: bool
    spread: bool
    point: bool
    padded: bool
    single: bool
    of: Names
    epilogue: Epilogue

    @property
    def straight(self) -> bool:
        """Whether sums are stored one by one."""
        return self.whole and not self.epilogue.use and not self.epilogue.long

    @property
    def fns(self) -> list[str]:
        """The tile and, where the output is written in fours, its epilogue with parameters that are read once."""
        if not self.whole:
            return [PLUS, "\n".join(self._tile([]))]
        names, fns = held([epilogue4(self.epilogue, by_fours=True)])
        store = "fn store(at: u32, v: vec4<Out>) { out[at] = epilogue4(v, at); }"
        return [*fns, PLUS, store, "\n".join(self._tile(names))]

    def _tile(self, names: Sequence[str]) -> Iterator[str]:
        """`tile(first, span, lane)`: the pixels from `first` on of one span of output channels, counted through all
        groups."""
        f, of, one = self.form, self.of, self.form.pixels // self.form.across
        yield "fn tile(first: u32, span_in: u32, lane: u32) {"
        yield "let count = p.images * p.rows * p.columns; let row_fours = p.row_fours;"
        yield "if (first < count) {"
        yield f"let base_pixel = {of.first}0u; let last = base_pixel + count - 1u;"
        yield f"let begin = base_pixel + first + lane / {f.across}u * {f.pixels}u; let outs = (p.outs + 3u) / 4u;"
        if self.grouped:
            yield f"let spans = (outs + {f.span // 4 - 1}u) / {f.span // 4}u; let group = span_in / spans;"
        else:
            yield "let group = 0u; let spans = 0u;"
        yield "let span = span_in - group * spans;"
        yield f"let fours = p.fours; let own = group * fours; let column = lane & {f.across - 1}u;"
        for r in range(one):
            yield f"let pixel{r} = min(begin + {r * f.across}u + column, last);"
            yield from [f"let at{r} = pixel{r} * row_fours + own;"] if self.point else window(r, of)
        yield from self._weights()
        yield from self._sums()
        yield hold(names)
        yield from self._stores()
        yield "}\n}"

    def _weights(self) -> Iterator[str]:
        """begin0, begin1, …: where the fours of each part that a lane loads begin; four0, four1, … that it computes."""
        f, four = self.form, self.block // 4
        yield "let weights = p.weights;"
        yield f"let base = span * {f.vectors * f.across}u + column; let other = lane / {f.across}u;"
        for j, (first, size) in enumerate(f.parts):
            yield f"let load{j} = min(base + ({first}u + (other & {size - 1}u)) * {f.across}u, outs - 1u);"
            yield f"let begin{j} = (group * p.group_blocks + load{j} / {four}u) * weights + load{j} % {four}u;"
            yield f"let own_bias{j} = fours_w(begin{j} + weights - {four}u);"
            for s in range(size):
                t = first + s
                yield f"let four{t} = min(base + ({first}u + ((other & {size - 1}u) ^ {s}u)) * {f.across}u, outs - 1u);"
                yield f"let bias{t} = {self._shared(f'own_bias{j}', s * f.across)};"
        yield from (f"var a{i}_{t} = bias{t};" for i in range(f.pixels) for t in range(f.vectors))

    def _shared(self, name: str, lanes: int) -> str:
        return SWAPS[lanes].format(name)

    def _sums(self) -> Iterator[str]:
        """The loops over taps and fours of input channels."""
        yield "var step = 0u;"
        if not self.point:
            yield "let size_0 = p.size_0; let size_1 = p.size_1; let wide = i32(size_1); let taps = p.taps;"
            yield "let kernel_1 = p.kernel_1; let dilation_0 = i32(p.dilation_0); let dilation_1 = i32(p.dilation_1);"
            yield "var down = 0; var across = 0; var tap_x = 0u;"
            yield "for (var tap = 0u; tap < taps; tap++) {"
            for r in range(self.form.pixels // self.form.across):
                yield f"let y{r} = top{r} + down; let x_{r} = left{r} + across;"
                if self.padded:
                    yield f"let in{r} = u32(y{r}) < size_0 && u32(x_{r}) < size_1;"
                yield f"let at{r} = u32((line{r} + y{r}) * wide + x_{r}) * row_fours + own;"
        yield "let four = 0u;" if self.single else "for (var four = 0u; four < fours; four++) {"
        yield from self._products()
        yield f"step += {self.block}u;"
        yield "" if self.single else "}"
        if not self.point:
            yield "tap_x += 1u; let next = tap_x == kernel_1; tap_x = select(tap_x, 0u, next);"
            yield "across = select(across + dilation_1, 0, next); down += select(0, dilation_0, next);\n}"

    def _products(self) -> Iterator[str]:
        f, four = self.form, self.block // 4
        for r in range(f.pixels // f.across):
            load = f"fours_x(at{r} + four)"
            padded = self.padded and not self.point
            yield f"let own{r} = {f'select(vec4<f32>(), {load}, in{r})' if padded else load};"
        for j, (first, size) in enumerate(f.parts):
            yield from (f"let c{j}_{k} = fours_w(begin{j} + step + {k * four}u);" for k in range(4))
            for s in range(size):
                yield from (f"let w{first + s}_{k} = {self._shared(f'c{j}_{k}', s * f.across)};" for k in range(4))
        for i in range(f.pixels):
            yield f"let x{i} = {self._shared(f'own{i // f.across}', i % f.across)};"
            for t in range(f.vectors):
                yield f"a{i}_{t} = plus(a{i}_{t}, x{i}, {', '.join(f'w{t}_{k}' for k in range(4))});"

    def _place(self, pixel: str) -> str:
        """Where a pixel is stored, in fours."""
        if self.spread:
            return f"{pixel} * cell + {pixel} / width * more"
        return f"{pixel} * all + start"

    def _parts(self) -> Iterator[str]:
        """part0, part1, …: how far from there fours of output channels are."""
        if not self.spread:
            yield "let all = p.all / 4u; let start = group * outs;"
            yield from (f"let part{t} = four{t};" for t in range(self.form.vectors))
            return
        yield "let own_outs = p.own_outs / 4u; let width = p.width; let wide = p.wide; let cell = wide * own_outs;"
        yield "let more = (p.tall - 1u) * width * cell;"
        for t in range(self.form.vectors):
            yield f"let tap{t} = four{t} / own_outs; let line{t} = tap{t} / wide * width * wide + tap{t} % wide;"
            yield f"let part{t} = line{t} * own_outs + four{t} % own_outs;"

    def _stores(self) -> Iterator[str]:
        """One by one, or, where formulas take long to compile, pixel by pixel in a loop."""
        f, pixel = self.form, "min(begin + (column ^ {}u), last)".format
        each = [(i, t) for i in range(f.pixels) for t in range(f.vectors)]
        yield from self._parts() if self.whole else ()
        if self.straight:
            for i in range(f.pixels):
                yield f"let pixel_{i} = {pixel(i)}; let to{i} = {self._place(f'pixel_{i}')};"
                yield from (f"store(to{i} + part{t}, a{i}_{t});" for t in range(f.vectors))
            return
        yield f"var sums: array<vec4<f32>, {len(each)}>;"
        yield from (f"sums[{n}] = a{i}_{t};" for n, (i, t) in enumerate(each))
        yield f"for (var i = 0u; i < {f.pixels}u; i++) {{ let pixel = min(begin + (column ^ i), last);"
        yield f"let to = {self._place('pixel')};" if self.whole else ""
        for t in range(f.vectors):
            v = f"sums[i * {f.vectors}u + {t}u]"
            yield f"store(to + part{t}, {v});" if self.whole else f"store4(pixel, group, 4u * four{t}, {v});"
        yield "}"


def by_quads(
    variant: Variant, names: Sequence[str], pixels: Dim, groups: int, outs: int, text: Text
) -> Iterator[Variant]:
    """The form of a `conv_last` variant whose functions are an epilogue, `place`, `store4` and its tile; it computes
    `outs` output channels in each of the groups. `names`: what it may read through textures. Spans that belong to the
    same pixels follow each other: they write what lies together."""
    form, spans = text.form, -(-outs // text.form.span) * groups
    if spans <= MAX_GROUPS:
        yield replace(
            variant,
            body="conv_quads",
            groups=(spans, *grid(pixels, form.tile)[:2]),
            consts={"PIXELS": form.tile, "LANES": LANES},
            fns=text.fns if text.whole else [*variant.fns[:-1], *text.fns],
            requires=REQUIRES,
            textures=dict.fromkeys(names[:MOST], "sampled"),
        )
