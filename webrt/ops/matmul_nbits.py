"""com.microsoft's MatMulNBits: weights of 4 or 8 bits in blocks along k, each with a scale and a zero point.

The numbers stay packed on the device. Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node
from webrt.lowering import MAX_ITERATIONS, Builder, Info, Variant, grid, op, require
from webrt.ops.nbits_numbers import Zeros
from webrt.ops.nbits_tile import tile_variants
from webrt.ops.nbits_weights import multiply_dequantized
from webrt.ops.vectors import IDENTITY, Epilogue, can_load4, finish, kind, load4, through_temp, vec_of

Array = np.ndarray[Any, Any]
ROWS = 4


def nbits_shape(n: Node) -> list[Info]:
    a, block = n.input(0), int(n.attr("block_size"))
    if block < 16 or block & (block - 1):
        raise InvalidModel(f"block_size is {block}; it has to be a power of two, 16 or more")
    return [(a.dtype, None if a.shape is None else (*a.shape[:-1], int(n.attr("N"))))]


@op("MatMulNBits", domain="com.microsoft", shape=nbits_shape)
def matmul_nbits(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    a, k, columns, bits = n.input(0), int(n.attr("K")), int(n.attr("N")), int(n.attr("bits"))
    block = int(n.attr("block_size"))
    require([a, n.input(5) if n.has(5) else None], *T.FLOATS)
    halves = 8 // bits if bits in (4, 8) else 0
    if a.known_shape[-1:] != (k,):
        b.check(D.eq(a.known_shape[-1], k), f"A has {a.known_shape[-1]} columns, K is {k}")
    if n.has(5):
        b.check(D.eq(n.input(5).elements, columns), f"the bias has {n.input(5).elements} elements, N is {columns}")
        epilogue = epilogue.following("v + load_bias(i % p.bias_columns)", bias=n.input(5))
        epilogue = replace(epilogue, params={**epilogue.params, "bias_columns": columns})
    constants = all(v is None or v.const is not None for v in n.inputs[1:4])
    whole = halves and not k % (4 * halves) and not block % (4 * halves) and k // (2 * halves) <= MAX_ITERATIONS
    if not constants or not whole or n.has(4):
        multiply_dequantized(n, b, epilogue)
        return
    words = b.constant(_words(n.const(1), columns, k, halves))
    scales, zeros = _scales(n, columns, -(-k // block), bits)
    m = D.prod(a.known_shape[:-1])
    params: dict[str, Dim | float] = {
        "m": m, "n": columns, "k": k, "fours": columns // 4, "words": k // (4 * halves),
        "words_per_block": block // (4 * halves), "a_line": k, "b_line": 1, "k_first": 0, "k_last": k,
        "width": columns, "batches": 1,
    }  # fmt: skip
    aligned = can_load4(kind(a), k)
    variant = Variant(
        "matmul_nbits",
        grid(D.mul(D.ceildiv(m, ROWS), columns)),
        consts={"HALVES": halves, "PARTS": zeros.parts},
        fns=[
            load4("a", kind(a), aligned),
            f"fn zero_at(at: u32) -> f32 {{ return {zeros.at('at', 'p.n', 'load_scale')}; }}",
            epilogue.fn,
        ],
        use=epilogue.use,
        vec=vec_of(a=(kind(a), aligned)),
    )
    tiles = [] if columns % 4 else tile_variants(a, m, columns, bits, zeros, epilogue)
    out = through_temp(b, n.output(0))
    reads = {"a": a, "w": words, "scale": b.constant(scales), **epilogue.reads}
    params |= {**({} if zeros.all is None else {"zero": zeros.all}), **epilogue.params}
    b.launch(*tiles, variant, reads=reads, writes={"out": out}, params=params, name="matmul_nbits")
    finish(b, out, n.output(0), "matmul_nbits")


def _words(packed: Array, columns: int, k: int, halves: int) -> Array:
    """uint32 [word, column] of numbers packed as [column, block, byte]; with 4 bits the low halves of a word's bytes
    are its first four numbers."""
    if packed.size < columns * k // halves:
        raise ShapeError(f"{packed.size} bytes of weights, {columns * k // halves} are needed")
    data = packed.reshape(columns, -1)[:, : k // halves]
    if halves == 2:
        numbers = np.stack([data & 15, data >> 4], axis=-1).reshape(columns, -1, 2, 4)
        data = (numbers[:, :, 0] | numbers[:, :, 1] << 4).reshape(columns, -1)
    return np.ascontiguousarray(np.ascontiguousarray(data).view("<u4").T)


def _scales(n: Node, columns: int, blocks: int, bits: int) -> tuple[Array, Zeros]:
    """float32 [block, 2, column]: scale and zero point; [block, 1, column] where all zero points are the same."""
    out = np.full((blocks, 2, columns), 2 ** (bits - 1), np.float32)
    out[:, 0] = n.const(2).astype(np.float32).reshape(columns, blocks).T
    if n.has(3):
        zeros = n.const(3)
        if zeros.dtype == np.uint8 and bits == 4:
            halves = np.stack([zeros & 15, zeros >> 4], axis=-1)
            zeros = halves.reshape(columns, -1)[:, :blocks]
        out[:, 1] = zeros.astype(np.float32).reshape(columns, blocks).T
    zeros = out[:, 1]
    whole = bool(((zeros == np.floor(zeros)) & (zeros >= 0) & (zeros < 1 << bits)).all())
    if zeros.size and bool((zeros == zeros.flat[0]).all()):
        return out[:, :1], Zeros(float(zeros.flat[0]), whole)
    return out, Zeros(None, whole)
