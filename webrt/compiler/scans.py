"""Scan along any axes → Scan along first axes, between transposes. Source: the ONNX text of Scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx

from webrt.compiler.control import replace_nodes
from webrt.compiler.splice import fresh_names
from webrt.ir import Graph, Node, Value
from webrt.lowering import normalize_axis


def straighten_scans(graph: Graph) -> bool:
    """Scans that a plan is to run as loops, with axes other than the first → Scans without, between Transposes."""
    crooked = [n for n in graph.nodes if graph.opener is not None and n.op == "Scan" and n.opset >= 9 and _axes(n)]
    if not crooked:
        return False
    names = fresh_names(graph)
    made = [x for n in graph.nodes for x in (_straight(n, names) if n in crooked else [n])]
    return replace_nodes(graph, made)


def _axes(node: Node) -> bool:
    return any(a for key in ("scan_input_axes", "scan_output_axes") for a in node.attr(key, []))


def _straight(node: Node, names: Iterator[str]) -> list[Node]:
    """The Scan between transposes; as it is while a rank is not known."""
    count = int(node.attr("num_scan_inputs"))
    first = len(node.inputs) - count
    given, axes = [node.input(k) for k in range(first, len(node.inputs))], _flags(node, "scan_input_axes", count)
    made = node.outputs[first:]
    ends = _flags(node, "scan_output_axes", len(made))
    crooked = [v for v, a in zip(made, ends, strict=True) if v is not None and a]
    if any(v.shape is None for v in given) or any(v.shape is None for v in crooked):
        return [node]
    before, after = [], []
    inputs, outputs = list(node.inputs), list(node.outputs)
    for k, (v, a) in enumerate(zip(given, axes, strict=True)):
        if axis := normalize_axis(a, v.rank):
            moved = Value(next(names))
            before.append(_transpose(node, v, moved, [axis, *(i for i in range(v.rank) if i != axis)]))
            inputs[first + k] = moved
    for k, (out, a) in enumerate(zip(made, ends, strict=True)):
        if out is not None and (axis := normalize_axis(a, out.rank)):
            stacked = Value(next(names))
            after.append(_transpose(node, stacked, out, [*range(1, axis + 1), 0, *range(axis + 1, out.rank)]))
            outputs[first + k] = stacked
    attrs = {k: v for k, v in node.attrs.items() if k not in ("scan_input_axes", "scan_output_axes")}
    scan = replace(node, inputs=inputs, outputs=outputs, attrs=attrs)
    for value in outputs:
        if value is not None:
            value.producer = scan
    for other in after:
        other.output().producer = other
    return [*before, scan, *after]


def _transpose(node: Node, source: Value, out: Value, perm: Sequence[int]) -> Node:
    attrs = {"perm": onnx.helper.make_attribute("perm", list(perm))}
    name = f"{node.name}/Transpose"
    made = Node("Transpose", "", name, [source], [out], node.opset, attrs, sources=node.sources)
    out.producer = made
    return made


def _flags(node: Node, name: str, count: int) -> list[int]:
    given = list(node.attr(name, []))
    return given + [0] * (count - len(given))
