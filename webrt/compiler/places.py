"""Which provider the caller wishes for nodes of the model."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

import onnx

from webrt.compiler.control import outermost
from webrt.errors import InputError
from webrt.ir import Graph, Node, graphs_of

PROVIDERS = ("webgpu", "cpu")


def of(model: onnx.ModelProto, wished: Mapping[str, str]) -> Mapping[str, str]:
    """The wishes, checked. Raises InputError for a node that the model does not have, and for another provider."""
    known = set(_names(model.graph.node)) if wished else set[str]()
    for name, provider in wished.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise InputError(f"no node is named {name!r}{f'; there are {near}' if near else ''}")
        if provider not in PROVIDERS:
            raise InputError(f"node {name!r} cannot be placed on {provider!r}; use {' or '.join(PROVIDERS)}")
    return wished


def wished_for(node: Node, graph: Graph) -> str:
    """The provider that the caller wishes for a node, or for the one of the model that it came from; "" for none."""
    places = outermost(graph).places
    return next((places[name] for name in (node.name, *node.sources) if name in places), "") if places else ""


def _names(nodes: Iterator[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield node.name
        for a in node.attribute:
            for graph in graphs_of(a):
                yield from _names(graph.node)
