"""What the basic passes share: who reads a value, and how one value takes another's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webrt import dtypes as T
from webrt.compiler.splice import fresh_names
from webrt.ir import Graph, Node, Value, constant


def expand(graph: Graph, made: Callable[[Uses, Node], list[Node] | None]) -> bool:
    """Puts the nodes that `made` makes of a node, more than one, in its place; says whether there were any."""
    uses, out = Uses(graph), list[Node]()
    for node in graph.nodes:
        out += made(uses, node) or [node]
    changed = len(out) != len(graph.nodes)
    graph.nodes[:] = out
    return changed


class Uses:
    """Readers of every value of a graph, kept up to date while a pass goes through its nodes.

    `fixed` are values whose names must stay: the graph's outputs and what subgraphs capture."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = graph.users()
        self.captured = {v for n in graph.nodes for v in n.outer}
        self.fixed = {*graph.outputs, *self.captured}
        self._names = fresh_names(graph)

    def alone(self, v: Value, reader: Node) -> bool:
        """Whether `reader` is the only one who needs the value."""
        return v not in self.fixed and all(n is reader for n in self.readers.get(v, []))

    def forward(self, out: Value, source: Value) -> bool:
        """Lets readers of `out` read `source`, which equals it; an output of the graph is made by source's own
        producer then. Returns False where a name would be lost."""
        if out not in self.fixed:
            self._redirect(out, source)
            return True
        producer = source.producer
        if out in self.captured or source in self.fixed or producer is None or source not in producer.outputs:
            return False
        producer.outputs = [out if v is source else v for v in producer.outputs]
        out.producer = producer
        self._redirect(source, out)
        return True

    def replace_input(self, node: Node, index: int, value: Value | None) -> None:
        """Gives `node` another input `index`; one after its last is added."""
        old = node.inputs[index] if index < len(node.inputs) else None
        node.inputs[index:] = [value, *node.inputs[index + 1 :]]
        if old is not None and old not in node.inputs:
            self.readers[old] = [n for n in self.readers.get(old, []) if n is not node]
        if value is not None:
            self.readers.setdefault(value, []).append(node)

    def constant(self, array: np.ndarray[Any, Any], like: Value) -> Value | None:
        """A new constant in like's type; None where the numbers overflow it, or it is no f32 or f16."""
        if like.dtype not in (T.F32, T.F16):
            return None
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(array.astype(like.dtype.name))
        if not np.isfinite(stored).all():
            return None
        return constant(self.name(), stored, like.dtype)

    def name(self) -> str:
        """A name that no value has."""
        return next(self._names)

    def _redirect(self, old: Value, new: Value) -> None:
        for node in self.readers.pop(old, []):
            node.inputs = [new if v is old else v for v in node.inputs]
            self.readers.setdefault(new, []).append(node)


def number(v: Value | None) -> float | None:
    """The value of a constant of one element."""
    if v is None or v.const is None or v.const.size != 1 or v.const.dtype.kind not in "fiu":
        return None
    return float(v.const.reshape(-1)[0])


def is_plain_gemm(node: Node) -> bool:
    """Whether a Gemm is x · w (turned or not) + c: no factors, and x as it is."""
    factors = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    return factors == (1.0, 1.0) and not node.attr("transA", 0)


def known_ints(node: Node, index: int, attribute: str) -> list[int] | None:
    """The integers of an input, or of the attribute that it was at lower opsets; None where they are not known."""
    if node.has(index):
        array = node.input(index).const
        return None if array is None else [int(x) for x in array.flat]
    given = node.attr(attribute) if attribute in node.attrs else None
    return None if given is None else [int(x) for x in given]
