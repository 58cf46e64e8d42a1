"""Conv of channels-last images by subgroups that share the pixels they load: the form of a matrix product's tiles.

A load costs a software adapter as much as dozens of multiplications, a value from another lane's registers a few.
Pixels are taken in the order in which they are stored, whatever the image's width, so that no tile is short but the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from webrt import dims as D
from webrt.dims import Dim
from webrt.lowering import Variant, grid
from webrt.ops.bands import Names
from webrt.ops.loaders import MOST
from webrt.ops.product_variants import LLVMPIPE, subgroups
from webrt.ops.vectors import in_turn

BLOCK = 16
"""Output channels that the weights have together."""


@dataclass(frozen=True)
class Form:
    """A tile of `pixels` by `vectors` fours of output channels in each of `lanes` invocations."""

    pixels: int
    vectors: int
    lanes: int
    loader: str
    requires: Mapping[str, Any] = field(default_factory=dict)

    @property
    def span(self) -> int:
        """Output channels of a subgroup."""
        return 4 * self.vectors * self.lanes

    def fits(self, outs: int) -> bool:
        """Whether at most a tenth of the work is for output channels that are none."""
        return -(-outs // self.span) * self.span * 10 <= -(-outs // BLOCK) * BLOCK * 11


FORMS = (
    Form(16, 2, 8, "storage", subgroups(8, LLVMPIPE)),
    Form(16, 1, 8, "storage", subgroups(8, LLVMPIPE)),
)
"""In order of preference."""


def shared(variant: Variant, names: Sequence[str], pixels: Dim, groups: int, outs: int, of: Names) -> Iterator[Variant]:
    """The forms of a `conv_last` variant whose last function is its tile; it computes `outs` output channels in each of
    the groups. `names`: what it may read through textures."""
    for form in FORMS:
        if form.fits(outs):
            spans = D.prod((D.ceildiv(pixels, form.pixels), -(-outs // form.span), groups))
            yield replace(
                variant,
                body="conv_shared",
                groups=grid(spans, 1),
                consts={"PIXELS": form.pixels, "SPAN": form.span, "LANES": form.lanes},
                fns=[*variant.fns[:-1], "\n".join(_tile(form, of))],
                requires=form.requires,
                textures=dict.fromkeys(names[:MOST], form.loader),
            )


def window(r: int, of: Names) -> Iterator[str]:
    """Where the window of output pixel{r} begins: left{r} and top{r} in an image whose first line is line{r}."""
    yield f"let row{r} = pixel{r} / {of.width}; let image{r} = row{r} / {of.height};"
    yield f"let left{r} = i32((pixel{r} - row{r} * {of.width}) * p.stride_1 - p.pad_1);"
    yield f"let line{r} = i32(image{r} * p.size_0);"
    yield f"let top{r} = i32((row{r} - image{r} * {of.height}) * p.stride_0 - p.pad_0);"


def _tile(form: Form, of: Names) -> Iterator[str]:
    """`tile(first, span, group, lane)`: the pixels from `first` on, of an invocation the fours of output channels from
    four + lane on, `lanes` apart."""
    each = [(i, t) for i in range(form.pixels) for t in range(form.vectors)]
    loads = range(-(-form.pixels // form.lanes))
    yield f"fn tile({'first_in' if of.first else 'first'}: u32, span: u32, group: u32, lane: u32) {{"
    yield f"let pixels = {of.first}p.images * p.rows * p.columns; let own = group * p.fours;"
    if of.first:
        yield f"let first = {of.first}first_in;"
    for r in loads:
        yield f"let pixel{r} = min(first + {r * form.lanes}u + lane, pixels - 1u);"
        yield from window(r, of)
    yield f"let o = (span * {form.vectors * form.lanes}u + lane) * 4u;"
    for t in range(form.vectors):
        yield f"let block{t} = min((o + {4 * t * form.lanes}u) / {BLOCK}u, p.group_blocks - 1u);"
        yield f"let w{t} = (group * p.group_blocks + block{t}) * p.weights + o / 4u % {BLOCK // 4}u;"
        yield f"let bias{t} = fours_w(w{t} + p.weights - {BLOCK // 4}u);"
    yield from (f"var a{i}_{t} = bias{t};" for i, t in each)
    yield "var down = 0; var across = 0; var tap_x = 0u; var step = 0u;"
    yield "for (var tap = 0u; tap < p.taps; tap++) {"
    for r in loads:
        yield f"let y{r} = top{r} + down; let x{r} = left{r} + across;"
        yield f"let in{r} = u32(y{r}) < p.size_0 && u32(x{r}) < p.size_1;"
        yield f"let at{r} = u32((line{r} + y{r}) * i32(p.size_1) + x{r}) * p.row_fours + own;"
    yield "for (var four = 0u; four < p.fours; four++) {"
    yield from _fours(form, loads)
    yield f"step += {BLOCK}u;\n}}"
    yield "tap_x += 1u; let next = tap_x == p.kernel_1; tap_x = select(tap_x, 0u, next);"
    yield "across = select(across + i32(p.dilation_1), 0, next); down += select(0, i32(p.dilation_0), next);\n}"
    pixel, out = f"first + i / {form.vectors}u", f"o + i % {form.vectors}u * {4 * form.lanes}u"
    store = f"if ({pixel} < pixels) {{ store4({pixel}, group, {out}, a0_0); }}"
    yield from in_turn([[f"a{i}_{t}"] for i, t in each], store, "i")
    yield "}"


def _fours(form: Form, loads: range) -> Iterator[str]:
    """The products of four input channels at one tap."""
    yield from (f"let own{r} = select(vec4<f32>(), fours_x(at{r} + four), in{r});" for r in loads)
    for i in range(form.pixels):
        yield f"let p{i} = subgroupBroadcast(own{i // form.lanes}, {i % form.lanes}u);"
    for t in range(form.vectors):
        columns = ", ".join(f"fours_w(w{t} + step + {k * BLOCK // 4}u)" for k in range(4))
        yield f"let m{t} = mat4x4<f32>({columns});"
        yield from (f"a{i}_{t} += m{t} * p{i};" for i in range(form.pixels))
