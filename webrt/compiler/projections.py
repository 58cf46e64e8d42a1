"""Products of one tensor with several constant matrices, where one attention reads all of them, as one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.packed import FOURS
from webrt.compiler.packing import alike, joined
from webrt.compiler.rewrite import Uses, is_plain_gemm, number
from webrt.compiler.seen import through
from webrt.ir import Graph, Node, Value, constant
from webrt.ops.bands import BAND
from webrt.ops.view import View, element_type
from webrt.schemas import MS_DOMAIN

MAX_BYTES = 64 << 20
"""Matrices that are larger together than this stay apart."""

_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand"})
_BETWEEN = frozenset({"Add", "Sub", "Mul", "Div", "Where", "Cast", "IsNaN", "Identity"})
_PACKED = f"{MS_DOMAIN}:MatMulNBits"
_REACH = 12
"""Nodes between a product and the softmax."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@dataclass(frozen=True)
class _Part:
    """x · matrix + bias, [K, N] and [N] or nothing, made by `nodes`. `matrix` is None where the first node holds it
    packed; `queries`: the attention reads it as those."""

    nodes: tuple[Node, ...]
    x: Value
    columns: int
    matrix: Array | None
    bias: Array | None
    out: Value
    queries: bool = False


def join_projections(graph: Graph) -> bool:
    """MatMul (or MatMulNBits) and Add, or Gemm, of one input with constants, read by one attention → one product, one
    Add and a Split, which the attention reads through. On software adapters large queries stay apart."""
    uses = Uses(graph)
    groups: dict[tuple[Value, T.DType, Node], list[_Part]] = {}
    for node in graph.nodes:
        part = _part(uses, node)
        sink = _sink(uses, part) if part is not None else None
        if part is not None and sink is not None:
            softmax, queries = sink
            key = part.x, element_type(part.out), softmax
            groups.setdefault(key, []).append(replace(part, queries=queries))
    together = [_in_one_texture(graph, parts) for parts in groups.values()]
    found = [p for p in together if len(p) > 1 and _may_join(p)]
    first = {parts[0].nodes[0]: _joined(uses, parts) for parts in found}
    gone = {n for parts in found for p in parts for n in p.nodes}
    graph.nodes[:] = [m for n in graph.nodes for m in (*first.get(n, ()), *(() if n in gone else (n,)))]
    return bool(found)


def _in_one_texture(graph: Graph, parts: list[_Part]) -> list[_Part]:
    """On a software adapter, where keys and values are copied to a texture with all that they are joined with, those
    parts without queries if all are large; elsewhere all."""
    size = D.prod((*parts[0].x.known_shape[:-1], sum(p.columns for p in parts)))
    large = isinstance(size, int) and element_type(parts[0].out).nbytes(size) > BAND
    return [p for p in parts if not p.queries] if graph.adapter == "software" and large else parts


def _may_join(parts: Sequence[_Part]) -> bool:
    """Whether all hold their matrices in one way, and not too much."""
    heads = [p.nodes[0] for p in parts]
    if any(p.matrix is None for p in parts) and not all(n.op == _PACKED and alike(n, heads[0]) for n in heads):
        return False
    return sum(v.const.nbytes for n in heads for v in n.given() if v.const is not None) <= MAX_BYTES


def _part(uses: Uses, node: Node) -> _Part | None:
    """The projection that begins with this node."""
    if node.op not in ("MatMul", "Gemm", _PACKED) or node.input(1).const is None:
        return None
    x, w, out = node.input(0), node.input(1), node.output()
    if x.const is not None or x.shape is None or len(uses.readers[w]) > 1 or out.dtype not in (T.F32, T.F16):
        return None
    if node.op == _PACKED:
        plain = all(v.const is not None for v in node.given()[1:]) and not node.has(4) and not node.has(5)
        columns = int(node.attr("N"))
        return _with_bias(uses, node, None, columns) if plain and not columns % FOURS and x.rank >= 2 else None
    matrix, bias = np.asarray(w.const), None
    if node.op == "Gemm":
        matrix = matrix.T if node.attr("transB", 0) else matrix
        bias = _bias(node.input(2), matrix.shape[-1]) if node.has(2) else None
        if not is_plain_gemm(node) or (node.has(2) and bias is None):
            return None
    if matrix.ndim != 2 or matrix.shape[1] % FOURS or x.rank < 2:
        return None
    if bias is None:
        return _with_bias(uses, node, matrix, matrix.shape[1])
    return _Part((node,), x, matrix.shape[1], matrix, bias, out)


def _with_bias(uses: Uses, node: Node, matrix: Array | None, columns: int) -> _Part:
    """A product, with the Add of a bias if that is all who reads it."""
    x, out = node.input(0), node.output()
    reader = _reader(uses, out)
    if reader is not None and reader.op == "Add" and uses.alone(out, reader):
        bias = _bias(next((v for v in reader.given() if v is not out), None), columns)
        if bias is not None:
            return _Part((node, reader), x, columns, matrix, bias, reader.output())
    return _Part((node,), x, columns, matrix, None, out)


