"""Weights of 8 or 4 bits: MatMul and Gemm by constants → com.microsoft's MatMulNBits; Gather of a constant table →
GatherBlockQuantized. Every block of a column has a scale; the zero point is the middle of the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from webrt import dtypes as T
from webrt import lowering
from webrt.compiler.packed import LEAST, is_product, replaced
from webrt.compiler.rewrite import Uses
from webrt.errors import InputError
from webrt.ir import Graph, Node, constant
from webrt.schemas import MS_DOMAIN

Array = np.ndarray[Any, Any]
BLOCKS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Blocks:
    """Rows of numbers in blocks: `packed` uint8 [row, block, byte] and `scales` [row, block]; a number is
    (packed - 2^(bits-1)) · scale."""

    packed: Array
    scales: Array
    loss: float


def quantize_weights(graph: Graph, bits: int, block: int) -> dict[str, Any]:
    """Rewrites the graph; tells how many weights, bytes before and after, and the largest relative loss (root of the
    mean square of the error, over that of the weights)."""
    if block not in BLOCKS:
        raise InputError(f"blocks of {block} weights; choose {', '.join(map(str, BLOCKS))}")
    uses, out, told = Uses(graph), list[Node](), _Told()
    for node in graph.nodes:
        out += _product(uses, node, bits, block, told) or _lookup(uses, node, bits, block, told) or [node]
    graph.nodes[:] = out
    return {
        "weights": told.weights, "bytes_before": told.before, "bytes_after": told.after, "largest_loss": told.loss
    }  # fmt: skip


@dataclass
class _Told:
    weights: int = 0
    before: int = 0
    after: int = 0
    loss: float = 0.0

    def add(self, weights: Array, blocks: Blocks) -> None:
        self.weights += 1
        self.before += weights.nbytes
        self.after += blocks.packed.nbytes + blocks.scales.nbytes
        self.loss = max(self.loss, blocks.loss)


def pack(rows: Array, bits: int, block: int) -> Blocks:
    """f32 [rows, k] in blocks along k; the last block is filled with zeros. In each, the number of largest |value| is
    met exactly, at the end of the range that has one step more."""
    count, k = rows.shape
    padded = np.zeros((count, -(-k // block) * block), np.float32)
    padded[:, :k] = rows
    blocks = padded.reshape(count, -1, block)
    middle = 1 << (bits - 1)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    scales = (extreme / -middle).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(scales == 0, 0, blocks / scales)
    numbers = (np.clip(np.rint(steps), -middle, middle - 1) + middle).astype(np.uint8)
    restored = (numbers.astype(np.float32) - middle) * scales
    packed = numbers if bits == 8 else numbers[..., 0::2] | numbers[..., 1::2] << 4
    size = float(np.square(rows, dtype=np.float64).mean())
    error = float(np.square(restored - blocks, dtype=np.float64).sum() / max(rows.size, 1))
    return Blocks(packed, scales[..., 0], float(np.sqrt(error / size)) if size else 0.0)


def _product(uses: Uses, node: Node, bits: int, block: int, told: _Told) -> list[Node] | None:
    """MatMul(x, W), or Gemm(x, W, c) without factors and without transposing x, as MatMulNBits and an Add."""
    weights = _weights(node, 1)
    if weights is None or not is_product(node):
        return None
    weights = weights.T if node.op == "Gemm" and node.attr("transB", 0) else weights
    k, n = weights.shape
    blocks = pack(weights.T, bits, block)
    told.add(weights, blocks)
    numbers = [
        constant(uses.name(), blocks.packed, T.U8),
        constant(uses.name(), blocks.scales.reshape(-1).astype(np.float32), T.F32),
    ]
    return replaced(uses, node, (n, k), numbers, bits, block)


def _lookup(uses: Uses, node: Node, bits: int, block: int, told: _Told) -> list[Node] | None:
    """Gather(table, i) along axis 0 as GatherBlockQuantized."""
    table = _weights(node, 0)
    if node.op != "Gather" or table is None or int(node.attr("axis", 0)) not in (0, -2):
        return None
    if lowering.find(MS_DOMAIN, "GatherBlockQuantized", 1) is None or table.shape[1] % block:
        return None
    blocks = pack(table, bits, block)
    told.add(table, blocks)
    numbers = [
        constant(uses.name(), blocks.packed.reshape(len(table), -1), T.U8),
        constant(uses.name(), blocks.scales.astype(np.float32), T.F32),
    ]
    return replaced(uses, node, (table.shape[0], table.shape[1]), numbers, bits, block)


def _weights(node: Node, index: int) -> Array | None:
    """Input `index` where it is a constant f32 matrix that is worth it."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.const is None or value.dtype != T.F32 or value.const.ndim != 2:
        return None
    finite = value.const.size >= LEAST and bool(np.isfinite(value.const).all())
    return value.const if finite else None
