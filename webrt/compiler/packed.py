"""Weights that a model stores in 8 bits stay so: a constant behind DequantizeLinear, or behind a Cast and a Mul, that
one product or look-ups alone read. What they multiply by is (number - zero) · scale as in the model, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.places import wished_for
from webrt.compiler.rewrite import Uses, is_plain_gemm
from webrt.ir import Graph, Node, Value, constant
from webrt.lowering import MAX_ITERATIONS
from webrt.schemas import MS_DOMAIN

Array = np.ndarray[Any, Any]
LEAST = 4096
"""Weights with fewer elements stay as they are: they save nothing and are often the touchy ones."""
LEAST_TABLE = 1 << 18
"""Tables with fewer numbers stay, too: a kernel has few bindings for all its look-ups; a packed one takes one more."""
SMALLEST, LARGEST = 16, 256
"""Numbers of a block, that onnxruntime takes too; powers of two."""
PRODUCTS = {"MatMul": 1, "Gemm": 1, "Gather": 0}
"""Operators that read packed weights, and which input that is."""
FOURS = 4
"""Columns of a product are a multiple of it, as the fast kernels need."""


@dataclass(frozen=True)
class Stored:
    """A matrix of uint8 `numbers` [R, C] with f32 `scales` and uint8 `zeros` (None: 128) that each have a size R' by
    C', where R' divides R and C' divides C: one for a block of the matrix."""

    numbers: Array
    scales: Array
    zeros: Array | None = None

    @property
    def transposed(self) -> Stored:
        return Stored(self.numbers.T, self.scales.T, None if self.zeros is None else self.zeros.T)


def keep_packed(graph: Graph) -> bool:
    """MatMul(x, dequantised constant), or Gemm → MatMulNBits (and Add); Gather of its rows → GatherBlockQuantized."""
    uses, changed, held = Uses(graph), dict[Node, list[Node]](), dict[Value, list[Value]]()
    for node in graph.nodes:
        weights = _weights_of(node)
        if weights is None or weights in held:
            continue
        readers = uses.readers[weights]
        kinds = {_kind(n, weights, graph) for n in readers}
        shared = len(readers) > 1 and kinds != {"table"}  # each kernel of a product holds the numbers in its own order
        kind = kinds.pop() if len(kinds) == 1 and not shared else ""
        stored = _stored(uses, weights) if kind else None
        packed = None if stored is None else _packed(stored.transposed if kind == "columns" else stored, kind)
        if packed is not None:
            held[weights] = _constants(uses, packed, flat=kind != "table")
            graph.bounds.taken += sum(v.const.nbytes for v in held[weights] if v.const is not None)
            block = packed.numbers.shape[1] // packed.scales.shape[1]
            for n in readers:
                changed[n] = replaced(uses, n, packed.numbers.shape, held[weights], 8, block)
    graph.nodes[:] = [m for n in graph.nodes for m in changed.get(n, [n])]
    return bool(changed)


def replaced(uses: Uses, node: Node, shape: tuple[int, int], held: list[Value], bits: int, block: int) -> list[Node]:
    """What takes the place of a MatMul or Gemm by a matrix whose columns are `shape[0]` rows of `shape[1]` numbers, or
    of a Gather of such rows. `held`: the numbers, scales and, if any, zero points."""
    if node.op == "Gather":
        attributes = _attributes(gather_axis=0, quantize_axis=1, block_size=block, bits=bits)
        inputs = [held[0], node.input(1), *held[1:]]
        return [_made("GatherBlockQuantized", node, inputs, node.output(), attributes)]
    added = node.input(2) if node.op == "Gemm" and node.has(2) else None
    out = node.output() if added is None else Value(uses.name(), T.F32, node.output().shape, roots=node.output().roots)
    attributes = _attributes(K=shape[1], N=shape[0], bits=bits, block_size=block)
    product = _made("MatMulNBits", node, [node.input(0), *held], out, attributes)
    if added is None:
        return [product]
    opset = max(7, node.opset)
    add = Node("Add", "", f"{node.name}/Add", [out, added], [node.output()], opset, sources=node.sources)
    node.output().producer = add
    return [product, add]


def is_product(node: Node) -> bool:
    """Whether it is x · weights, plus a bias at most, of f32, with x as it is."""
    if node.op == "Gemm":
        return is_plain_gemm(node) and node.input(0).dtype == T.F32
    x = node.input(0) if node.op == "MatMul" else None
    return x is not None and x.dtype == T.F32 and x.shape is not None and x.rank >= 2


def _made(op_type: str, node: Node, inputs: list[Value], out: Value, attributes: dict[str, Any]) -> Node:
    made = Node(op_type, MS_DOMAIN, node.name, [*inputs], [out], 1, attributes, sources=node.sources)
    out.producer = made
    return made


def _attributes(**values: int) -> dict[str, onnx.AttributeProto]:
    return {k: onnx.helper.make_attribute(k, v) for k, v in values.items()}


def _weights_of(node: Node) -> Value | None:
    """The operand that is computed, and may be of constants alone."""
    at = PRODUCTS.get(node.op)
    value = None if at is None else node.input(at)
    return value if value is not None and value.const is None and value.producer is not None else None


