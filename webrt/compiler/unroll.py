"""Loop and Scan of few known iterations → the nodes of all iterations. Sources: the ONNX texts of Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt import host, lowering
from webrt.compiler.content_rules import RULES
from webrt.compiler.control import CONTROL, MAX_TRIPS, Array, known, outermost, replace_nodes
from webrt.compiler.infer import guarded, located
from webrt.compiler.splice import fresh_names, identity, opsets_of, subgraph
from webrt.errors import InvalidModel, ShapeError, WebrtError
from webrt.ir import Graph, Node, Value, constant
from webrt.lowering import normalize_axis

MAX_NODES = 4096
"""A loop is unrolled only into so many nodes."""
MAX_UNROLLED = 1 << 15
"""All loops of a model, those within others too, are unrolled only into so many nodes."""
MAX_COPIED = 64 << 20
"""A loop is unrolled only into so many bytes of its body's own constants and attributes."""
MAX_DEPTH = 32
MAX_DECIDING = 1024
"""Elements of what a condition is computed of."""
_DECIDING = RULES.keys() - {"ConstantOfShape", "Expand", "Range", "Tile"} | {"Floor", "Ceil", "Pow", "Sqrt"}


def unroll_loops(graph: Graph) -> bool:
    """Loop and Scan of at most MAX_TRIPS known iterations, whose body devices can run → the nodes of all iterations."""
    if not any(n.op in ("Loop", "Scan") for n in graph.nodes):
        return False
    out: list[Node] = []
    names, counted = fresh_names(graph), outermost(graph).meta
    for node in graph.nodes:
        unrolled = None
        room = MAX_UNROLLED - counted.get("unrolled_nodes", 0)
        if node.op in ("Loop", "Scan") and node.opset >= (9 if node.op == "Scan" else 1) and room > 0:
            graph.bounds.check("unrolling")
            body = node.attr("body")
            if all(_has_kernel(n, opsets_of(node, graph)) for n in body.node):
                roll = _Unrolled(node, body, opsets_of(node, graph), names)
                try:
                    with guarded():
                        unrolled = roll.loop() if node.op == "Loop" else roll.scan()
                except (InvalidModel, ShapeError) as e:
                    raise located(e, node) from None
                counted["unrolled_nodes"] = counted.get("unrolled_nodes", 0) + len(roll.nodes)
        out += [node] if unrolled is None else unrolled
    return replace_nodes(graph, out)


