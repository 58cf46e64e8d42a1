"""What would crash the libraries that read a model, refused before they see it.

Protobuf reads names that are no UTF-8 and fails where they are used; ONNX's C++ takes some attributes as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from webrt.errors import InvalidModel

_NOT_NEGATIVE = {("GatherND", "batch_dims")}
"""Attributes with which ONNX's shape inference reads beyond its arrays where they are negative."""

MAX_DEPTH = 64
"""How deep subgraphs may be nested."""


def check(model: onnx.ModelProto) -> None:
    """Raises InvalidModel where a text is no UTF-8, subgraphs nest too deep, or an attribute would crash ONNX."""
    try:
        for text in _of_model(model):
            if not isinstance(text, str):
                raise InvalidModel(f"a text is no UTF-8: {text!r}; export the model again")
    except UnicodeDecodeError as e:
        raise InvalidModel(f"a text is no UTF-8 ({e}); export the model again") from e


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
        if a.HasField("g"):
            yield from _of_graph(a.g, depth + 1, in_function)
        for graph in a.graphs:
            yield from _of_graph(graph, depth + 1, in_function)
        if a.HasField("t"):
            yield from _of_tensor(a.t)
