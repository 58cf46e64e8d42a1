"""If whose branch is known before the run → the nodes of that branch; what else decides the course of control flow.

A condition is known where it is constant, or shape arithmetic with one outcome for all sizes within their bounds.
Where elements of scalar graph inputs decide it, `depends_on` names those inputs, so that a session compiles once for
each of their values; where sizes of inputs decide it, it names the condition, and a session compiles for each outcome.
Everything else is decided at the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from webrt import dims as D
from webrt.compiler.body import Control
from webrt.compiler.splice import fresh_names, opsets_of, subgraph
from webrt.dims import Dim
from webrt.errors import NotConstant, ShapeError, UnsupportedOp, UnsupportedType
from webrt.ir import Graph, Node, Value

MAX_TRIPS = 64
"""A loop is unrolled only into so many iterations."""
MAX_TRIED = 4096
"""A condition on sizes is computed for so many, at most, to see whether it has one outcome for all of them."""
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


def depends_on(node: Node, graph: Graph) -> NotConstant | None:
    """What an If's course depends on that the caller could tell beforehand: elements of scalar inputs, or sizes."""
    fed = outermost(graph).inputs
    condition = node.inputs[0] if node.op == "If" else None
    if condition is None or known(condition) is not None:
        return None
    scalars = {v.name for v in fed if v.static_shape is not None and v.elements == 1}
    if condition.roots and condition.roots <= scalars:
        names = ", ".join(sorted(condition.roots))
        return NotConstant(f"what {node.op_type} does depends on the elements of {names}", roots=condition.roots)
    size = _size(condition)
    sizes = {name for v in fed for d in v.shape or () for name in D.variables(d)}
    if size is None or not D.variables(size) <= sizes:
        return None
    program = {D.text(size): D.program_of(size)}
    return NotConstant("which branch is taken depends on sizes", conditions=program)


def outermost(graph: Graph) -> Graph:
    """The model's own graph."""
    return graph if graph.around is None else outermost(graph.around)


def check_step(step: Control) -> None:
    """Raises UnsupportedType or UnsupportedOp for what the executors do not move between a step and its bodies."""
    for v in [*step.node.outputs, *(o for b in step.bodies for o in b.carried)]:
        if v is not None and (v.dtype is None or not v.dtype.on_device):
            raise UnsupportedType(f"devices hold no {v.dtype or 'sequences, optionals or maps'}")
        if v is not None and v.shape is None:
            raise UnsupportedOp(f"the rank of {v.told} is not known before the run")
    for body in step.bodies:
        made = body.graph.outputs[body.again + len(body.state) :] if body.lines else []
        for v in [*(b for _, b, _ in body.elements), *made]:
            if v.dtype is None or v.shape is None or D.mod(D.mul(v.elements, v.dtype.bits), 32) != 0:
                raise UnsupportedOp(f"an element of {v!r} is not made of whole 32-bit words")
        if step.node.op == "Scan" and any(step.node.attr("scan_output_axes", [])):
            raise UnsupportedOp("a scan output that is not stacked on the first axis")


def checks_of(step: Control) -> list[tuple[Dim, str]]:
    """What must hold at a run: the sequences of a Scan are equally long."""
    out: list[tuple[Dim, str]] = []
    for body in step.bodies:
        lengths = [a.known_shape[0] for a, _, _ in body.elements]
        for n in lengths[1:]:
            holds = D.eq(n, lengths[0])
            said = f"{step.node.op_type} {step.node.name!r}: the scanned inputs have {lengths[0]} and {n} elements"
            if holds == 0:
                raise ShapeError(said)
            if not isinstance(holds, int):
                out.append((holds, said))
    return out


def how_decided(step: Control) -> str:
    """What is read back to decide the course; empty where nothing is."""
    late = [v for v in step.deciding if known(v) is None and v.contents is None and v.producer is not None]
    late += [b.graph.outputs[0] for b in step.bodies if b.again and b.graph.outputs[0].producer is not None]
    return f"reads back {' and '.join(repr(v.name) for v in late)}" if late else ""


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
    if size is None:
        return None
    for_all = _for_all(size, graph.ranges)
    if for_all is not None:
        return for_all
    truth = graph.assumed.get(D.text(size))
    if truth is not None:
        holds = size if truth else D.eq(size, 0)
        graph.checks[holds] = f"the plan is for sizes where {D.text(size)} is {'not 0' if truth else '0'}"
    return truth


def _for_all(size: Dim, ranges: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether a size is never 0, or always, where those that it is computed of are within their bounds; None where it
    is now this and now that, has no value somewhere, or they are too many to try."""
    names = sorted(D.variables(size))
    if not names or not ranges.keys() >= set(names):
        return None
    spans = [range(low, high + 1) for low, high in (ranges[n] for n in names)]
    if math.prod(len(s) for s in spans) > MAX_TRIED:
        return None
    program = D.program_of(size)
    try:
        found = {bool(D.evaluate(program, dict(zip(names, sizes)))[-1]) for sizes in itertools.product(*spans)}
    except ShapeError:
        return None
    return found.pop() if len(found) == 1 else None


def known(value: Value | None) -> Array | None:
    """The elements of a value that are known."""
    if value is None:
        return None
    if value.const is not None:
        return value.const
    if value.contents is not None and all(isinstance(d, int) for d in value.contents.flat):
        return value.contents.astype(np.int64)
    return None
