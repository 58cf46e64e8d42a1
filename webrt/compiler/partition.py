"""Who runs what: a node goes to the first provider of the list that takes it; a reason says why not an earlier one.

The CPU takes every node, so what follows it in the list gets only what the caller places there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webrt import dims as D
from webrt import lowering
from webrt.compiler import control, places
from webrt.compiler.body import Body, Control, every
from webrt.compiler.infer import guarded, located, variables_for
from webrt.dims import Dim
from webrt.errors import (
    InvalidModel,
    NotConstant,
    PlacementError,
    ShapeError,
    UnsupportedOp,
    UnsupportedType,
)
from webrt.ir import Graph, Node, Value
from webrt.lowering import Builder, Elementwise, Lowered, Operand, ReadBack
from webrt.ops.vectors import Epilogue
from webrt.target import Target

STAYS = {
    "ImageDecoder": "it decodes files (JPEG, PNG and their like): branches bit by bit, no work for a device",
    "TfIdfVectorizer": "it looks up n-grams in a table of any size: cheaper on the CPU",
    "ai.onnx.ml": "ai.onnx.ml: rows of tables, trees and labels, which are cheaper on the CPU",
}
"""Operators and domains that are meant to run on the CPU, and why."""


@dataclass
class Placed:
    """A node with its place. `how`: "kernel", "copy", "alias", "folded" (its outputs are sizes), "fused"
    (computed by another node's kernel), "branch", "loop" or "host". `elementwise`: which of its steps are plain
    formulas; `parts`: the other nodes that they compute; `moves`: which values are views of another (out, source,
    View); `source`: the formulas that a reduction begins with."""

    node: Node
    how: str
    reason: str = ""
    steps: Sequence[Lowered | Control] = ()
    checks: list[tuple[Dim, str]] = field(default_factory=list)
    elementwise: list[Elementwise] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    moves: list[tuple[Value, Operand, Any]] = field(default_factory=list)
    source: Epilogue | None = None


@dataclass
class Demands:
    """Values whose elements lowerings asked for in vain: `structural` can become variables of the plan, `roots` are
    graph inputs that the caller would have to give, `conditions` sizes of which one has to know whether they are 0.
    `refused`: what is wrong with nodes that no provider of the list takes."""

    structural: set[str] = field(default_factory=set)
    roots: set[str] = field(default_factory=set)
    conditions: dict[str, list[list[Any]]] = field(default_factory=dict)
    refused: list[PlacementError] = field(default_factory=list)

    def take(self, other: Demands) -> None:
        """These too."""
        self.structural |= other.structural
        self.roots |= other.roots
        self.conditions |= other.conditions
        self.refused += other.refused


def partition(
    graph: Graph, providers: Sequence[str], target: Target, structural: set[str],
    around: Mapping[str, Value] | None = None,
) -> tuple[list[Placed], Demands]:  # fmt: skip
    """Places every node; one that no provider of the list takes is `refused` among the demands. `around`: the values
    of the graphs that a body stands in, by name."""
    demands = Demands()
    by_name = {**{v.name: v for v in graph.values()}, **(around or {})}
    placed = [_place(i, n, graph, providers, target, structural, by_name, demands) for i, n in enumerate(graph.nodes)]
    return placed, demands


def _place(
    index: int, node: Node, graph: Graph, providers: Sequence[str], target: Target, structural: set[str],
    by_name: dict[str, Value], demands: Demands,
) -> Placed:  # fmt: skip
    graph.bounds.check("lowering")
    wished = places.wished_for(node, graph)
    if "webgpu" in providers and (providers[0] == "webgpu" or wished == "webgpu"):
        outputs = [v for v in node.outputs if v is not None]
        if any(v.name in structural for v in outputs):
            reason = "its integers decide sizes"
        elif outputs and all(v.contents is not None for v in outputs):
            return Placed(node, "folded", "shape arithmetic")
        elif wished == "cpu":
            reason = "the caller places it there"
        else:
            try:
                if node.op in control.CONTROL:
                    return _control(node, graph, providers, target, structural, by_name, demands)
                return _on_device(index, node, target)
            except NotConstant as e:
                _demand(e, by_name, demands)
                reason = e.what
            except (UnsupportedOp, UnsupportedType) as e:
                reason = e.what
            except (ShapeError, InvalidModel) as e:
                raise located(e, node) from None
    else:
        reason = f"the WebGPU provider is not {'first ' if 'webgpu' in providers else ''}in the list"
    if "cpu" not in providers or wished == "webgpu":
        error = PlacementError(f"no provider of the session runs it: {reason}; add CPUExecutionProvider")
        if wished == "webgpu":
            error = PlacementError(f"the caller places it on WebGPU, which does not run it: {reason}")
        located(error, node)
        demands.refused.append(error)
    return Placed(node, "host", reason)


def _control(
    node: Node, graph: Graph, providers: Sequence[str], target: Target, structural: set[str],
    by_name: dict[str, Value], demands: Demands,
) -> Placed:  # fmt: skip
    """An If, a Loop or a Scan as a step whose bodies are placed node by node."""
    undecided = control.depends_on(node, graph)
    bodies: list[Body] | None = graph.opener.of(node) if graph.opener is not None else None
    if undecided is not None and (bodies is None or undecided.roots):
        raise undecided
    demands.conditions |= undecided.conditions if undecided is not None else {}
    if bodies is None:
        what = node.declined.what if node.declined is not None else "its subgraphs were not opened"
        raise UnsupportedOp(what)
    step = Control(node, tuple(bodies))
    try:
        control.check_step(step)
    except (UnsupportedOp, UnsupportedType) as e:
        if undecided is not None:
            sizes = sorted(name for program in undecided.conditions.values() for name in D.variables_of(program))
            e.what += f", and which branch makes it depends on {', '.join(sizes)}: fix these sizes, or bound them"
        raise e.at() from None
    inner = Demands()
    for body in bodies:
        body.placed, found = partition(body.graph, providers, target, structural, by_name)
        if body.placed:
            body.placed[0].checks += body.graph.checks.items()
        inner.take(found)
        names = {**by_name, **{v.name: v for v in body.graph.values()}}
        for name in body.wanted & set(names):
            _demand(NotConstant("", wanted=name, roots=names[name].roots), names, inner)
    if not any(p.how in ("kernel", "copy") for b in bodies for p in every(b.placed)):
        raise UnsupportedOp("nothing within it is work for a device")
    outermost = control.outermost(graph)
    inner.roots &= {v.name for v in outermost.inputs}
    demands.take(inner)
    how = "branch" if node.op == "If" else "loop"
    return Placed(node, how, control.how_decided(step), [step], control.checks_of(step))


def _on_device(index: int, node: Node, target: Target) -> Placed:
    touched = [v for v in [*node.given(), *node.outputs] if v is not None]
    for v in touched:
        if not _held(v):
            raise UnsupportedType(f"devices hold no {v.dtype or 'sequences, optionals or maps'}")
    op = lowering.find(node.domain, node.op_type, node.opset)
    if op is None:
        why = STAYS.get(node.op) or STAYS.get(node.domain)
        raise UnsupportedOp(why or f"no WebGPU kernel for {node.op} at opset {node.opset}")
    if node.declined is not None:
        raise node.declined
    for v in touched:
        if v.dtype is None:
            raise UnsupportedType(f"the type of {v.told} is not known")
        if v.shape is None:
            raise NotConstant(f"the rank of {v.told} is not known before the run", wanted=v.name, roots=v.roots)
    builder = Builder(target, f"{index}.{node.op_type}")
    with guarded():
        op.lower(node, builder)
    reads = sum(isinstance(s, ReadBack) for s in builder.steps)
    reason = "" if not reads else "reads back the size of its output" if reads == 1 else f"reads back {reads} sizes"
    kinds = {type(s).__name__ for s in builder.steps}
    how = "kernel" if "Launch" in kinds else "copy" if "CopyBytes" in kinds else "alias"
    _check_sizes(node, builder)
    checks = [(holds, f"{_title(node)}: {what.removeprefix(f'{node.op_type}: ')}") for holds, what in builder.checks]
    return Placed(node, how, reason, builder.steps, checks, builder.elementwise, [], builder.moves)


def _check_sizes(node: Node, b: Builder) -> None:
    """Sizes that the inputs' elements decide are not negative; sizes that this node broadcasts do so."""
    before = {d for v in node.given() for d in v.known_shape}
    made = [(v, a, d) for v in node.outputs if v is not None for a, d in enumerate(v.known_shape) if d not in before]
    for size in [*node.broadcasts, *(d for _, _, d in made)]:
        for one, other in D.broadcast_pairs(size, before):
            b.check(D.broadcastable(one, other), f"sizes {one} and {other} do not broadcast")
    for v, a, size in made:
        if not D.at_least(size, 0) and any(name.startswith("in:") for name in D.variables(size)):
            b.check(D.le(0, size), f"axis {a} of the output {v.name!r} would have a negative size: {D.brief(size)}")


def _title(node: Node) -> str:
    if node.caller is not None:
        return f"{_title(node.caller)}, its {node.op}"
    return f"{node.op} {node.name!r}" if node.name else node.op


def _held(v: Value) -> bool:
    """Whether a value is of a kind that devices can hold, as far as that is known."""
    if v.dtype is not None:
        return v.dtype.on_device
    return v.type_proto is None or v.type_proto.WhichOneof("value") in (None, "tensor_type")


def _demand(error: NotConstant, by_name: dict[str, Value], demands: Demands) -> None:
    demands.conditions |= error.conditions
    values = [by_name[w] for w in error.wanted if w in by_name]
    found = variables_for(values, by_name)
    if found:
        demands.structural |= found
    elif error.roots and "" not in error.roots:
        demands.roots |= error.roots