def _bias(v: Value | None, columns: int) -> Array | None:
    """One number for each column."""
    if v is None or v.const is None or v.const.shape[-1:] != (columns,) or v.const.size != columns:
        return None
    return v.const.reshape(columns)


def _sink(uses: Uses, part: _Part) -> tuple[Node, bool] | None:
    """The softmax of the attention that alone reads the projection, and whether as queries, not as keys or values.

    None where what it reads could not be seen through the Split."""
    v, passed = part.out, list[Node]()
    for _ in range(_REACH):
        node = _reader(uses, v)
        if node is None:
            return None
        if node.op == "MatMul":
            if not _seen_through(part, passed):
                return None
            softmax = (_before(node) if node.input(1) is v else None) or _after(uses, node.output())
            return None if softmax is None else (softmax, node.input(0) is v)
        scaled = node.op in ("Mul", "Div") and any(number(x) is not None for x in node.given())
        if not (scaled or node.op in _MOVES) or len(node.outputs) != 1:
            return None
        passed.append(node)
        v = node.output()
    return None


def _seen_through(part: _Part, passed: Sequence[Node]) -> bool:
    """Whether what the attention reads, made of the part by these nodes, is a view of a larger tensor that has the part
    among its columns. Where heads are repeated it reads them before the node that adds an axis for that."""
    repeats = next((i for i, n in enumerate(passed) if n.op == "Expand"), None)
    own = passed if repeats is None else passed[: max(repeats - 1, 0)]
    values = [part.out, *(n.output() for n in own)]
    if any(x.shape is None for x in values):
        return False
    view: View | None = View.of(values[-1].known_shape)
    for node in reversed(own):
        if node.op == "Transpose" and view is not None:
            rank = node.input(0).rank
            perm = [int(a) for a in node.attr("perm") or reversed(range(rank))]
            view = through(View.of(node.input(0).known_shape).permute(perm), view)
    *rows, columns = part.out.known_shape
    whole = View.of((*rows, D.add(columns, columns)))
    return view is not None and through(whole.cut(len(rows), 0, columns), view) is not None


def _before(node: Node) -> Node | None:
    """The softmax whose weights are this product's left operand."""
    v = node.input(0)
    for _ in range(_REACH):
        maker = v.producer
        if maker is None or maker.op == "Softmax":
            return maker
        if maker.op not in _BETWEEN or not maker.given():
            return None
        v = maker.given()[-1]
    return None


def _after(uses: Uses, v: Value) -> Node | None:
    """The softmax of logits that these become."""
    for _ in range(_REACH):
        node = _reader(uses, v)
        if node is None or node.op == "Softmax" or node.op not in _BETWEEN:
            return node if node is not None and node.op == "Softmax" else None
        v = node.output()
    return None


def _reader(uses: Uses, v: Value) -> Node | None:
    """The only node that reads the value's elements; its sizes may be read by others."""
    readers = {n for n in uses.readers.get(v, ()) if any(o is None or o.contents is None for o in n.outputs)}
    return readers.pop() if len(readers) == 1 and v not in uses.fixed else None


def _joined(uses: Uses, parts: Sequence[_Part]) -> list[Node]:
    """The nodes that make the outputs of all parts."""
    like, first = parts[0].out, parts[0].nodes[0]
    shape = (*parts[0].x.known_shape[:-1], sum(p.columns for p in parts))
    sources = tuple(s for p in parts for n in p.nodes for s in n.sources)
    opset = uses.graph.opsets.get("", first.opset)

    def made(op_type: str, inputs: list[Value | None], outputs: list[Value], **attrs: int) -> Node:
        given = {k: onnx.helper.make_attribute(k, a) for k, a in attrs.items()}
        node = Node(op_type, "", f"{first.name}/{op_type}", inputs, [*outputs], opset, given, [], sources)
        for v in outputs:
            v.producer = node
        return node

    def held(array: Array) -> Value:
        return constant(uses.name(), np.ascontiguousarray(array), element_type(like))

    def fresh() -> Value:
        return Value(uses.name(), like.dtype, shape, roots=like.roots)

    matrices = [p.matrix for p in parts if p.matrix is not None]
    if matrices:
        nodes = [made("MatMul", [parts[0].x, held(np.concatenate(matrices, axis=1))], [fresh()])]
    else:
        nodes = [joined(uses, [p.nodes[0] for p in parts])]
    if any(p.bias is not None for p in parts):
        given = next(p.bias.dtype for p in parts if p.bias is not None)
        biases = [np.zeros(p.columns, given) if p.bias is None else p.bias for p in parts]
        nodes.append(made("Add", [nodes[0].output(), held(np.concatenate(biases))], [fresh()]))
    counts = [p.columns for p in parts]
    outputs = [p.out for p in parts]
    if opset < 13:
        nodes.append(made("Split", [nodes[-1].output()], outputs, axis=len(shape) - 1))
        nodes[-1].attrs["split"] = onnx.helper.make_attribute("split", counts)
        return nodes
    split = constant(uses.name(), np.array(counts, np.int64), T.I64)
    return [*nodes, made("Split", [nodes[-1].output(), split], outputs, axis=len(shape) - 1)]
