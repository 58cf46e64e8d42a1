"""How long folding a node may take, by its shapes: what takes long is left to the run."""

from __future__ import annotations

import math

from webrt.compiler.work import flop_of
from webrt.ir import Node, Value

MAX_WORK = 1 << 31
"""Steps of arithmetic in one fold; numpy does 10⁹ of integers in a second, and ten times as many of floats."""
MAX_SEQUENCE = 1 << 12
"""Steps of a recurrent layer in one fold, each of many calls."""

UNBOUNDED = frozenset(
    {"RegexFullMatch", "RoiAlign", "MaxRoiPool", "NonMaxSuppression", "DeformConv", "TfIdfVectorizer"}
)
"""Operators whose time no shape tells."""
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "QLinearAveragePool"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def is_quick(node: Node) -> bool:
    """Whether a node of constant inputs is computed within seconds."""
    if node.op_type in UNBOUNDED:
        return False
    if node.op_type in _RECURRENT and max(node.input(0).static_shape or (0,)) > MAX_SEQUENCE:
        return False
    products = [math.prod(d if isinstance(d, int) else MAX_WORK for d in product) for product in flop_of(node)]
    return sum(products, _windows(node)) <= MAX_WORK


def _windows(node: Node) -> int:
    """Steps that `flop_of` does not count."""
    if node.op_type in _POOLS:
        return _elements(node.output()) * math.prod(int(k) for k in node.attr("kernel_shape") or ())
    if node.op_type in ("LRN", "Det"):
        return _elements(node.input(0)) * (int(node.attr("size", 0)) or math.isqrt(_elements(node.input(0))))
    if node.op_type == "STFT":
        return _elements(node.output()) * math.isqrt(_elements(node.input(0)))
    return math.prod(_elements(v) for v in node.given()) if node.op_type == "Einsum" else 0


def _elements(value: Value) -> int:
    return math.prod(value.static_shape or ())