def _kind(node: Node, weights: Value, graph: Graph) -> str:
    """How a node reads them: a product "columns" or "rows", a look-up a "table"; "" another way."""
    if wished_for(node, graph) == "cpu" or node.inputs.count(weights) != 1 or _weights_of(node) is not weights:
        return ""
    if node.op == "Gather":
        return "table" if int(node.attr("axis", 0)) in (0, -2) else ""
    if not is_product(node):
        return ""
    return "rows" if node.op == "Gemm" and node.attr("transB", 0) else "columns"


def _stored(uses: Uses, value: Value) -> Stored | None:
    """The matrix that a value is, made of constants by nodes that nobody else reads."""
    node = value.producer
    if node is None or value.dtype != T.F32 or value in uses.fixed or len(node.outputs) != 1:
        return None
    if node.op == "DequantizeLinear":
        return _dequantized(node) if uses.alone(node.input(0), node) else None
    if node.op == "Transpose" and uses.alone(node.input(0), node):
        inner = _stored(uses, node.input(0))
        return inner.transposed if inner is not None and list(node.attr("perm") or (1, 0)) == [1, 0] else None
    if node.op == "Mul":
        casts = [v for v in node.given() if v.const is None]
        scales = next((v.const for v in node.given() if v.const is not None), None)
        cast = casts[0].producer if len(casts) == 1 else None
        if cast is None or cast.op != "Cast" or scales is None or not uses.alone(casts[0], node):
            return None
        numbers = cast.input(0).const if uses.alone(cast.input(0), cast) else None
        return None if numbers is None or scales.ndim > 2 else _of(numbers, np.atleast_2d(scales), 0)
    return None


def _dequantized(node: Node) -> Stored | None:
    numbers, scales = node.input(0).const, node.input(1).const
    zeros = node.input(2).const if node.has(2) else None
    if numbers is None or scales is None or numbers.ndim != 2 or (zeros is None) == node.has(2):
        return None
    if zeros is not None and (zeros.dtype != numbers.dtype or zeros.shape != scales.shape):
        return None
    axis = int(node.attr("axis", 1)) % 2
    if scales.ndim == 2:
        whole = scales.shape[axis] * int(node.attr("block_size", 0)) == numbers.shape[axis]
    else:
        whole = scales.size in (1, numbers.shape[axis])
        shape = (1, 1) if scales.size == 1 else (-1, 1) if axis == 0 else (1, -1)
        scales, zeros = scales.reshape(shape), None if zeros is None else zeros.reshape(shape)
    return _of(numbers, scales, 0 if zeros is None else zeros) if whole else None


def _of(numbers: Array, scales: Array, zeros: Array | int) -> Stored | None:
    """int8 or uint8 numbers as uint8, with the zero points moved likewise."""
    if numbers.dtype not in (np.int8, np.uint8) or numbers.ndim != 2 or scales.dtype != np.float32:
        return None
    if any(n == 0 or not m or n % m for n, m in zip(numbers.shape, scales.shape, strict=True)):
        return None
    moved = 128 if numbers.dtype == np.int8 else 0
    points = np.broadcast_to(np.asarray(zeros, np.int32) + moved, scales.shape)
    unsigned = (numbers.view(np.uint8) ^ moved).astype(np.uint8)
    return Stored(unsigned, scales, None if (points == 128).all() else points.astype(np.uint8))


def _packed(rows: Stored, kind: str) -> Stored | None:
    """The same with a scale for each row and block of it; None where that takes no form that the kernels are fast at,
    or saves nothing."""
    (count, k), (_, blocks) = rows.numbers.shape, rows.scales.shape
    width = k // blocks
    block = min(LARGEST, width & -width)
    if rows.numbers.size < (LEAST_TABLE if kind == "table" else LEAST) or block < SMALLEST:
        return None
    if kind != "table" and (count % FOURS or k // 2 > MAX_ITERATIONS):
        return None
    if not np.isfinite(rows.scales).all():
        return None

    def spread(a: Array) -> Array:
        by_row = np.repeat(a, count // a.shape[0], axis=0)
        return np.ascontiguousarray(np.repeat(by_row, width // block, axis=1))

    zeros = None if rows.zeros is None else spread(rows.zeros)
    return Stored(np.ascontiguousarray(rows.numbers), spread(rows.scales), zeros)


def _constants(uses: Uses, rows: Stored, flat: bool) -> list[Value]:
    """Numbers, scales, and any zero points, in the shapes that a product (`flat`) or a look-up takes."""
    if flat:
        numbers = rows.numbers.reshape(*rows.scales.shape, -1)
        zeros = None if rows.zeros is None else rows.zeros.reshape(-1)
        rows = replace(rows, numbers=numbers, scales=rows.scales.reshape(-1), zeros=zeros)
    made = [constant(uses.name(), rows.numbers, T.U8), constant(uses.name(), rows.scales, T.F32)]
    return made if rows.zeros is None else [*made, constant(uses.name(), rows.zeros, T.U8)]
