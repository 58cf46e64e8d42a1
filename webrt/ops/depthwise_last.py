"""Depthwise convolutions of channels-last images: tiles of pixels of four channels, unrolled over small kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Value
from webrt.lowering import MAX_ITERATIONS, Builder, Variant, grid
from webrt.ops.loaders import epilogue4, in_fours, through_textures
from webrt.ops.vectors import Epilogue, in_turn
from webrt.ops.windows import Axis

MAX_UNROLLED = 25


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
    small = taps <= MAX_UNROLLED
    tile_rows, tile_columns = (2, 4) if small else (1, 4)
    counts = (D.ceildiv(height.out, tile_rows), D.ceildiv(width.out, tile_columns))
    images, fours = x.known_shape[0], weights.shape[0] // 4
    params: dict[str, Dim | float] = {
        "images": images, "fours": fours, "tile_rows": counts[0], "tile_columns": counts[1], "rows": height.out,
        "columns": width.out, "size_0": height.size, "size_1": width.size, "kernel_0": height.kernel,
        "kernel_1": width.kernel, "stride_0": height.stride, "stride_1": width.stride, "dilation_0": height.dilation,
        "dilation_1": width.dilation, "pad_0": height.before, "pad_1": width.before,
    }  # fmt: skip
    tile = _unrolled(height, width, tile_rows, tile_columns) if small else _looped(tile_columns)
    operands_in_fours = in_fours(epilogue)
    variant = Variant(
        "depthwise_last",
        grid(D.prod((images, *counts, fours))),
        consts={"ROWS": tile_rows, "COLUMNS": tile_columns},
        fns=[epilogue4(epilogue), _PIXEL, _STORE, tile],
        use=epilogue.use,
        vec={"x": 4, "w": 4, "out": 4, **dict.fromkeys(operands_in_fours, 4)},
    )
    ordered = np.concatenate([weights.reshape(weights.shape[0], taps).T, bias.reshape(1, -1)])
    reads = {"x": x, "w": b.constant(ordered), **epilogue.reads}
    variants = through_textures(variant, ["x", "w", *operands_in_fours])
    words = {**params, **epilogue.params}
    b.launch(*variants, reads=reads, writes={"out": out}, params=words, name="depthwise_last")


_PIXEL = """fn pixel(line: u32, x: i32, row: bool, four: u32) -> vec4<f32> {
  return select(vec4<f32>(), fours_x((line + u32(x)) * p.fours + four), row && u32(x) < p.size_1);
}"""
_STORE = """fn store4(image: u32, row: u32, column: u32, four: u32, v: vec4<f32>) {
  if (row < p.rows && column < p.columns) {
    let at = ((image * p.rows + row) * p.columns + column) * p.fours + four;
    out[at] = epilogue4(v, at * 4u);
  }
}"""


def _head(rows: int, columns: int) -> list[str]:
    return [
        "fn tile(image: u32, row: u32, column: u32, four: u32) {",
        "let top = i32(row * p.stride_0 - p.pad_0); let left = i32(column * p.stride_1 - p.pad_1);",
        "let bias = fours_w(p.kernel_0 * p.kernel_1 * p.fours + four);",
        *(f"var a{r}_{c} = bias;" for r in range(rows) for c in range(columns)),
        "var y = 0; var line = 0u; var row_in = false;",
    ]


def _tail(rows: int, columns: int) -> list[str]:
    sums = [[f"a{r}_{c}"] for r in range(rows) for c in range(columns)]
    store = f"store4(image, row + i / {columns}u, column + i % {columns}u, four, a0_0);"
    return [*in_turn(sums, store, "i"), "}"]


def _line(y: str) -> str:
    return f"y = {y}; row_in = u32(y) < p.size_0; line = (image * p.size_0 + u32(y)) * p.size_1;"


def _unrolled(height: Axis, width: Axis, rows: int, columns: int) -> str:
    """All taps of a tile: each element of the input that they need is loaded once."""
    taps = [(ky, kx) for ky in range(height.kernel) for kx in range(width.kernel)]
    at = [[c * width.stride + kx * width.dilation for c in range(columns)] for kx in range(width.kernel)]
    lines = _head(rows, columns)
    lines += [f"let w{ky}_{kx} = fours_w({ky * width.kernel + kx}u * p.fours + four);" for ky, kx in taps]
    places = sorted({x for place in at for x in place})
    lines += [f"var x{x} = vec4<f32>();" for x in places]
    users = {(r, ky): r * height.stride + ky * height.dilation for r in range(rows) for ky in range(height.kernel)}
    for y in sorted(set(users.values())):
        lines.append(_line(f"top + {y}"))
        lines += [f"x{x} = pixel(line, left + {x}, row_in, four);" for x in places]
        for (r, ky), wanted in users.items():
            for c in range(columns) if wanted == y else ():
                terms = " + ".join(f"w{ky}_{kx} * x{at[kx][c]}" for kx in range(width.kernel))
                lines.append(f"a{r}_{c} += {terms};")
    return "\n".join([*lines, *_tail(rows, columns)])


def _looped(columns: int) -> str:
    """A row of pixels, tap by tap."""
    lines = [*_head(1, columns), "for (var tap = 0u; tap < p.kernel_0 * p.kernel_1; tap++) {"]
    lines += [_line("top + i32(tap / p.kernel_1 * p.dilation_0)"), "let w = fours_w(tap * p.fours + four);"]
    lines.append("let x = left + i32(tap % p.kernel_1 * p.dilation_1);")
    lines += [f"a0_{c} += w * pixel(line, x + {c} * i32(p.stride_1), row_in, four);" for c in range(columns)]
    return "\n".join([*lines, "}", *_tail(1, columns)])
