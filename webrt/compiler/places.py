"""Which provider the caller wishes for nodes of the model."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping

import onnx

from webrt.compiler.control import outermost
from webrt.errors import InputError, InvalidModel
from webrt.ir import Graph, Node, graphs_of

PROVIDERS = ("webgpu", "cpu")
KEPT = "webrt.places"
"""The metadata of an optimised model that has the wishes it was placed with: JSON, providers by name of a node."""


def of(model: onnx.ModelProto, wished: Mapping[str, str], providers: Collection[str]) -> Mapping[str, str]:
    """The wishes, checked, and those that an optimised model was placed with, as far as the `providers` are there.

    Raises InputError for a node that the model does not have, and for another provider; InvalidModel for metadata
    that are no such table."""
    known = set(names_of(model.graph.node)) if wished else set[str]()
    for name, provider in wished.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise InputError(f"no node is named {name!r}{f'; there are {near}' if near else ''}")
        if provider not in PROVIDERS:
            raise InputError(f"node {name!r} cannot be placed on {provider!r}; use {' or '.join(PROVIDERS)}")
    return {**{name: p for name, p in _kept(model).items() if p in providers}, **wished}


def _kept(model: onnx.ModelProto) -> dict[str, str]:
    text = next((p.value for p in model.metadata_props if p.key == KEPT), "{}")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict) or not all(isinstance(p, str) and p in PROVIDERS for p in table.values()):
        raise InvalidModel(f"its metadata {KEPT!r} are no table of providers by node; export the model again")
    return table


def wished_for(node: Node, graph: Graph) -> str:
    """The provider that the caller wishes for a node, or for the one of the model that it came from; "" for none."""
    return wish_of(node, outermost(graph).places)


def wish_of(node: Node, places: Mapping[str, str]) -> str:
    """The provider in a table, by name of a node of the model; "" where it has none for this one."""
    return next((places[name] for name in (node.name, *node.sources) if name in places), "") if places else ""


def names_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The names of nodes, and of those in their subgraphs."""
    for node in nodes:
        yield node.name
        for a in node.attribute:
            for graph in graphs_of(a):
                yield from names_of(graph.node)
