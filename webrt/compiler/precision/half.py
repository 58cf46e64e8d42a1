"""Half precision: f32 tensors → f16 ones, with f32 islands where numbers would overflow or an operator has no f16 form.

Inputs and outputs of the graph keep their types. Without samples the islands are what may leave f16's range whatever
its input is; with samples, what left it there (by a margin), too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.precision.calibrate import Sample, ranges_of
from webrt.compiler.rewrite import Uses
from webrt.errors import InvalidModel
from webrt.ir import Graph, Node, Value

Places: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Which inputs and which outputs of a node are f16."""
LARGEST = 65504.0
MARGIN = 4.0
"""How much farther than on the samples a value may go."""

GROWING = frozenset(
    {
        "CumProd", "CumSum", "Det", "Einsum", "Exp", "Pow", "Range", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
        "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reciprocal", "Sum",
    }
)  # fmt: skip
"""Operators whose results may be out of range though their inputs are not; f32 where no sample tells."""
SCALES = {"com.microsoft:MatMulNBits": 2, "com.microsoft:GatherBlockQuantized": 2}
"""Which input of an operator scales its weights, which are codes of few bits."""


def to_half(graph: Graph, samples: Sequence[Sample]) -> dict[str, Any]:
    """Rewrites the graph; tells how many nodes are in f16, and which float ones stay in f32, with the reason."""
    islands: dict[str, str] = {}
    halves: dict[Node, Places] = {}
    out_of_range = _out_of_range(graph, samples)
    for node in graph.nodes:
        if not any(v.dtype == T.F32 for v in (*node.given(), *_made(node))):
            continue
        places = _half_places(node)
        reason = _keeps_f32(node, out_of_range, bool(samples))
        if places is not None and not reason:
            halves[node] = places
        else:
            name = node.name or next(v.name for v in _made(node))
            islands[name] = f"{node.op}: {reason or 'it has no form in f16'}"
    _rewrite(graph, halves)
    return {"nodes": len(halves), "islands": islands}


def _keeps_f32(node: Node, out_of_range: set[str], sampled: bool) -> str:
    """Why a node stays in f32; nothing where it need not."""
    if node.outer or any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attrs.values()):
        return "it has subgraphs"
    if node.op in GROWING and not sampled:
        return "it may leave the range of f16; a sample of the inputs would tell"
    for value in (*node.given(), *_made(node)):
        if value.name in out_of_range:
            return f"{value.name} leaves the range of f16"
        if value.dtype == T.F32 and value.const is not None and not _fits(value, _largest_code(node, value)):
            return f"the constant {value.name} leaves the range of f16"
    return ""


def _largest_code(node: Node, value: Value) -> int:
    """What an element of this constant is multiplied by where it is a scale of weights in few bits; else 1."""
    place = SCALES.get(node.op)
    if place is None or value is not node.inputs[place]:
        return 1
    symmetric = node.op == "com.microsoft:MatMulNBits" and (len(node.inputs) < 4 or node.inputs[3] is None)
    bits = int(node.attr("bits", 4))
    return 1 << (bits - 1) if symmetric else (1 << bits) - 1


def _out_of_range(graph: Graph, samples: Sequence[Sample]) -> set[str]:
    if not samples:
        return set()
    names = {v.name for v in graph.values() if v.dtype == T.F32 and v.const is None}
    return {name for name, r in ranges_of(graph, samples, names, bins=False).items() if r.top * MARGIN > LARGEST}


def _fits(value: Value, factor: int = 1) -> bool:
    """Whether all elements, times `factor`, are finite in f16."""
    with np.errstate(over="ignore", invalid="ignore"):
        return value.const is None or bool(np.isfinite((value.const * factor).astype(np.float16)).all())


def _half_places(node: Node) -> Places | None:
    """The f32 inputs and outputs that the schema lets be f16; nothing where there is none of the first.

    An output whose type no input decides (but an attribute, say) stays f32."""
    try:
        schema = node.schema
    except InvalidModel:
        return None
    if "dtype" in schema.attributes or "output_dtype" in schema.attributes:
        return None  # where it is absent, an input's type decides the output's
    halves = {c.type_param_str for c in schema.type_constraints if "tensor(float16)" in c.allowed_type_strs}

    def fitting(formals: Sequence[Any], values: Sequence[Value | None], among: set[str]) -> dict[int, str]:
        names = {i: formals[min(i, len(formals) - 1)].type_str for i, v in enumerate(values) if v and v.dtype == T.F32}
        return {i: name for i, name in names.items() if name in among}

    read = fitting(schema.inputs, node.inputs, halves)
    made = fitting(schema.outputs, node.outputs, set(read.values()))
    return (tuple(read), tuple(made)) if read else None


def _rewrite(graph: Graph, halves: Mapping[Node, Places]) -> None:
    """Every f32 value that a half node makes gets a Cast of its f16 twin; casts that nobody reads are dead."""
    uses, nodes, twins = Uses(graph), list[Node](), dict[Value, Value]()
    opset = max(graph.opsets.get("", 13), 6)
    for node in graph.nodes:
        if node not in halves:
            nodes.append(node)
            continue
        reads, writes = halves[node]
        for i in reads:
            v = node.input(i)
            if v not in twins:
                twins[v] = Value(uses.name(), T.F16, v.shape)
                nodes += _narrowed(v, twins[v], opset)
            node.inputs[i] = twins[v]
        nodes.append(node)
        for i in writes:
            v = node.output(i)
            twins[v] = node.outputs[i] = Value(uses.name(), T.F16, v.shape, producer=node)
            nodes.append(_cast(twins[v], v, opset))
    graph.nodes[:] = nodes


def _narrowed(value: Value, twin: Value, opset: int) -> list[Node]:
    """What makes the twin: nothing for a constant, which is stored as f16."""
    if value.const is None:
        return [_cast(value, twin, opset)]
    twin.const = value.const.astype(np.float16)
    return []


def _cast(source: Value, target: Value, opset: int) -> Node:
    code = T.F16.code if target.dtype == T.F16 else T.F32.code
    made = Node(
        "Cast", "", f"{source.name}/Cast", [source], [target], opset, {"to": onnx.helper.make_attribute("to", code)}
    )
    target.producer = made
    return made


def _made(node: Node) -> list[Value]:
    return [v for v in node.outputs if v is not None]
