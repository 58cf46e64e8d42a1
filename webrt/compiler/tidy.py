"""Basic passes that take away nodes which change nothing, and shorten chains of nodes that only rearrange."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses, known_ints, number
from webrt.dtypes import DType
from webrt.ir import Graph, Node, Value

_RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_SAME_SHAPE = _RESHAPES | {"Expand", "Tile"}
_REACH = 8
"""Reshapes that are looked through."""
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
UNCHANGED = ("Identity", "Cast", "Dropout", *_NEUTRAL, *sorted(_SAME_SHAPE), "Transpose", "Slice", "Pad", "Concat")
"""Operators that may change nothing."""


def remove_identities(graph: Graph) -> bool:
    """Identity, Dropout at inference, and Cast, Reshape, Transpose, Expand, Slice, Pad, x + 0, x · 1 … that change
    nothing → their input."""
    uses, kept = Uses(graph), list[Node]()
    for node in graph.nodes:
        source = _unchanged(node) if node.domain == "" and not node.outer else None
        if source is None or not uses.forward(node.output(0), source):
            kept.append(node)
    changed = len(kept) != len(graph.nodes)
    graph.nodes[:] = kept
    return changed


def shorten_chains(graph: Graph) -> bool:
    """Reshape, Transpose or Cast of one of its kind → one node that reads the first one's input."""
    uses, changed = Uses(graph), False
    for node in graph.nodes:
        rule = CHAINS.get(node.op)
        inner = node.input(0).producer if rule is not None and node.inputs else None
        if rule is None or inner is None or inner.op != node.op or inner.outputs != [node.input(0)]:
            continue
        if rule(inner, node):
            uses.replace_input(node, 0, inner.input(0))
            changed = True
    return changed


def _unchanged(node: Node) -> Value | None:
    """The input that the node's only used output equals."""
    if not node.has(0) or not node.wants(0) or any(node.wants(k) for k in range(1, len(node.outputs))):
        return None
    x, out = node.input(0), node.output(0)
    if x.dtype is None or x.dtype != out.dtype:
        return None
    if node.op not in UNCHANGED:
        return None
    if node.op in ("Identity", "Cast"):
        return x
    if node.op == "Dropout":
        return x if _is_inference(node) else None
    if node.op in _NEUTRAL:
        return _other_than(node, _NEUTRAL[node.op])
    if node.op in _RESHAPES and out.shape is not None:
        x = _before_reshapes(x, out)
    if x.shape is None or x.shape != out.shape:
        return None
    return x if node.op in _SAME_SHAPE or _moves_nothing(node) else None


def _before_reshapes(x: Value, out: Value) -> Value:
    """x, or what was reshaped to it, as far back as there is a tensor of out's shape."""
    v = x
    for _ in range(_REACH):
        if v.shape == out.shape:
            return v
        if v.producer is None or v.producer.op not in _RESHAPES:
            break
        v = v.producer.input(0)
    return x


def _other_than(node: Node, neutral: float) -> Value | None:
    """The operand of x + 0, 1 · x and their like, of the result's shape; of Sub and Div only the second is neutral."""
    a, b = node.input(0), node.input(1)
    for kept, other in ((a, b), (b, a)) if node.op in ("Add", "Mul") else ((a, b),):
        if _everywhere(other) == neutral and kept.shape is not None and kept.shape == node.output().shape:
            return kept
    return None


def _everywhere(v: Value) -> float | None:
    """The number that all elements are, where that is known."""
    fill = v.producer
    if fill is None or fill.op != "ConstantOfShape":
        return number(v)
    return float(fill.attr("value").reshape(-1)[0]) if "value" in fill.attrs else 0.0


def _moves_nothing(node: Node) -> bool:
    """For operators whose result may have the input's shape and still differ."""
    if node.op == "Transpose":
        rank = node.input(0).rank
        return [int(a) for a in node.attr("perm") or reversed(range(rank))] == list(range(rank))
    if node.op == "Slice":
        return set(known_ints(node, 4, "steps") or [1] * (not node.has(4))) == {1}
    if node.op == "Pad":
        pads = known_ints(node, 1, "pads")
        return pads is not None and not any(pads)
    return node.op == "Concat" and len(node.inputs) == 1


def _is_inference(node: Node) -> bool:
    if node.opset < 12:
        return node.opset >= 7
    mode = node.input(2).const if node.has(2) else None
    return not node.has(2) or (mode is not None and not mode.any())


def _join_reshapes(inner: Node, outer: Node) -> bool:
    """A 0 of the outer shape would mean another input's size."""
    if outer.opset < 5:
        return False
    contents = outer.input(1).contents
    sizes = list(contents.flat) if contents is not None else known_ints(outer, 1, "shape")
    return sizes is not None and all(isinstance(d, int) and d != 0 for d in sizes)


def _join_transposes(inner: Node, outer: Node) -> bool:
    if inner.input(0).shape is None:
        return False
    rank = inner.input(0).rank
    first, second = ([int(a) for a in n.attr("perm") or reversed(range(rank))] for n in (inner, outer))
    outer.attrs["perm"] = onnx.helper.make_attribute("perm", [first[a] for a in second])
    return True


def _join_casts(inner: Node, outer: Node) -> bool:
    """Only where the type between holds every value of the first."""
    source, between = inner.input(0).dtype, inner.output().dtype
    return source is not None and between is not None and _holds(between, source)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a type has every value of another."""
    if wide == narrow or narrow == T.BOOL:
        return True
    if wide in (*T.FLOATS, T.F64):
        small = wide.bits >= 32 and narrow in (*T.FLOATS, T.I8, T.U8, T.I16, T.U16)
        return wide in (T.F32, T.F64) and (small or (wide == T.F64 and narrow in (T.I32, T.U32)))
    integers = (T.I8, T.I16, T.I32, T.I64)
    return wide in integers and narrow in integers and wide.bits > narrow.bits


CHAINS: dict[str, Callable[[Node, Node], bool]] = {
    "Reshape": _join_reshapes,
    "Transpose": _join_transposes,
    "Cast": _join_casts,
}
"""Operators of which two become one, and what does so where it may."""
