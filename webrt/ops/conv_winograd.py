"""3×3 convolutions of channels-last images by Winograd's F(2×2, 3×3): 16 products where a sum over taps has 36.

Y = Aᵀ·[(G·g·Gᵀ) ⊙ (Bᵀ·d·B)]·A for each square d of 4 × 4 pixels and kernel g (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2015, section 4.1). Sums over channels are those of a matrix product, so rounding is no
worse than in a sum over all taps. It pays where the table of costs says so, at sizes that are known: adapters whose
multiplications cost as much as their loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt import costs
from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Builder, Variant, grid
from webrt.ops.loaders import epilogue4, in_fours, through_textures
from webrt.ops.product import Product, product
from webrt.ops.vectors import Epilogue
from webrt.ops.windows import Axis

FAMILY = "conv_3x3"
FORMS = ("direct", "winograd")
"""The labels in the table of costs, the default first. Its sizes are pixels, output channels and input channels."""
TAPS = 16
WORTH = 0.9
"""What it may take of the direct form's time: it needs four times the memory."""

Array = np.ndarray[Any, Any]
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_ROWS = ("d0_{c} - d2_{c}", "d1_{c} + d2_{c}", "d2_{c} - d1_{c}", "d1_{c} - d3_{c}")
"""Bᵀ·d, of column c."""


def pays(b: Builder, x: Value, weights: Array, axes: tuple[Axis, Axis], epilogue: Epilogue) -> bool:
    """Whether a convolution in one group of weights [out, channel, …] is one for `winograd`, and faster that way."""
    outs, channels = weights.shape[:2]
    plain = all(a.kernel == 3 and a.stride == 1 and a.dilation == 1 for a in axes)
    if not plain or epilogue.long or outs % 4 or channels % 4 or x.known_shape[-1] != channels:
        return False
    pixels = D.prod((x.known_shape[0], *(a.out for a in axes)))
    largest = D.prod((TAPS * 4, _squares(x, axes), max(outs, channels)))
    fits = isinstance(largest, int) and largest <= b.target.limit("maxStorageBufferBindingSize")
    return fits and costs.fastest(b.costs(FAMILY, (pixels, outs, channels)), FORMS, WORTH) == 1


def winograd(
    b: Builder, x: Value, out: Value, operands: tuple[Array, Array], axes: tuple[Axis, Axis], epilogue: Epilogue
) -> None:
    """x [images, height, width, channels] with weights [out, channel, …] of 3 × 3 taps and biases to out."""
    weights, bias = operands
    outs, channels = weights.shape[:2]
    squares = _squares(x, axes)
    parts = b.temp(T.F32, (TAPS, squares, channels))
    products = b.temp(T.F32, (TAPS, squares, outs))
    _taken_apart(b, x, parts, axes)
    sizes = Product(squares, outs, channels, (TAPS,), (TAPS,), (TAPS,))
    product(b, sizes, parts, b.constant(transformed(weights)), products, name="winograd")
    _put_together(b, products, bias, out, axes, epilogue)


def transformed(weights: Array) -> Array:
    """G·g·Gᵀ of weights [out, channel, …] of 3 × 3 taps, as [16, channel, out]."""
    outs, channels = weights.shape[:2]
    taps = weights.astype(np.float64).reshape(outs, channels, 3, 3)
    made: Array = np.einsum("ik,ockl,jl->ijco", _G, taps, _G, optimize=True)
    return made.reshape(TAPS, channels, outs).astype(np.float32)


def _squares(x: Value, axes: tuple[Axis, Axis]) -> Dim:
    return D.prod((x.known_shape[0], *(D.ceildiv(a.out, 2) for a in axes)))


def _taken_apart(b: Builder, x: Value, out: Value, axes: tuple[Axis, Axis]) -> None:
    height, width = axes
    fours = D.floordiv(x.known_shape[-1], 4)
    params: dict[str, Dim | float] = {
        "images": x.known_shape[0], "fours": fours, "rows": D.ceildiv(height.out, 2),
        "columns": D.ceildiv(width.out, 2), "size_0": height.size, "size_1": width.size, "pad_0": height.before,
        "pad_1": width.before,
    }  # fmt: skip
    groups = grid(D.prod((_squares(x, axes), fours)))
    variant = Variant("winograd_in", groups, fns=[_transform()], vec={"x": 4, "out": 4})
    b.launch(*through_textures(variant, ["x"]), reads={"x": x}, writes={"out": out}, params=params, name="winograd_in")


def _put_together(b: Builder, x: Value, bias: Array, out: Value, axes: tuple[Axis, Axis], epilogue: Epilogue) -> None:
    height, width = axes
    fours = D.floordiv(x.known_shape[-1], 4)
    params: dict[str, Dim | float] = {
        "images": out.known_shape[0], "fours": fours, "tile_rows": D.ceildiv(height.out, 2),
        "tile_columns": D.ceildiv(width.out, 2), "rows": height.out, "columns": width.out,
    }  # fmt: skip
    names = in_fours(epilogue)
    variant = Variant(
        "winograd_out",
        grid(D.prod((_squares(out, axes), fours))),
        fns=[epilogue4(epilogue)],
        use=epilogue.use,
        vec={"x": 4, "w": 4, "out": 4, **dict.fromkeys(names, 4)},
    )
    reads = {"x": x, "w": b.constant(bias.astype(np.float32)), **epilogue.reads}
    b.launch(
        *through_textures(variant, ["x", "w", *names]), reads=reads, writes={"out": out},
        params={**params, **epilogue.params}, name="winograd_out",
    )  # fmt: skip


def _transform() -> str:
    """`transform`, with every pixel loaded once; those outside of the image are 0."""
    each = range(4)
    load = "let d{r}_{c} = select(vec4<f32>(), fours_x(line{r} + off{c}), row{r} && in{c});"
    place = "let in{c} = u32(left + {c}) < p.size_1; let off{c} = u32(left + {c}) * p.fours + four;"
    start = "(i32(image * p.size_0) + top + {r}) * i32(p.size_1 * p.fours)"
    lines = [
        "fn transform(image: u32, row: u32, column: u32, four: u32, own: u32) {",
        "let top = i32(2u * row) - i32(p.pad_0); let left = i32(2u * column) - i32(p.pad_1);",
        "let next = p.images * p.rows * p.columns * p.fours;",
        *(place.format(c=c) for c in each),
    ]
    for r in each:
        lines.append(f"let row{r} = u32(top + {r}) < p.size_0; let line{r} = u32({start.format(r=r)});")
        lines += [load.format(r=r, c=c) for c in each]
    for r, row in enumerate(_ROWS):
        lines.append(f"store_row(own + {4 * r}u * next, next, Row({', '.join(row.format(c=c) for c in each)}));")
    return "\n".join([*lines, "}"])
