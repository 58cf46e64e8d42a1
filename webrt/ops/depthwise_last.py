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
from webrt.ops.depthwise_strip import COLUMNS, Strip
from webrt.ops.loaders import epilogue4, in_fours, through_textures
from webrt.ops.vectors import Epilogue, in_turn
from webrt.ops.windows import Axis

TALL, LOW = 16, 4
"""Rows of a strip: on software adapters, which need few invocations, and on others."""


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
    strip = Strip(height, width, epilogue.long)
    tall, low, tile = (TALL, LOW, strip.fn) if strip.fits else (1, 1, _looped())
    tile_columns = D.ceildiv(width.out, COLUMNS)
    images, fours = x.known_shape[0], weights.shape[0] // 4
    params: dict[str, Dim | float] = {
        "images": images, "fours": fours, "tile_columns": tile_columns, "rows": height.out, "columns": width.out,
        "size_0": height.size, "size_1": width.size, "kernel_0": height.kernel, "kernel_1": width.kernel,
        "stride_0": height.stride, "stride_1": width.stride, "dilation_0": height.dilation,
        "dilation_1": width.dilation, "pad_0": height.before, "pad_1": width.before,
    }  # fmt: skip
    operands_in_fours = in_fours(epilogue)
    variant = Variant(
        "depthwise_last",
        grid(D.prod((images, D.ceildiv(height.out, tall), tile_columns, fours))),
        consts={"ROWS": tall, "COLUMNS": COLUMNS},
        fns=[epilogue4(epilogue), _STORE, tile],
        use=epilogue.use,
        vec={"x": 4, "w": 4, "out": 4, **dict.fromkeys(operands_in_fours, 4)},
    )
    groups = grid(D.prod((images, D.ceildiv(height.out, low), tile_columns, fours)))
    *software, other = through_textures(variant, ["x", "w", *operands_in_fours])
    other = replace(other, groups=groups, consts={"ROWS": low, "COLUMNS": COLUMNS})
    ordered = np.concatenate([weights.reshape(weights.shape[0], taps).T, bias.reshape(1, -1)])
    reads = {"x": x, "w": b.constant(ordered), **epilogue.reads}
    params |= epilogue.params
    b.launch(
        *software, other, reads=reads, writes={"out": out}, params=params, name="depthwise_last",
        sizes=(D.prod((images, height.out, width.out)), weights.shape[0], taps),
    )  # fmt: skip


_STORE = "fn store4(at: u32, v: vec4<f32>) { out[at] = epilogue4(v, at * 4u); }"


def _looped() -> str:
    """A row of pixels, tap by tap."""
    each = range(COLUMNS)
    load = "fours_x((line + u32(x{c})) * p.fours + four)"
    return "\n".join(
        [
            "fn tile(image: u32, row: u32, column: u32, four: u32) {",
            "let top = i32(row * p.stride_0 - p.pad_0); let left = i32(column * p.stride_1 - p.pad_1);",
            "let bias = fours_w(p.kernel_0 * p.kernel_1 * p.fours + four);",
            *(f"var a{c} = bias;" for c in each),
            "for (var tap = 0u; tap < p.kernel_0 * p.kernel_1; tap++) {",
            "let y = top + i32(tap / p.kernel_1 * p.dilation_0); let w = fours_w(tap * p.fours + four);",
            "let line = (image * p.size_0 + u32(y)) * p.size_1; let row_in = u32(y) < p.size_0;",
            *(f"let x{c} = left + i32(tap % p.kernel_1 * p.dilation_1 + {c}u * p.stride_1);" for c in each),
            *(f"a{c} += w * select(vec4<f32>(), {load.format(c=c)}, row_in && u32(x{c}) < p.size_1);" for c in each),
            "}",
            "let to = ((image * p.rows + row) * p.columns + column) * p.fours + four;",
            *in_turn([[f"a{c}"] for c in each], "if (column + c < p.columns) { store4(to + c * p.fours, a0); }", "c"),
            "}",
        ]
    )
