"""Basic passes that move constant factors, summands, batch statistics and padding into weights and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses, known_ints, number
from webrt.ir import Graph, Node, Value

Array = np.ndarray[Any, Any]

_CONVS = ("Conv", "ConvTranspose")
_FACTORS = frozenset({"Mul", "Div"})
_SUMMANDS = frozenset({"Add", "Sub"})


def split_batch_norms(graph: Graph) -> bool:
    """BatchNormalization of f32 with constant statistics → a Mul and an Add per channel."""
    uses, out = Uses(graph), list[Node]()
    for node in graph.nodes:
        out += _as_mul_and_add(uses, node) or [node]
    changed = len(out) != len(graph.nodes)
    graph.nodes[:] = out
    return changed


def fold_into_weights(graph: Graph) -> bool:
    """Conv, ConvTranspose or MatMul with constant weights, then Mul, Div, Add or Sub of a constant per output channel →
    other weights and bias. (MatMul has no bias: only factors.)"""
    uses, kept, changed = Uses(graph), list[Node](), False
    for node in graph.nodes:
        heavy, operand = _scaled(uses, node)
        if heavy is None or operand is None or not _fold(uses, heavy, node, operand):
            kept.append(node)
            continue
        heavy.outputs, node.output().producer, changed = [node.output()], heavy, True
    graph.nodes[:] = kept
    return changed


def join_constants(graph: Graph) -> bool:
    """x · a · b and x + a + b of f32 constants → one operation with a · b, or a + b."""
    uses, changed = Uses(graph), False
    for node in graph.nodes:
        if node.op not in ("Mul", "Add"):
            continue
        x, second = _with_constant(node)
        inner = x.producer if x is not None else None
        if x is None or second is None or inner is None or inner.op != node.op or not uses.alone(x, node):
            continue
        source, first = _with_constant(inner)
        if source is None or first is None or first.const is None or second.const is None or first.dtype != T.F32:
            continue
        wide = [v.const.astype(np.float64) for v in (first, second) if v.const is not None]
        if not _contains(wide[0].shape, wide[1].shape):
            continue
        joined = uses.constant(wide[0] * wide[1] if node.op == "Mul" else wide[0] + wide[1], first)
        if joined is not None:
            uses.replace_input(node, node.inputs.index(x), source)
            uses.replace_input(node, node.inputs.index(second), joined)
            changed = True
    return changed


def _contains(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast to one of them."""
    try:
        return np.broadcast_shapes(a, b) in (a, b)
    except ValueError:
        return False


def fold_padding(graph: Graph) -> bool:
    """Pad with zeros around the image, then Conv → Conv with larger pads; likewise AveragePool that counts padding."""
    uses, changed = Uses(graph), False
    for node in graph.nodes:
        if node.op not in ("Conv", "AveragePool") or node.attr("auto_pad", "NOTSET") != "NOTSET":
            continue
        pad = node.input(0).producer
        more = _zeros_around(pad) if pad is not None and pad.outputs == [node.input(0)] else None
        if pad is None or more is None or (node.op == "AveragePool" and not _may_count_padding(node)):
            continue
        own = [int(k) for k in node.attr("pads") or [0] * len(more)]
        node.attrs["pads"] = onnx.helper.make_attribute("pads", [a + b for a, b in zip(own, more, strict=True)])
        if node.op == "AveragePool":
            node.attrs["count_include_pad"] = onnx.helper.make_attribute("count_include_pad", 1)
        uses.replace_input(node, 0, pad.input(0))
        changed = True
    return changed


def _as_mul_and_add(uses: Uses, node: Node) -> list[Node] | None:
    if node.op != "BatchNormalization" or node.opset < 7 or node.attr("training_mode", 0):
        return None
    if any(node.wants(k) for k in range(1, len(node.outputs))) or node.input(0).shape is None:
        return None
    x, constants = node.input(0), [node.input(k).const for k in range(1, 5)]
    if x.dtype != T.F32 or x.rank < 2 or not node.attr("spatial", 1):
        return None
    scale, bias, mean, var = (None if a is None else a.astype(np.float64) for a in constants)
    if scale is None or bias is None or mean is None or var is None:
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + float(node.attr("epsilon")))
    shape = (-1, *[1] * (x.rank - 2))
    by, plus = (uses.constant(a.reshape(shape), x) for a in (factor, bias - mean * factor))
    if by is None or plus is None:
        return None
    between = Value(uses.name(), x.dtype, x.shape, roots=x.roots)
    opset = max(7, uses.graph.opsets.get("", 7))
    mul = Node("Mul", "", f"{node.name}/Mul", [x, by], [between], opset, sources=node.sources)
    add = Node("Add", "", f"{node.name}/Add", [between, plus], [node.output()], opset, sources=node.sources)
    between.producer, node.output().producer = mul, add
    return [mul, add]


