"""Basic passes that move constant factors, summands and batch statistics into weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrt import dtypes as T
from webrt.compiler.rewrite import Uses, expand, is_plain_gemm
from webrt.ir import Graph, Node, Value

Array = np.ndarray[Any, Any]

HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose weights take factors, and (all but the last) whose bias takes summands."""
_FACTORS = ("Mul", "Div")
_SUMMANDS = ("Add", "Sub")
JOINS = tuple(f"{a}+{b}" for a in HEAVY for b in (*_FACTORS, *_SUMMANDS) if a != "MatMul" or b in _FACTORS)
"""Which of them take a constant per output channel by which operators."""
CHAINED = ("Mul", "Add")
"""Operators of which two, with constants, are one."""


def split_batch_norms(graph: Graph) -> bool:
    """BatchNormalization of f32 (of f16 where a convolution takes the factors in) with constant statistics → a Mul and
    an Add per channel."""
    return expand(graph, _as_mul_and_add)


def fold_into_weights(graph: Graph) -> bool:
    """Conv, ConvTranspose, Gemm or MatMul with constant weights, then Mul, Div, Add or Sub of a constant per output
    channel → other weights and bias. (MatMul has no bias: only factors.)"""
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
        if node.op not in CHAINED:
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


def _as_mul_and_add(uses: Uses, node: Node) -> list[Node] | None:
    if node.op != "BatchNormalization" or node.opset < 7 or node.attr("training_mode", 0):
        return None
    if any(node.wants(k) for k in range(1, len(node.outputs))) or node.input(0).shape is None:
        return None
    x, constants = node.input(0), [node.input(k).const for k in range(1, 5)]
    if not (x.dtype == T.F32 or _rounds_once(uses, node)) or x.rank < 2 or not node.attr("spatial", 1):
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


def _rounds_once(uses: Uses, node: Node) -> bool:
    """Whether f16 statistics become part of a convolution, so that nothing is rounded in between."""
    x = node.input(0)
    heavy = x.producer
    if x.dtype != T.F16 or heavy is None or heavy.op not in HEAVY[:2] or not uses.alone(x, node):
        return False
    return all(v.const is not None for v in heavy.given()[1:])


def _with_constant(node: Node) -> tuple[Value | None, Value | None]:
    """(what is computed, the constant) of a node of two operands; of Sub and Div the constant is the second."""
    a, b = node.input(0), node.input(1)
    if b.const is not None and a.const is None:
        return a, b
    if a.const is not None and b.const is None and node.op in ("Mul", "Add"):
        return b, a
    return None, None


def _scaled(uses: Uses, node: Node) -> tuple[Node | None, Value | None]:
    """The heavy node whose only reader `node` is, and the constant that node joins it with."""
    if node.op not in (*_FACTORS, *_SUMMANDS):
        return None, None
    x, operand = _with_constant(node)
    heavy = x.producer if x is not None else None
    if x is None or operand is None or heavy is None or f"{heavy.op}+{node.op}" not in JOINS:
        return None, None
    if heavy.op == "Gemm" and not is_plain_gemm(heavy):
        return None, None
    if not uses.alone(x, node) or heavy.outputs != [x] or node.output().shape != x.shape or x.shape is None:
        return None, None
    return heavy, operand


def _fold(uses: Uses, heavy: Node, node: Node, operand: Value) -> bool:
    w = heavy.input(1)
    if w.const is None or operand.const is None or w.dtype not in (T.F32, T.F16):
        return False
    values = _per_channel(heavy, operand.const, w.const)
    if values is None or not _row_of_bias(heavy, w.const):
        return False
    if node.op in _SUMMANDS:
        return _add_to_bias(uses, heavy, values if node.op == "Add" else -values)
    with np.errstate(all="ignore"):
        factor = values if node.op == "Mul" else 1.0 / values
    weights = uses.constant(w.const.astype(np.float64) * _over_weights(heavy, factor, w.const), w)
    bias = heavy.input(2) if heavy.has(2) else None
    if weights is None:
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
    own = 0.0 if bias is None or bias.const is None else bias.const.astype(np.float64)
    total = uses.constant(own + values, heavy.input(1))
    if total is not None:
        uses.replace_input(heavy, 2, total)
    return total is not None


def _row_of_bias(heavy: Node, weights: Array) -> bool:
    """Whether the bias, if there is one, is a constant number for each output channel."""
    bias = heavy.input(2).const if heavy.has(2) else None
    if bias is None:
        return not heavy.has(2)
    return heavy.op != "Gemm" or bias.shape[-1:] == (bias.size,) == (_channels(heavy, weights),)


def _per_channel(heavy: Node, array: Array, weights: Array) -> Array | None:
    """f64 [output channels] of a constant that varies along the channels alone; None for any other."""
    rank, axis = heavy.output().rank, 1
    if heavy.op in ("MatMul", "Gemm"):
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
    if heavy.op in ("MatMul", "Gemm") and not heavy.attr("transB", 0):
        return int(weights.shape[-1])
    return int(weights.shape[0])


def _over_weights(heavy: Node, factor: Array, weights: Array) -> Array:
    """The factors as they broadcast to (or have the shape of) the weights."""
    if heavy.op in ("MatMul", "Gemm"):
        return factor.reshape(-1, 1) if heavy.attr("transB", 0) else factor
    ones = [1] * (weights.ndim - 2)
    if heavy.op == "Conv":
        return factor.reshape(-1, 1, *ones)
    group = int(heavy.attr("group", 1))
    per_group = factor.reshape(group, 1, -1)
    rows = np.broadcast_to(per_group, (group, weights.shape[0] // group, weights.shape[1]))
    return rows.reshape(weights.shape[0], weights.shape[1], *ones)
