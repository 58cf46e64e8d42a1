"""Static int8: what Conv, MatMul and Gemm read goes through QuantizeLinear and DequantizeLinear.

Activations are uint8 with a scale and a zero point per tensor, from samples of the inputs; weights are int8 with a
scale per output channel (below opset 13, and for stacks of matrices, per tensor). That is ONNX Runtime's QDQ form with
its defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.precision.calibrate import Range, Sample, ranges_of
from webrt.compiler.rewrite import Uses
from webrt.errors import InputError
from webrt.ir import Graph, Node, Value, constant

Array = np.ndarray[Any, Any]
HEAVY = frozenset({"Conv", "MatMul", "Gemm"})
OPSET, PER_CHANNEL = 10, 13
"""The first with QuantizeLinear, and the first in which it takes a scale per channel."""


def quantize(graph: Graph, samples: Sequence[Sample], method: str) -> dict[str, Any]:
    """Rewrites the graph; tells how many nodes and the method. Raises InputError below opset 10."""
    opset = graph.opsets.get("", 0)
    heavy = [n for n in graph.nodes if n.op in HEAVY and all(v.dtype == T.F32 for v in n.given())]
    if heavy and opset < OPSET:
        raise InputError(f"static int8 needs opset {OPSET}, which has QuantizeLinear; the model has opset {opset}")
    read = {v.name for n in heavy for v in n.given()[:2] if v.const is None}
    ranges = ranges_of(graph, samples, read, bins=method == "entropy")
    pairs = _Pairs(Uses(graph), opset, ranges, method == "entropy")
    nodes: list[Node] = []
    wanted = set(heavy)
    for node in graph.nodes:
        if node in wanted:
            for i, v in enumerate(node.given()[:2]):
                axis = None if v.const is None else _channel_axis(node, i)
                nodes += pairs.activation(v) if v.const is None else pairs.weights(v, axis)
                node.inputs[i] = pairs.twins.get((v, axis), v)
        nodes.append(node)
    graph.nodes[:] = nodes
    return {"nodes": len(heavy), "method": method, "samples": len(samples)}


def _channel_axis(node: Node, index: int) -> int | None:
    """The axis of output channels of input `index`; None for a stack of matrices, which ONNX Runtime's MatMul of
    integers takes with one scale only."""
    if node.op == "Conv":
        return 0
    rank = node.input(index).rank
    if rank > 2:
        return None
    if index == 0:
        return rank - 1 if node.op == "Gemm" and node.attr("transA", 0) else max(rank - 2, 0)
    transposed = node.op == "Gemm" and node.attr("transB", 0)
    return 0 if transposed else rank - 1


@dataclass
class _Pairs:
    """QuantizeLinear and DequantizeLinear of values, made once each; `twins` by value and channel axis."""

    uses: Uses
    opset: int
    ranges: dict[str, Range]
    cut: bool
    twins: dict[tuple[Value, int | None], Value] = field(default_factory=dict)

    def activation(self, v: Value) -> list[Node]:
        """uint8 of one scale; nothing where it is there already, or no sample had a finite value of it."""
        seen = self.ranges[v.name]
        if (v, None) in self.twins or seen.top == 0:
            return []
        low, high = seen.cut() if self.cut else (seen.low, seen.high)
        scale = np.float32((high - low) / 255) or np.float32(1)
        zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
        scales, zeros = self._constant(np.array(scale), T.F32), self._constant(np.array(zero), T.U8)
        between = Value(self.uses.name(), T.U8, v.shape)
        self.twins[v, None] = out = Value(self.uses.name(), T.F32, v.shape)
        return [
            self._node("QuantizeLinear", [v, scales, zeros], between),
            self._node("DequantizeLinear", [between, scales, zeros], out),
        ]

    def weights(self, v: Value, axis: int | None) -> list[Node]:
        """int8 with a scale per channel (or one, where there is no axis) and zero points of 0; nothing where a number
        is not finite."""
        if (v, axis) in self.twins or v.const is None or not np.isfinite(v.const).all() or not v.const.size:
            return []
        along = axis if self.opset >= PER_CHANNEL else None
        others = tuple(k for k in range(v.const.ndim) if k != along)
        largest = np.abs(v.const).max(axis=others, keepdims=True)
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        numbers = np.clip(np.rint(v.const / scale), -127, 127).astype(np.int8)
        scale = scale.reshape(() if along is None else -1)
        scales, zeros = self._constant(scale, T.F32), self._constant(np.zeros(scale.shape, np.int8), T.I8)
        self.twins[v, axis] = out = Value(self.uses.name(), T.F32, v.shape)
        axis_attribute = {} if along is None else {"axis": onnx.helper.make_attribute("axis", along)}
        inputs = [self._constant(numbers, T.I8), scales, zeros]
        return [self._node("DequantizeLinear", inputs, out, axis_attribute)]

    def _constant(self, array: Array, dtype: T.DType) -> Value:
        return constant(self.uses.name(), array, dtype)

    def _node(
        self, op: str, inputs: Sequence[Value], out: Value, attrs: dict[str, onnx.AttributeProto] | None = None
    ) -> Node:
        out.producer = Node(op, "", f"{out.name}/{op}", list(inputs), [out], self.opset, attrs or {})
        return out.producer
