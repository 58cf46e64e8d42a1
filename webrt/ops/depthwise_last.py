"""Depthwise convolutions of channels-last images: strips of pixels of four channels; large kernels tap by tap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid
from webrt.ops.bands import Band, Names, bands
from webrt.ops.depthwise_strip import COLUMNS, Strip
from webrt.ops.depthwise_sweep import Sweep, sweep
from webrt.ops.loaders import MOST, epilogue4, in_fours, through_textures
from webrt.ops.product_variants import SOFTWARE, subgroups
from webrt.ops.quads import LANES
from webrt.ops.vectors import Epilogue, in_turn
from webrt.ops.windows import Axis

TALL, LOW = 16, 4
"""Rows of a strip: on software adapters, which need few invocations, and on others."""
REQUIRES = subgroups(LANES, SOFTWARE)
"""What SwiftShader has and other adapters have not."""


def depthwise_last(
    b: Builder, x: Value, out: Value, operands: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    axes: tuple[Axis, Axis], epilogue: Epilogue,
) -> None:  # fmt: skip
    """x [images, …, channels] with weights [channels, 1, …] and biases to out; channels are a multiple of 4.

    Raises UnsupportedOp for more taps than an invocation may loop over."""
    weights, bias = operands
    height, width = axes
    taps = height.kernel * width.kernel
    if taps > MAX_ITERATIONS:
        raise UnsupportedOp(f"a convolution with {taps} taps in one sum")
    channels = weights.shape[0]
    ordered = b.constant(np.concatenate([weights.reshape(channels, taps).T, bias.reshape(1, -1)]))
    params: dict[str, Dim | float] = {
        "size_0": height.size, "size_1": width.size, "kernel_0": height.kernel, "kernel_1": width.kernel,
        "stride_0": height.stride, "stride_1": width.stride, "dilation_0": height.dilation,
        "dilation_1": width.dilation, "pad_0": height.before, "pad_1": width.before,
    }  # fmt: skip
    found = list(bands(b, x, x.known_shape[0], height, width))
    form = sweep(height, width, [band.columns for band in found], found[0].names, epilogue)
    for band in found:
        sizes: dict[str, Dim | float] = {
            "images": band.images, "fours": channels // 4, "rows": band.rows, "columns": band.columns,
        }  # fmt: skip
        strip = Strip(height, width, epilogue.long, D.mod(band.columns, COLUMNS) == 0, band.names)
        b.launch(
            *_variants(band, channels // 4, strip, form, epilogue),
            reads={"x": band.left, "w": ordered, **band.operands(epilogue, out, channels)}, writes={"out": out},
            params={**sizes, **params, **band.params, **epilogue.params}, name="depthwise_last",
            sizes=(D.prod((band.images, band.rows, band.columns)), channels, taps),
        )  # fmt: skip


def _variants(band: Band, fours: int, strip: Strip, form: Sweep | None, epilogue: Epilogue) -> list[Variant]:
    tall, low, tile = (TALL, LOW, strip.fn) if strip.fits else (1, 1, _looped(band.names))
    in_a_row = D.prod((D.ceildiv(band.columns, COLUMNS), fours))
    operands = in_fours(epilogue)
    variant = Variant(
        "depthwise_last",
        grid(D.prod((band.images, D.ceildiv(band.rows, tall), in_a_row))),
        consts={"ROWS": tall, "COLUMNS": COLUMNS},
        fns=[epilogue4(epilogue), _STORE, tile],
        use=epilogue.use,
        vec={"x": 4, "w": 4, "out": 4, **dict.fromkeys(operands, 4)},
    )
    groups = grid(D.prod((band.images, D.ceildiv(band.rows, low), in_a_row)))
    *software, other = through_textures(variant, ["x", "w", *operands])
    quick = [] if form is None else [_swept(variant, band, fours, form, ["x", "w", *operands])]
    return [*quick, *software, replace(other, groups=groups, consts={"ROWS": low, "COLUMNS": COLUMNS})]


def _swept(variant: Variant, band: Band, fours: int, form: Sweep, names: list[str]) -> Variant:
    """The form for SwiftShader of a variant whose last function is its tile."""
    in_a_row = D.prod((D.ceildiv(band.columns, form.columns), fours))
    return replace(
        variant,
        groups=grid(D.prod((band.images, D.ceildiv(band.rows, TALL), in_a_row))),
        consts={"ROWS": TALL, "COLUMNS": form.columns},
        fns=[*variant.fns[:-1], form.fn],
        textures=dict.fromkeys(names[:MOST], "sampled"),
        requires=REQUIRES,
    )


_STORE = "fn store4(at: u32, v: vec4<f32>) { out[at] = epilogue4(v, at * 4u); }"


def _looped(of: Names) -> str:
    """A row of pixels, tap by tap."""
    each = range(COLUMNS)
    load = "fours_x((line + u32(x{c})) * p.fours + four)"
    return "\n".join(
        [
            f"fn tile({of.arguments}, four: u32) {{{of.head}",
            "let top = i32(row * p.stride_0 - p.pad_0); let left = i32(column * p.stride_1 - p.pad_1);",
            "let bias = fours_w(p.kernel_0 * p.kernel_1 * p.fours + four);",
            *(f"var a{c} = bias;" for c in each),
            "for (var tap = 0u; tap < p.kernel_0 * p.kernel_1; tap++) {",
            "let y = top + i32(tap / p.kernel_1 * p.dilation_0); let w = fours_w(tap * p.fours + four);",
            "let line = (image * p.size_0 + u32(y)) * p.size_1; let row_in = u32(y) < p.size_0;",
            *(f"let x{c} = left + i32(tap % p.kernel_1 * p.dilation_1 + {c}u * p.stride_1);" for c in each),
            *(f"a{c} += w * select(vec4<f32>(), {load.format(c=c)}, row_in && u32(x{c}) < p.size_1);" for c in each),
            "}",
            f"let to = ((image * {of.height} + row) * {of.width} + column) * p.fours + four;",
            *in_turn(
                [[f"a{c}"] for c in each], f"if (column + c < {of.end_column}) {{ store4(to + c * p.fours, a0); }}", "c"
            ),
            "}",
        ]
    )