def _with_constant(node: Node) -> tuple[Value | None, Value | None]:
    """(what is computed, the constant) of a node of two operands; of Sub and Div the constant is the second."""
    a, b = node.input(0), node.input(1)
    if b.const is not None and a.const is None:
        return a, b
    if a.const is not None and b.const is None and node.op in ("Mul", "Add"):
        return b, a
    return None, None


def _scaled(uses: Uses, node: Node) -> tuple[Node | None, Value | None]:
    """The Conv, ConvTranspose or MatMul whose only reader `node` is, and the constant that node joins it with."""
    if node.op not in _FACTORS | _SUMMANDS:
        return None, None
    x, operand = _with_constant(node)
    heavy = x.producer if x is not None else None
    if x is None or operand is None or heavy is None or heavy.op not in (*_CONVS, "MatMul"):
        return None, None
    if not uses.alone(x, node) or heavy.outputs != [x] or node.output().shape != x.shape or x.shape is None:
        return None, None
    return heavy, operand


def _fold(uses: Uses, heavy: Node, node: Node, operand: Value) -> bool:
    w = heavy.input(1)
    if w.const is None or operand.const is None or w.dtype not in (T.F32, T.F16):
        return False
    values = _per_channel(heavy, operand.const, w.const)
    if values is None:
        return False
    if node.op in _SUMMANDS:
        return heavy.op in _CONVS and _add_to_bias(uses, heavy, values if node.op == "Add" else -values)
    with np.errstate(all="ignore"):
        factor = values if node.op == "Mul" else 1.0 / values
    weights = uses.constant(w.const.astype(np.float64) * _over_weights(heavy, factor, w.const), w)
    bias = heavy.input(2) if heavy.has(2) else None
    if weights is None or (bias is not None and bias.const is None):
        return False
    scaled = None if bias is None or bias.const is None else uses.constant(bias.const.astype(np.float64) * factor, bias)
    if bias is not None and scaled is None:
        return False
    uses.replace_input(heavy, 1, weights)
    if scaled is not None:
        uses.replace_input(heavy, 2, scaled)
    return True


def _add_to_bias(uses: Uses, heavy: Node, values: Array) -> bool:
    bias = heavy.input(2) if heavy.has(2) else None
    if bias is not None and bias.const is None:
        return False
    own = 0.0 if bias is None or bias.const is None else bias.const.astype(np.float64)
    total = uses.constant(own + values, heavy.input(1))
    if total is not None:
        uses.replace_input(heavy, 2, total)
    return total is not None


def _per_channel(heavy: Node, array: Array, weights: Array) -> Array | None:
    """f64 [output channels] of a constant that varies along the channels alone; None for any other."""
    rank, axis = heavy.output().rank, 1
    if heavy.op == "MatMul":
        axis = rank - 1
        if weights.ndim != 2 or rank < 2:
            return None
    channels = _channels(heavy, weights)
    shape = (*[1] * (rank - array.ndim), *array.shape)
    if len(shape) != rank or any(d != 1 for k, d in enumerate(shape) if k != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), (channels,)).copy()


def _channels(heavy: Node, weights: Array) -> int:
    if heavy.op == "ConvTranspose":
        return int(weights.shape[1]) * int(heavy.attr("group", 1))
    return int(weights.shape[-1] if heavy.op == "MatMul" else weights.shape[0])


def _over_weights(heavy: Node, factor: Array, weights: Array) -> Array:
    """The factors as they broadcast to (or have the shape of) the weights."""
    if heavy.op == "MatMul":
        return factor
    ones = [1] * (weights.ndim - 2)
    if heavy.op == "Conv":
        return factor.reshape(-1, 1, *ones)
    group = int(heavy.attr("group", 1))
    per_group = factor.reshape(group, 1, -1)
    rows = np.broadcast_to(per_group, (group, weights.shape[0] // group, weights.shape[1]))
    return rows.reshape(weights.shape[0], weights.shape[1], *ones)


def _zeros_around(pad: Node) -> list[int] | None:
    """What a Pad adds to the axes after the first two: (before …, after …); None where it does anything else."""
    if pad.op != "Pad" or str(pad.attr("mode", "constant")) != "constant" or pad.has(3) or pad.input(0).shape is None:
        return None
    value = number(pad.input(2)) if pad.has(2) else float(pad.attr("value", 0.0) if pad.opset < 11 else 0.0)
    pads, rank = known_ints(pad, 1, "pads"), pad.input(0).rank
    if value != 0.0 or pads is None or len(pads) != 2 * rank or min(pads) < 0 or rank < 3:
        return None
    if any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return [*pads[2:rank], *pads[rank + 2 :]]


def _may_count_padding(node: Node) -> bool:
    """Whether zeros of its own would be counted as those of a Pad are."""
    own = [int(k) for k in node.attr("pads") or []]
    return (
        not node.attr("ceil_mode", 0) and (bool(node.attr("count_include_pad", 0)) or not any(own)) and node.opset >= 7
    )
