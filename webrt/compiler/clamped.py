"""Inputs whose elements are only bounds of slices: numbers as far out as int64 has mean the same as nearer ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from webrt.ir import Graph, Node, Value

_BOUNDS = (1, 2)
"""Slice's inputs `starts` and `ends`, from opset 10 on."""
_PASSING = frozenset({"Identity", "Unsqueeze", "Squeeze", "Concat"})
"""What hands elements of its inputs on as they are."""


def clamped(graph: Graph, structural: Collection[str]) -> list[str]:
    """The names of the graph's structural inputs that Slice alone reads, as starts or ends, which it clamps."""
    users = graph.users()
    return [v.name for v in graph.inputs if v.name in structural and _only_bounds(v, users, graph.outputs)]


def _only_bounds(value: Value, users: Mapping[Value, Sequence[Node]], outputs: Sequence[Value]) -> bool:
    waiting, seen = [value], {value}
    while waiting:
        v = waiting.pop()
        if v in outputs:
            return False
        for node in users.get(v, ()):
            if node.domain or v in node.outer or node.op_type not in ("Slice", *_PASSING):
                return False
            if node.op_type == "Slice":
                if any(i not in _BOUNDS for i, x in enumerate(node.inputs) if x is v):
                    return False
                continue
            made = [x for x in node.outputs if x is not None and x not in seen]
            seen.update(made)
            waiting += made
    return True