@dataclass
class _Unrolled:
    """One Loop or Scan. `nodes` collects the iterations."""

    node: Node
    body: onnx.GraphProto
    opsets: dict[str, int]
    names: Iterator[str]

    def __post_init__(self) -> None:
        self.nodes: list[Node] = []

    def loop(self) -> list[Node] | None:
        """The iterations of a Loop; None where their number is not known, or it has none and scan outputs."""
        limit, alive = self._limit(), self._starts()
        if limit is None or alive is None or min(limit, MAX_TRIPS) * self.body.ByteSize() > MAX_COPIED:
            return None
        state = [self.node.input(k) for k in range(2, len(self.node.inputs))]
        lines: list[list[Value]] = [[] for _ in self.body.output[1 + len(state) :]]
        done = 0
        while alive and done < limit:
            if done == MAX_TRIPS:
                return None
            given = [self._constant(np.array(done, np.int64)), self._constant(np.array(True)), *state]
            outputs = self._iteration(given)
            state = outputs[1 : 1 + len(state)]
            for line, value in zip(lines, outputs[1 + len(state) :], strict=True):
                line.append(value)
            done += 1
            if self._has_condition():
                found = _evaluated(outputs[0], self.opsets, {})
                if found is None or found.size != 1 or len(self.nodes) > MAX_NODES:
                    return None
                alive = bool(found.reshape(-1)[0])
        return self._finish(state, lines, [0] * len(lines), [0] * len(lines))

    def scan(self) -> list[Node] | None:
        """The iterations of a Scan; None where their number is not known, or is 0."""
        scanned = int(self.node.attr("num_scan_inputs"))
        count = len(self.node.inputs) - scanned
        inputs = [self.node.input(k) for k in range(len(self.node.inputs))]
        state, sequences = inputs[:count], inputs[count:]
        if any(v.shape is None for v in sequences):
            return None
        given = self._flags("scan_input_axes", scanned)
        axes = [normalize_axis(a, v.rank) for v, a in zip(sequences, given, strict=True)]
        sizes = {v.known_shape[a] for v, a in zip(sequences, axes, strict=True)}
        trips = sizes.pop() if len(sizes) == 1 else None
        if not isinstance(trips, int) or not 0 < trips <= MAX_TRIPS or trips * len(self.body.node) > MAX_NODES:
            return None
        if trips * self.body.ByteSize() > MAX_COPIED:
            return None
        backward = self._flags("scan_input_directions", scanned)
        lines: list[list[Value]] = [[] for _ in self.body.output[count:]]
        for t in range(trips):
            places = [trips - 1 - t if b else t for b in backward]
            outputs = self._iteration([*state, *map(self._element, sequences, axes, places)])
            state = outputs[:count]
            for line, value in zip(lines, outputs[count:], strict=True):
                line.append(value)
        ends = self._flags("scan_output_axes", len(lines)), self._flags("scan_output_directions", len(lines))
        return self._finish(state, lines, *ends)

    def _limit(self) -> int | None:
        """The largest number of trips; MAX_TRIPS + 1 where only the condition ends the loop."""
        if self.node.has(0):
            trips = known(self.node.inputs[0])
            if trips is None or trips.size != 1:
                return None
            return min(int(trips.reshape(-1)[0]), MAX_NODES // max(1, len(self.body.node)) + 1, MAX_TRIPS + 1)
        return MAX_TRIPS + 1

    def _starts(self) -> bool | None:
        """Whether the first trip's condition holds; None where that is not known."""
        if not self._has_condition():
            return True if self.node.has(0) else None
        condition = known(self.node.inputs[1])
        return bool(condition.reshape(-1)[0]) if condition is not None and condition.size == 1 else None

    def _has_condition(self) -> bool:
        return self.node.has(1)

    def _iteration(self, given: Sequence[Value]) -> list[Value]:
        nodes, outputs = subgraph(self.node, self.body, given, self.opsets, self.names)
        self.nodes += nodes
        return outputs

    def _finish(
        self, state: Sequence[Value], lines: Sequence[list[Value]], axes: Sequence[int], backward: Sequence[int]
    ) -> list[Node] | None:
        """The loop's own outputs: the last state, and each line of scan outputs joined on a new axis."""
        count = len(state)
        if any(v is not None and not line for v, line in zip(self.node.outputs[count:], lines, strict=False)):
            return None
        for k, result in enumerate(self.node.outputs):
            if result is None:
                continue
            if k < count:
                self.nodes.append(identity(state[k], result, self.opsets[""], self.node))
                continue
            line = lines[k - count][:: -1 if backward[k - count] else 1]
            parts = [self._unsqueezed(v, axes[k - count]) for v in line]
            self._node("Concat", parts, result, axis=axes[k - count])
        return self.nodes

    def _unsqueezed(self, value: Value, axis: int) -> Value:
        if self.opsets[""] < 13:
            return self._node("Unsqueeze", [value], axes=[axis])
        return self._node("Unsqueeze", [value, self._constant(np.array([axis], np.int64))])

    def _element(self, sequence: Value, axis: int, place: int) -> Value:
        return self._node("Gather", [sequence, self._constant(np.array(place, np.int64))], axis=axis)

    def _node(self, op_type: str, inputs: Sequence[Value], result: Value | None = None, **attributes: Any) -> Value:
        out = result or Value(next(self.names))
        attrs = {k: onnx.helper.make_attribute(k, v) for k, v in attributes.items()}
        name = f"{self.node.name}/{op_type}"
        out.producer = Node(op_type, "", name, list(inputs), [out], self.opsets[""], attrs, sources=self.node.sources)
        self.nodes.append(out.producer)
        return out

    def _constant(self, array: Array) -> Value:
        return constant(next(self.names), array, T.BOOL if array.dtype == bool else T.I64)

    def _flags(self, name: str, count: int) -> list[int]:
        given = list(self.node.attr(name, []))
        return given + [0] * (count - len(given))


def _evaluated(value: Value, opsets: dict[str, int], seen: dict[Value, Array | None], depth: int = 0) -> Array | None:
    """The elements of a value that constants alone decide, through at most MAX_DEPTH nodes; `seen` has those of others
    that were asked for."""
    if value.const is not None:
        return value.const
    if value not in seen:
        seen[value] = _result(value, opsets, seen, depth)
    return seen[value]


def _result(value: Value, opsets: dict[str, int], seen: dict[Value, Array | None], depth: int) -> Array | None:
    node = value.producer
    if node is None or depth == MAX_DEPTH or node.outer or node.op_type not in _DECIDING or not node.given():
        return None
    arrays = [None if v is None else _evaluated(v, opsets, seen, depth + 1) for v in node.inputs]
    if any((a is None or a.size > MAX_DECIDING) and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
        return None
    try:
        results = host.evaluate(node.to_proto(), {**opsets, node.domain: node.opset}, arrays)
    except WebrtError:
        return None
    return np.asarray(results[node.outputs.index(value)])


def _has_kernel(proto: onnx.NodeProto, opsets: dict[str, int]) -> bool:
    """Whether devices run the operator at all: unrolling what stays on the CPU gains nothing."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    if domain == "" and (proto.op_type == "Constant" or proto.op_type in CONTROL):
        return True
    if lowering.find(domain, proto.op_type, opsets.get(domain, 0)) is not None:
        return True
    try:
        schema: Any = Node(proto.op_type, domain, "", [], [], opsets.get(domain, 0)).schema
    except InvalidModel:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
