"""Conv of channels-last images: a block of output channels of 8 pixels in registers, four input channels at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import NotConstant, UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid, require
from webrt.ops.bands import Band, Names, bands
from webrt.ops.conv_quads import Quad, Text, by_quads, quad
from webrt.ops.conv_rows import DOTTED, by_rows
from webrt.ops.conv_shared import BLOCK, shared
from webrt.ops.conv_weights import packed_last
from webrt.ops.depthwise_last import depthwise_last
from webrt.ops.loaders import epilogue4, in_fours, through_textures
from webrt.ops.unfold import unfolded, unfolds
from webrt.ops.vectors import IDENTITY, Epilogue, in_turn
from webrt.ops.windows import Axis, check_fit, windows

PIXELS = 8
_ONE = Axis(1, 1, 1, 1, 0, 0, 1)


@dataclass(frozen=True)
class _Sum:
    """Taps and fours of input channels of a sum; whether an output's pixel is made of that pixel alone, and whether
    a part of a window may lie outside the image. `spread`: a pixel's channels are of several pixels of the output.
    `form`: how quads compute it."""

    taps: int
    fours: int
    point: bool
    outside: bool
    spread: bool
    form: Quad


@dataclass(frozen=True)
class _Tiles:
    """Per group: input channels, output channels, how many of those lie together in the output, and make a block."""

    groups: int
    channels: int
    outs: int
    together: int
    block: int

    @property
    def blocks(self) -> int:
        """Blocks in a group, the last one padded with zeros."""
        return -(-self.outs // self.block)

    @property
    def dotted(self) -> bool:
        """Whether weights lie together by input channels, since there are few output channels."""
        return self.outs <= DOTTED


def conv_last(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    """Writes a Conv whose x and output are [images, …, channels]; x may have more channels than the weights want.

    Raises UnsupportedOp or NotConstant for what only the general kernels take."""
    x, w, out = n.input(0), n.input(1), n.output()
    require(n.given(), T.F32)
    bias = _constant(n.input(2)) if n.has(2) else None
    weights, group = _constant(w), int(n.attr("group", 1))
    axes = windows(n, x.known_shape[1:-1], weights.shape[2:])
    check_fit(b, axes)
    axes = [a for a in axes if not a.trivial] or axes[-1:]
    outs, channels = int(weights.shape[0]), int(weights.shape[1])
    if len(axes) > 2:
        raise UnsupportedOp(f"a channels-last convolution over {len(axes)} axes")
    height, width = (*(_ONE for _ in range(2 - len(axes))), *axes)
    bias = np.zeros(outs, np.float32) if bias is None else bias
    if channels == 1 and group == outs and group > 1 and group % 4 == 0:
        depthwise_last(b, x, out, (weights, bias), (height, width), epilogue)
        return
    if group > 1 and (channels % 4 or outs // group % 4):
        raise UnsupportedOp(f"groups of {channels} and {outs // group} channels")
    if unfolds(channels, group, width.kernel):
        lines = weights.reshape(outs, channels, height.kernel, width.kernel)
        x, weights, width = unfolded(b, x, lines, height, width)
        channels = int(weights.shape[1])
    own = outs // group
    s = _Tiles(group, channels, own, own, _block(own))
    _launch(b, s, x, out, (weights, bias), (height, width), epilogue)


def spread_last(n: Node, b: Builder, axes: Sequence[Axis], epilogue: Epilogue = IDENTITY) -> None:
    """Writes a ConvTranspose of channels-last images whose windows do not overlap: each pixel becomes several.

    Raises UnsupportedOp or NotConstant for any other."""
    x, out = n.input(0), n.output()
    require(n.given(), T.F32)
    weights = _constant(n.input(1))
    channels, outs, *kernel = (int(d) for d in weights.shape)
    if not spreads(n, axes):
        raise UnsupportedOp("a transposed convolution whose windows overlap")
    bias = _constant(n.input(2)) if n.has(2) else np.zeros(outs, np.float32)
    taps = math.prod(kernel)
    rows = (
        np.moveaxis(weights.reshape(channels, outs, taps), 0, -1).transpose(1, 0, 2).reshape(taps * outs, channels, 1)
    )
    s = _Tiles(1, channels, taps * outs, outs, _block(taps * outs))
    tall, wide = (1, *kernel)[-2:]
    spread: dict[str, Dim] = {"own_outs": outs, "tall": tall, "wide": wide, "width": axes[-1].size}
    height, width = (*(_ONE for _ in range(2 - len(axes))), *axes)
    flat = (replace(height, kernel=1, stride=1, out=height.size), replace(width, kernel=1, stride=1, out=width.size))
    _launch(b, s, x, out, (rows, np.tile(bias, taps)), flat, epilogue, spread)


def spreads(n: Node, axes: Sequence[Axis]) -> bool:
    """Whether a ConvTranspose makes kernel-sized blocks of pixels side by side."""
    apart = all(a.kernel == a.stride and a.dilation == 1 and a.out == D.mul(a.size, a.kernel) for a in axes)
    return apart and len(axes) <= 2 and all(a.before == 0 for a in axes) and int(n.attr("group", 1)) == 1


def _constant(v: Value) -> np.ndarray[Any, Any]:
    if v.const is None:
        raise NotConstant(f"the weights {v.name!r} are not constant", roots=v.roots)
    return v.const


def _block(outs: int) -> int:
    """BLOCK output channels in a block, or fewer where that would waste more than a tenth."""
    if outs <= 4:
        return 4
    wide, narrow = -(-outs // BLOCK) * BLOCK, -(-outs // 8) * 8
    return BLOCK if wide * 10 <= narrow * 11 else 8


def _launch(
    b: Builder, s: _Tiles, x: Value, out: Value, operands: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    axes: tuple[Axis, Axis], epilogue: Epilogue, spread: Mapping[str, Dim] | None = None,
) -> None:  # fmt: skip
    """`spread`: a pixel's output channels are of `tall` × `wide` pixels of `own_outs` channels, `width` apart."""
    height, width = axes
    fours = -(-s.channels // 4)
    taps = height.kernel * width.kernel
    if taps * (fours + 1) > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution of {taps * s.channels} products in one sum")
    x, images = with_fours(b, x), x.known_shape[0]
    pointwise = all(a.kernel == 1 and a.stride == 1 and a.before == 0 and a.after == 0 for a in axes)
    if pointwise:
        pixels = D.prod((images, height.out, width.out))
        images, height, width = 1, _ONE, replace(width, size=pixels, out=pixels)
    params: dict[str, Dim | float] = {
        "blocks": s.groups * s.blocks, "size_0": height.size, "size_1": width.size, "kernel_1": width.kernel,
        "stride_0": height.stride, "stride_1": width.stride, "dilation_0": height.dilation,
        "dilation_1": width.dilation, "pad_0": height.before, "pad_1": width.before, "taps": taps, "fours": fours,
        "row_fours": fours * s.groups, "group_blocks": s.blocks, "outs": s.outs, "all": s.outs * s.groups,
        "tap_weights": fours * s.block, "weights": (taps * fours * 4 + 1) * s.block // 4,
    }  # fmt: skip
    params |= spread or {}
    padded = not (width.before == 0 and width.after == 0)
    outside = padded or not (height.before == 0 and height.after == 0)
    weights, place = b.constant(packed_last(*operands, s.groups, s.block, s.dotted)), _SPREAD if spread else _PLACE
    parts = list(bands(b, x, images, height, width))
    total = _Sum(taps, fours, pointwise, outside, bool(spread), quad(parts[0].pixel_count, s.outs))
    for band in parts:
        tile = _tile(s, pointwise, padded, epilogue.long, band.names)
        tiles = D.ceildiv(band.columns, PIXELS)
        sizes = {"images": band.images, "rows": band.rows, "columns": band.columns, "tiles": tiles}
        more = epilogue.reads if spread else band.operands(epilogue, out, s.outs * s.groups)
        b.launch(
            *_variants(s, band, [place, tile], width, total, epilogue), reads={"x": band.left, "w": weights, **more},
            writes={"out": out}, params={**sizes, **params, **band.params, **epilogue.params}, name="conv_last",
            sizes=(band.pixel_count, s.groups * s.outs, s.channels, taps),
        )  # fmt: skip


def _variants(
    s: _Tiles, band: Band, fns: Sequence[str], width: Axis, c: _Sum, epilogue: Epilogue
) -> tuple[Variant, ...]:
    """`fns`: `place` and `tile`."""
    whole = s.together % 4 == 0
    place, tile = fns
    fours = in_fours(epilogue) if whole else ()
    invocations = D.prod((band.images, band.rows, D.ceildiv(band.columns, PIXELS), s.groups * s.blocks))
    variant = Variant(
        "conv_last",
        grid(invocations),
        consts={"PIXELS": PIXELS},
        fns=[epilogue4(epilogue) if whole else epilogue.fn, place, _store(whole), tile],
        use=epilogue.use,
        vec={"x": 4, "w": 4, "out": 4 if whole else 1, **dict.fromkeys(fours, 4)},
    )
    names = ["x", "w", *fours]
    variants = through_textures(variant, names)
    of = (s.groups > 1, whole, c.spread, c.point, c.outside, c.fours == 1)
    text = Text(c.form, s.block, *of, band.names, epilogue)
    rows = () if c.spread else by_rows(variant, names, s.groups, s.outs, band, width, text)
    if s.dotted:
        return (*rows, *variants)
    quads = tuple(by_quads(variant, names, band.pixel_count, s.groups, s.outs, text))
    if c.taps > 1 and s.block == BLOCK:
        return (*shared(variant, names, band.pixel_count, s.groups, s.outs, band.names), *rows, *quads, *variants)
    return (*rows, *quads, *variants)


def with_fours(b: Builder, x: Value) -> Value:
    """x, or a copy whose last axis is padded with zeros to a multiple of 4."""
    *lead, channels = x.known_shape
    if D.mod(channels, 4) == 0:
        return x
    out = b.temp(T.F32, (*lead, D.mul(D.ceildiv(channels, 4), 4)))
    text = "let c = i % p.padded; return select(0.0, load_x(i / p.padded * p.own + min(c, p.own - 1u)), c < p.own);"
    params: dict[str, Dim | float] = {"padded": out.known_shape[-1], "own": channels}
    b.map(out, text, reads={"x": x}, params=params, name="pad_channels")
    return out


_PLACE = "fn place(pixel: u32, group: u32, o: u32) -> u32 { return pixel * p.all + group * p.outs + o; }"
_SPREAD = """fn place(pixel: u32, group: u32, o: u32) -> u32 {
  let tap = o / p.own_outs;
  let line = pixel / p.width * p.tall + tap / p.wide;
  return ((line * p.width + pixel % p.width) * p.wide + tap % p.wide) * p.own_outs + o % p.own_outs;
}"""


def _store(whole: bool) -> str:
    """`store4(pixel, group, o, v)`: output channels o … o+3 of a group; `place` is an element's index in the output."""
    head = "fn store4(pixel: u32, group: u32, o: u32, v: vec4<Out>) {"
    if whole:
        store = "if (o < p.outs) { let i = place(pixel, group, o); out[i >> 2u] = epilogue4(v, i); }"
        return f"{head} {store} }}"
    one = "if (o + {k}u < p.outs) {{ let i = place(pixel, group, o + {k}u); out[i] = epilogue(v.{c}, i); }}"
    return "\n".join([head, *(one.format(k=k, c=c) for k, c in enumerate("xyzw")), "}"])


def _tile(s: _Tiles, pointwise: bool, padded: bool, long: bool, of: Names) -> str:
    """`tile(image, row, column, block)`: PIXELS pixels of a block's fours of output channels, computed and stored;
    `long`: `store4` has a long text."""
    wide = s.block // 4
    lines = [
        f"fn tile({of.arguments}, block: u32) {{{of.head}",
        "let group = block / p.group_blocks;",
        f"let o = (block - group * p.group_blocks) * {4 * wide}u;",
        "let own = block * p.weights;",
        *(f"let bias{t} = fours_w(own + p.weights - {wide - t}u);" for t in range(wide)),
        *(f"var a{j}_{t} = bias{t};" for j in range(PIXELS) for t in range(wide)),
        *(_POINT if pointwise else _TAPS),
        *_steps(s, padded, "" if pointwise else "p.stride_1 * "),
        "" if pointwise else "}",
        f"let first = (image * {of.height} + row) * {of.width} + column;",
    ]
    stores = [f"store4(first + j, group, o + {4 * t}u, a0_{t});" for t in range(wide)]
    if long:
        values = [f"var v{t} = a0_{t};" for t in range(wide)]
        stores = [*values, *in_turn([[f"v{t}"] for t in range(wide)], "store4(first + j, group, o + 4u * t, v0);", "t")]
    pixel = "\n".join([f"if (column + j < {of.end_column}) {{", *stores, "}"])
    lines += in_turn([[f"a{j}_{t}" for t in range(wide)] for j in range(PIXELS)], pixel, "j")
    return "\n".join([*lines, "}"])


# `at` and `weight` count vec4s.
_POINT = ("var at = column * p.row_fours + group * p.fours; var weight = own;",)
_TAPS = (
    "let top = i32(row * p.stride_0 - p.pad_0); let left = i32(column * p.stride_1 - p.pad_1);",
    "var y = top - i32(p.dilation_0); var x = left; var across = p.kernel_1 - 1u;",
    "for (var tap = 0u; tap < p.taps; tap++) {",
    "across += 1u; let next = across == p.kernel_1; across = select(across, 0u, next);",
    "x = select(x + i32(p.dilation_1), left, next); y += select(0, i32(p.dilation_0), next);",
    "if (y < 0 || y >= i32(p.size_0)) { continue; }",
    "var at = u32((i32(image * p.size_0) + y) * i32(p.size_1) + x) * p.row_fours + group * p.fours;",
    "var weight = own + tap * p.tap_weights;",
)


def _steps(s: _Tiles, padded: bool, stride: str) -> list[str]:
    """The loop over fours of input channels of one tap."""
    wide = s.block // 4
    lines = [f"let step = {stride}p.row_fours;", "for (var four = 0u; four < p.fours; four++) {"]
    for j in range(PIXELS):
        load = f"fours_x(at + {j}u * step)"
        inside = f"u32(x + {j} * i32(p.stride_1)) < p.size_1"
        lines.append(f"let x{j} = {f'select(vec4<f32>(), {load}, {inside})' if padded else load};")
    for t in range(wide):
        columns = ", ".join(f"fours_w(weight + {k * wide + t}u)" for k in range(4))
        lines.append(f"let w{t} = mat4x4<f32>({columns});")
        lines += [f"a{j}_{t} += {f'x{j} * w{t}' if s.dotted else f'w{t} * x{j}'};" for j in range(PIXELS)]
    return [*lines, f"at += 1u; weight += {4 * wide}u;", "}"]
