"""A basic pass that takes away rounding to a grid of numbers of which a tensor is already made.

QuantizeLinear and DequantizeLinear with a scale s and a zero point z make numbers (q - z) · s, q an integer of few
bits. Such a number, quantised by the same s and z, gives its q again: (q - z) · s / s is off by less than
|q - z| · 2^-21, at most 1/32 for 16 bits, and is rounded. So what is made of such numbers alone, without changing one,
needs no second pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses
from webrt.dtypes import DType
from webrt.ir import Graph, Node, Value

_TYPES = (T.I8, T.U8, T.I16, T.U16)
_LEAST, _MOST = 2.0**-126, 2.0**127 / 2**16
"""Scales for which all products with integers of 16 bits are normal numbers of f32."""
_FIRST = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Gather", "GatherND"}
    | {"GatherElements", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Split", "GlobalMaxPool", "Relu"}
)
"""Operators whose results are elements of their first input, or zeros."""
_ALL = frozenset({"Concat", "Max", "Min"})
_REACH = 16
"""Nodes that are looked through."""


@dataclass(frozen=True)
class _Grid:
    """The numbers (q - zeros) · scales, q of the type. `axis` and `block` are 0 where there is one scale."""

    dtype: DType
    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int
    block: int


def cancel_quantization(graph: Graph) -> bool:
    """QuantizeLinear after DequantizeLinear with the same parameters → the integers; a pair of them over numbers that
    an equal pair made, moved or chosen since → nothing."""
    uses, kept = Uses(graph), list[Node]()
    for node in graph.nodes:
        source = _integers(node) if node.op_type == "QuantizeLinear" else _rounded(node)
        if source is None or not uses.forward(node.output(0), source):
            kept.append(node)
    changed = len(kept) != len(graph.nodes)
    graph.nodes[:] = kept
    return changed


def _integers(node: Node) -> Value | None:
    """What a QuantizeLinear makes again."""
    inner = node.input(0).producer
    grid = _grid(node)
    if inner is None or grid is None or inner.op_type != "DequantizeLinear" or _grid(inner) != grid:
        return None
    return inner.input(0)


def _rounded(node: Node) -> Value | None:
    """The numbers that a QuantizeLinear and this DequantizeLinear leave as they are."""
    inner = node.input(0).producer if node.op_type == "DequantizeLinear" else None
    if inner is None or inner.op_type != "QuantizeLinear":
        return None
    grid = _grid(node)
    return inner.input(0) if grid is not None and _grid(inner) == grid and _is_on(inner.input(0), grid) else None


def _grid(node: Node) -> _Grid | None:
    """Of a QuantizeLinear or DequantizeLinear between f32 and small integers with constant parameters."""
    is_quantize = node.op_type == "QuantizeLinear"
    numbers, integers = (node.input(0), node.output()) if is_quantize else (node.output(), node.input(0))
    if node.domain not in ("", "com.microsoft") or numbers.dtype != T.F32 or integers.dtype not in _TYPES:
        return None
    scales, zeros = _parameters(node)
    if not scales or numbers.shape is None or int(node.attr("precision", 0)) not in (0, T.F32.code):
        return None
    if len(scales) == 1:
        return _Grid(integers.dtype, scales, zeros, 0, 0)
    axis = int(node.attr("axis", 1)) % max(1, numbers.rank)
    return _Grid(integers.dtype, scales, zeros, axis, int(node.attr("block_size", 0)))


def _parameters(node: Node) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and zero points; none where they are no constants, or scales for which the integers may not come back."""
    scale, zero = node.input(1), node.input(2) if node.has(2) else None
    if scale.dtype != T.F32 or scale.const is None or (zero is not None and zero.const is None):
        return (), ()
    scales = scale.const.reshape(-1)
    zeros = np.zeros(scales.size, np.int64) if zero is None or zero.const is None else zero.const.reshape(-1)
    fit = bool(((scales >= _LEAST) & (scales <= _MOST)).all()) and zeros.size == scales.size
    return (tuple(map(float, scales)), tuple(map(int, zeros))) if fit else ((), ())


def _is_on(v: Value, grid: _Grid, reach: int = _REACH) -> bool:
    """Whether all elements of v are numbers of the grid."""
    node = v.producer
    if node is None or reach == 0:
        return False
    if node.op_type == "DequantizeLinear":
        return _grid(node) == grid
    chosen = _chosen_from(node) if len(grid.scales) == 1 else []
    return bool(chosen) and all(_is_on(x, grid, reach - 1) for x in chosen)


def _chosen_from(node: Node) -> list[Value]:
    """The inputs whose elements, and zeros, are all that a node's first output has; none where others come too."""
    if node.domain != "":
        return []
    if node.op in _ALL:
        return node.given()
    if node.op == "Where":
        return [node.input(1), node.input(2)]
    every_pixel = all(d == 1 for d in node.attr("dilations") or ())
    nearest = node.attr("mode", "nearest") == "nearest" and not node.attr("antialias", 0)
    crops = node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if node.op in _FIRST or (node.op == "MaxPool" and every_pixel) or (node.op == "Resize" and nearest and not crops):
        return [node.input(0)]
    return []
