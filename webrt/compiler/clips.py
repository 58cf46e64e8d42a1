"""A basic pass that joins bounds: Relu and Clip after one another."""

from __future__ import annotations

import math

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses, number
from webrt.ir import Graph, Node

Bounds = tuple[float, float]


def join_clips(graph: Graph) -> bool:
    """Clip(Relu(x)), Relu(Clip(x)), Clip(Clip(x)) and Relu(Relu(x)) of constant bounds → one Clip, or Relu."""
    uses, changed = Uses(graph), False
    for node in graph.nodes:
        inner = node.input(0).producer if node.op in ("Relu", "Clip") and node.has(0) else None
        if inner is None or inner.op not in ("Relu", "Clip") or inner.outputs != [node.input(0)]:
            continue
        first, second = _bounds(inner), _bounds(node)
        if first is None or second is None or not uses.alone(node.input(0), node):
            continue
        if _bind(uses, node, (_clip(first[0], second), _clip(first[1], second))):
            uses.replace_input(node, 0, inner.input(0))
            changed = True
    return changed


def _clip(x: float, bounds: Bounds) -> float:
    return min(max(x, bounds[0]), bounds[1])


def _bounds(node: Node) -> Bounds | None:
    """What the elements of a float tensor are kept between, where that is known and in order."""
    if node.input(0).dtype not in (T.F32, T.F16):
        return None
    if node.op == "Relu":
        return 0.0, math.inf
    found: list[float] = []
    most = _most(node)
    for k, (name, default) in enumerate((("min", -most), ("max", most)), 1):
        given = number(node.input(k)) if node.has(k) else float(node.attr(name, default))
        if given is None or math.isnan(given):
            return None
        found.append(given)
    return (found[0], found[1]) if found[0] <= found[1] else None


def _most(node: Node) -> float:
    """The largest finite number of the tensor's type, which is Clip's bound where none is given."""
    return float(np.finfo(np.float16 if node.input(0).dtype == T.F16 else np.float32).max)


def _bind(uses: Uses, node: Node, bounds: Bounds) -> bool:
    """Makes the node a Clip between the bounds (a Relu where it is one); False where they are too large to store."""
    if bounds == (0.0, math.inf):
        node.op_type, node.attrs, node.inputs[1:] = "Relu", {}, []
        return True
    held = [uses.constant(np.array(x), node.input(0)) for x in bounds]
    if None in held:
        return False
    if node.opset < 11:
        node.attrs = {n: onnx.helper.make_attribute(n, x) for n, x in zip(("min", "max"), bounds, strict=True)}
    else:
        for k, v in enumerate(held, 1):
            uses.replace_input(node, k, v)
        node.attrs = {}
    node.op_type = "Clip"
    return True
