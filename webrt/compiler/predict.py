"""What reading a model will take, reckoned before anything is taken: tensors that are written out with their zeros, and
functions that call one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx

from webrt.bounds import Bounds
from webrt.errors import InvalidModel
from webrt.ir import dtype_of, graphs_of

MAX_INLINED = 200_000
"""Nodes that a model may have with its functions in the place of their calls."""

Key = tuple[str, str]
Cost = tuple[int, int]
"""Nodes and bytes."""


def take(model: onnx.ModelProto, bounds: Bounds) -> None:
    """Counts sparse tensors and inlined functions. Raises InvalidModel for functions that become too many nodes, and
    ModelError where the bytes are more than `bounds` allow."""
    for sparse in _sparse(model):
        known = sparse.values.data_type and min(sparse.dims, default=0) >= 0
        count = dtype_of(sparse.values.data_type).nbytes(math.prod(sparse.dims)) if known else 0
        bounds.take(count, f"the sparse tensor {sparse.values.name!r}")
    if model.functions:
        _take_functions(model, bounds)


def _take_functions(model: onnx.ModelProto, bounds: Bounds) -> None:
    bodies = {(f.domain, f.name): f for f in model.functions}
    costs: dict[Key, Cost] = {}
    for key in _callees_first(bodies):
        costs[key] = _cost(bodies[key].node, costs)
    nodes, size = _cost(model.graph.node, costs)
    if nodes > MAX_INLINED:
        raise InvalidModel(
            f"the model's functions call one another so often that {nodes} nodes come of it; webrt takes "
            f"{MAX_INLINED}: inline some, and simplify"
        )
    bounds.take(size, "inlining the model's functions")


def _cost(nodes: Iterable[onnx.NodeProto], costs: dict[Key, Cost]) -> Cost:
    """What nodes come to with the bodies of what they call, as far as `costs` has these."""
    count, size = 0, 0
    for node in nodes:
        called, inner = costs.get((node.domain, node.op_type)), _cost(_within(node), costs)
        count += inner[0] + (1 if called is None else called[0])
        size += node.ByteSize() + inner[1] + (0 if called is None else called[1])
    return count, size


def _callees_first(bodies: dict[Key, onnx.FunctionProto]) -> list[Key]:
    """Functions after those that they call; of a circle, which the inliner refuses, in any order."""
    order: list[Key] = []
    state: dict[Key, bool] = {}
    for start in bodies:
        stack = [start]
        while stack:
            key = stack[-1]
            if key not in state:
                state[key] = False
                called = {(n.domain, n.op_type) for n in _all(bodies[key].node)} & bodies.keys()
                stack += [k for k in called if k not in state]
            else:
                stack.pop()
                if not state[key]:
                    state[key] = True
                    order.append(key)
    return order


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        yield from _all(_within(node))


def _within(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a node's subgraphs."""
    for a in node.attribute:
        for g in graphs_of(a):
            yield from g.node


def _sparse(model: onnx.ModelProto) -> Iterator[onnx.SparseTensorProto]:
    stack = [model.graph]
    while stack:
        g = stack.pop()
        yield from g.sparse_initializer
        for a in (a for n in g.node for a in n.attribute):
            if a.HasField("sparse_tensor"):
                yield a.sparse_tensor
            stack += graphs_of(a)
