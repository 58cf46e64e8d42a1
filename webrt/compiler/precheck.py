"""What would crash the libraries that read a model, refused before they see it.

Protobuf reads names that are no UTF-8 and fails where they are used; ONNX's C++ takes some attributes as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from webrt.errors import InvalidModel
from webrt.ir import graphs_of

_NOT_NEGATIVE = {("GatherND", "batch_dims")}
"""Attributes with which ONNX's shape inference reads beyond its arrays where they are negative."""

MAX_DEPTH = 64
"""How deep subgraphs may be nested."""

MAX_INLINED = 1 << 18
"""How many nodes a model may have once its own functions stand where they are called."""

FunctionId = tuple[str, str, str]


def check(model: onnx.ModelProto) -> None:
    """Raises InvalidModel where a text is no UTF-8, subgraphs nest too deep, or an attribute would crash ONNX."""
    try:
        for text in _of_model(model):
            if not isinstance(text, str):
                raise InvalidModel(f"a text is no UTF-8: {text!r}; export the model again")
    except UnicodeDecodeError as e:
        raise InvalidModel(f"a text is no UTF-8 ({e}); export the model again") from e
    if model.functions:
        _check_calls(model)


def _check_calls(model: onnx.ModelProto) -> None:
    """Raises InvalidModel where inlining the model's functions would make too many nodes or nest them too deep."""
    bodies = {(f.domain, f.name, f.overload): _nodes_within(f.node) for f in model.functions}
    known: dict[FunctionId, tuple[int, int]] = {}
    for f in _callees_first(bodies):
        known[f] = _inlined(bodies[f], known)
    size, depth = _inlined(_nodes_within(model.graph.node), known)
    if size > MAX_INLINED or depth > MAX_DEPTH:
        what = f"{size} nodes" if size > MAX_INLINED else f"subgraphs nested {depth} deep"
        limit = f"{MAX_INLINED} nodes and {MAX_DEPTH} levels"
        name = max(known, key=known.__getitem__)[1]
        raise InvalidModel(
            f"with the model's own functions (such as {name!r}) inlined there would be {what}; webrt takes {limit}: "
            "call them less often"
        )


def _callees_first(bodies: dict[FunctionId, list[tuple[FunctionId, int]]]) -> list[FunctionId]:
    """The functions, each after those that it calls; where they call themselves, ONNX's inliner will say so."""
    order: dict[FunctionId, None] = {}
    begun: set[FunctionId] = set()
    for first in bodies:
        waiting = [first]
        while waiting:
            f = waiting[-1]
            if f in begun:
                order.setdefault(waiting.pop())
                continue
            begun.add(f)
            waiting += {callee: None for callee, _ in bodies[f] if callee in bodies and callee not in begun}
    return list(order)


def _inlined(body: Iterable[tuple[FunctionId, int]], known: dict[FunctionId, tuple[int, int]]) -> tuple[int, int]:
    """(nodes, depth of subgraphs) of a body once all calls in it are inlined."""
    size, depth = 0, 0
    for (node, own), times in Counter(body).items():
        nodes, deeper = known.get(node, (1, 0))
        size, depth = size + times * nodes, max(depth, own + deeper)
    return size, depth


def _nodes_within(nodes: Iterable[onnx.NodeProto], depth: int = 0) -> list[tuple[FunctionId, int]]:
    """What each node calls, with how deep in subgraphs it stands."""
    found: list[tuple[FunctionId, int]] = []
    for node in nodes:
        found.append(((node.domain, node.op_type, node.overload), depth))
        for a in node.attribute:
            for graph in graphs_of(a):
                found += _nodes_within(graph.node, depth + 1)
    return found


def _of_model(model: onnx.ModelProto) -> Iterator[Any]:
    yield from (model.producer_name, model.producer_version, model.domain, model.doc_string)
    yield from (text for p in model.metadata_props for text in (p.key, p.value))
    yield from (o.domain for o in model.opset_import)
    for f in model.functions:
        yield from (f.name, f.domain, f.doc_string, *f.input, *f.output, *f.attribute)
        yield from (o.domain for o in f.opset_import)
        for node in f.node:
            yield from _of_node(node, 1, in_function=True)
    yield from _of_graph(model.graph, 0)


def _of_graph(graph: onnx.GraphProto, depth: int, in_function: bool = False) -> Iterator[Any]:
    if depth > MAX_DEPTH:
        raise InvalidModel(f"subgraphs are nested more than {MAX_DEPTH} deep; flatten the model")
    yield from (graph.name, graph.doc_string)
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from _of_type(info.type, 0)
    for tensor in graph.initializer:
        yield from _of_tensor(tensor)
    for sparse in graph.sparse_initializer:
        yield from _of_tensor(sparse.values)
    for node in graph.node:
        yield from _of_node(node, depth, in_function)


def _of_type(given: onnx.TypeProto, depth: int) -> Iterator[Any]:
    if depth > MAX_DEPTH:
        raise InvalidModel(f"a type is nested more than {MAX_DEPTH} deep; export the model again")
    kind = given.WhichOneof("value")
    if kind == "tensor_type":
        yield from (d.dim_param for d in given.tensor_type.shape.dim)
    elif kind in ("sequence_type", "optional_type"):
        yield from _of_type(getattr(given, kind).elem_type, depth + 1)


def _of_tensor(tensor: onnx.TensorProto) -> Iterator[Any]:
    yield tensor.name
    yield from (text for e in tensor.external_data for text in (e.key, e.value))


def _of_node(node: onnx.NodeProto, depth: int, in_function: bool = False) -> Iterator[Any]:
    yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for a in node.attribute:
        yield from (a.name, a.ref_attr_name)
        if a.ref_attr_name and not in_function:
            raise InvalidModel(f"{a.name} refers to an attribute of a function", node=node.name, op=node.op_type)
        if (node.op_type, a.name) in _NOT_NEGATIVE and a.i < 0:
            raise InvalidModel(f"{a.name} is {a.i}; it cannot be negative", node=node.name, op=node.op_type)
        for graph in graphs_of(a):
            yield from _of_graph(graph, depth + 1, in_function)
        if a.HasField("t"):
            yield from _of_tensor(a.t)
