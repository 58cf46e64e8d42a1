"""If whose branch is known before the run → the nodes of that branch; why other control flow stays as it is.

A condition is known where it is constant, or shape arithmetic. Where elements of scalar graph inputs decide it,
`why_not` names those inputs, so that a session compiles once for each of their values; where sizes of inputs decide it,
it names the condition, and a session compiles for each outcome. Everything else stays one node of the CPU provider.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt import dims as D
from webrt.compiler.splice import fresh_names, opsets_of, subgraph
from webrt.dims import Dim
from webrt.errors import ModelError, NotConstant, UnsupportedOp
from webrt.ir import Graph, Node, Value

MAX_TRIPS = 64
"""A loop is unrolled only into so many iterations."""
CONTROL = frozenset({"If", "Loop", "Scan"})

Array = np.ndarray[Any, Any]


def inline_known_branches(graph: Graph) -> bool:
    """If with a known condition → the nodes of the branch that is taken."""
    if not any(n.op == "If" for n in graph.nodes):
        return False
    out: list[Node] = []
    names = fresh_names(graph)
    for node in graph.nodes:
        condition = _truth(node.inputs[0], graph) if node.op == "If" and node.inputs else None
        if condition is None:
            out.append(node)
            continue
        branch = node.attr("then_branch" if condition else "else_branch")
        out += subgraph(node, branch, [], opsets_of(node, graph), names, node.outputs)[0]
    return replace_nodes(graph, out)


def why_not(node: Node, graph: Graph) -> ModelError:
    """Why a control-flow node stays as it is; NotConstant with the scalar graph inputs that decide its course."""
    scalars = {v.name for v in graph.inputs if v.static_shape is not None and v.elements == 1}
    deciding = node.inputs[: {"If": 1, "Loop": 2}.get(node.op_type, 0)]
    roots = frozenset().union(*(v.roots for v in deciding if v is not None and known(v) is None))
    if roots and roots <= scalars:
        names = ", ".join(sorted(roots))
        return NotConstant(f"what {node.op_type} does depends on the elements of {names}", roots=roots)
    if node.op_type == "If":
        condition = _size(node.inputs[0])
        sizes = {name for v in graph.inputs for d in v.shape or () for name in D.variables(d)}
        if condition is not None and D.variables(condition) <= sizes:
            program = {D.text(condition): D.program_of(condition)}
            return NotConstant("which branch is taken depends on sizes", conditions=program)
        return UnsupportedOp("the condition is not known before the run")
    return UnsupportedOp(
        f"{node.op_type} whose iterations are not known before the run, are more than {MAX_TRIPS}, or need the CPU"
    )


def replace_nodes(graph: Graph, nodes: list[Node]) -> bool:
    """Whether `nodes` are others than the graph's own, which they become."""
    changed = len(nodes) != len(graph.nodes) or any(a is not b for a, b in zip(nodes, graph.nodes, strict=True))
    graph.nodes[:] = nodes
    return changed


def _size(value: Value | None) -> Dim | None:
    """The only element of a value that is shape arithmetic."""
    return (
        value.contents.flat[0]
        if value is not None and value.contents is not None and value.contents.size == 1
        else None
    )


def _truth(value: Value | None, graph: Graph) -> bool | None:
    """Whether a condition holds, where that is known or assumed."""
    elements = known(value)
    if elements is not None and elements.size == 1:
        return bool(elements.reshape(-1)[0])
    size = _size(value)
    truth = None if size is None else graph.assumed.get(D.text(size))
    if truth is not None and size is not None:
        holds = size if truth else D.eq(size, 0)
        graph.checks[holds] = f"the plan is for sizes where {D.text(size)} is {'not 0' if truth else '0'}"
    return truth


def known(value: Value | None) -> Array | None:
    """The elements of a value that are known."""
    if value is None:
        return None
    if value.const is not None:
        return value.const
    if value.contents is not None and all(isinstance(d, int) for d in value.contents.flat):
        return value.contents.astype(np.int64)
    return None
