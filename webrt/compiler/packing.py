"""Projections of one input by packed weights, as one: what GroupQueryAttention takes as queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from webrt.compiler.rewrite import Uses
from webrt.ir import Graph, Node, Value, constant
from webrt.lowering import Shape
from webrt.ops.view import element_type
from webrt.schemas import MS_DOMAIN

_ATTRIBUTES = ("K", "bits", "block_size", "accuracy_level")


def pack_projections(graph: Graph) -> bool:
    """Three MatMulNBits of one input that only a GroupQueryAttention reads → one, read as packed queries."""
    uses, out, gone = Uses(graph), list[Node](), set[Node]()
    for node in graph.nodes:
        parts = _projections(uses, node)
        if parts:
            out.append(joined(uses, parts))
            gone |= set(parts)
            node.inputs[:3] = [out[-1].output(), None, None]
        out.append(node)
    graph.nodes[:] = [n for n in out if n not in gone]
    return bool(gone)


def _projections(uses: Uses, node: Node) -> list[Node]:
    """The three products; none where they are not all alike."""
    if (node.domain, node.op_type) != (MS_DOMAIN, "GroupQueryAttention") or not (node.has(1) and node.has(2)):
        return []
    values = [node.input(k) for k in range(3)]
    parts = [v.producer for v in values if v.producer is not None and uses.alone(v, node)]
    if len({id(n) for n in parts}) != 3 or any((n.domain, n.op_type) != (MS_DOMAIN, "MatMulNBits") for n in parts):
        return []
    first = parts[0]
    same = all(n.input(0) is first.input(0) and alike(n, first) for n in parts)
    constants = all(v is None or v.const is not None for n in parts for v in n.inputs[1:])
    return parts if same and constants and not first.has(4) and first.input(0).shape is not None else []


def alike(a: Node, b: Node) -> bool:
    """Whether two MatMulNBits store their weights in the same way."""
    return (
        all(a.attr(name, 0) == b.attr(name, 0) for name in _ATTRIBUTES)
        and [v is not None for v in a.inputs] == [v is not None for v in b.inputs]
        and [v.dtype for v in a.given()] == [v.dtype for v in b.given()]
    )


def joined(uses: Uses, parts: Sequence[Node]) -> Node:
    """One MatMulNBits with the columns of all, which have constant weights and are alike."""
    first = parts[0]
    inputs: list[Value | None] = [first.input(0), _stacked(uses, [n.input(1) for n in parts])]
    for k in range(2, len(first.inputs)):
        inputs.append(_flat(uses, [n.input(k) for n in parts]) if first.has(k) else None)
    columns = sum(int(n.attr("N")) for n in parts)
    shape: Shape = (*first.input(0).known_shape[:-1], columns)
    value = Value(uses.name(), first.output().dtype, shape, roots=first.output().roots)
    attrs = first.attrs | {"N": onnx.helper.make_attribute("N", columns)}
    sources = tuple(s for n in parts for s in n.sources)
    node = Node(first.op_type, first.domain, first.name, inputs, [value], first.opset, attrs, [], sources)
    value.producer = node
    return node


def _stacked(uses: Uses, values: Sequence[Value]) -> Value:
    """One row of blocks per column of the product."""
    return _constant(uses, np.concatenate([v.const for v in values if v.const is not None]), values[0])


def _flat(uses: Uses, values: Sequence[Value]) -> Value:
    return _constant(uses, np.concatenate([v.const.reshape(-1) for v in values if v.const is not None]), values[0])


def _constant(uses: Uses, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], like: Value) -> Value:
    return constant(uses.name(), array, element_type(like))
