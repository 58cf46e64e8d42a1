"""If, Loop and Scan whose course only the run decides: their subgraphs as graphs, and the shapes that come out.

A body sees the sizes of the graph around it under the same names; what it makes up itself (sizes of results that only
the run tells, sizes that change from iteration to iteration) has names of its own, which mean nothing outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.body import Body
from webrt.compiler.dump import Trace
from webrt.compiler.normalize import normalize
from webrt.compiler.splice import fresh_names, identity, names_within, opsets_of, subgraph
from webrt.dims import Dim
from webrt.errors import ModelError, UnsupportedOp, UnsupportedType
from webrt.ir import Graph, Node, Value, constant
from webrt.lowering import Info, normalize_axis

MAX_ROUNDS = 64
Shape = tuple[Dim, ...]


class Bodies:
    """Opens nodes of one compilation: `open` gives what infer wants to know, `of` the bodies behind it."""

    def __init__(self, enabled: Callable[[str], bool]) -> None:
        self._enabled = enabled
        self._kept: dict[Node, tuple[Any, list[Body], list[Info] | None, ModelError | None]] = {}

    def of(self, node: Node) -> list[Body] | None:
        """The bodies of a node that could be opened."""
        kept = self._kept.get(node)
        return kept[1] if kept is not None and kept[2] is not None else None

    def open(self, node: Node, graph: Graph, structural: Collection[str]) -> list[Info] | None:
        """Types and shapes of a node's outputs; None where it is no control flow, or stays closed (`declined`)."""
        if node.op not in ("If", "Loop", "Scan"):
            return None
        key = _key(node, structural)
        kept = self._kept.get(node)
        if kept is None or kept[0] != key:
            opening = _Opening(node, graph, structural, self, self._enabled)
            try:
                bodies, infos = opening.branches() if node.op == "If" else opening.loop()
                kept = (key, bodies, infos, None)
            except ModelError as e:
                kept = (key, [], None, e)
            self._kept[node] = kept
        node.declined = kept[3]
        return kept[2]


def _key(node: Node, structural: Collection[str]) -> Any:
    """What the bodies of a node depend on."""
    values = [None if v is None else _facts(v) for v in [*node.inputs, *node.outer]]
    label = _label(node)
    return values, tuple(node.outputs), frozenset(n for n in structural if n.startswith(label))


def _facts(v: Value) -> tuple[Any, ...]:
    contents = None if v.contents is None else tuple(v.contents.flat)
    return v.name, v.dtype, v.shape, id(v.const) if v.const is not None else None, contents, v.roots


def _label(node: Node) -> str:
    return next((f"{v.name}/" for v in node.outputs if v is not None), f"{node.name}/")


class _Opening:
    """One node on the way to its bodies."""

    def __init__(
        self, node: Node, graph: Graph, structural: Collection[str], opener: Bodies, enabled: Callable[[str], bool]
    ) -> None:
        self.node, self.graph, self.structural, self.opener, self.enabled = node, graph, structural, opener, enabled
        self.opsets = opsets_of(node, graph)
        values = [v for v in [*node.given(), *node.outer] if v.const is None]
        sizes = [d for v in values for d in (*(v.shape or ()), *(() if v.contents is None else v.contents.flat))]
        self.visible = frozenset[str]().union(*map(D.variables, sizes))

    def branches(self) -> tuple[list[Body], list[Info]]:
        """Both branches of an If."""
        names = self._names()
        bodies = []
        for key in ("then_branch", "else_branch"):
            nodes, outputs, captured = self._spliced(self.node.attr(key), [], names)
            bodies.append(self._body(nodes, outputs, Body(_label(self.node), self._graph(), captured)))
        infos = [self._either(k, [b.graph.outputs[k] for b in bodies]) for k in range(len(self.node.outputs))]
        return bodies, infos

    def loop(self) -> tuple[list[Body], list[Info]]:
        """The body of a Loop or a Scan, with sizes of the state that hold in every iteration."""
        if self.node.op == "Scan" and self.node.opset < 9:
            raise UnsupportedOp("Scan of opset 8, whose batch axis and lengths per entry opset 9 gave up")
        first = self._first_state()
        shapes = [_on_device(v).known_shape for v in first]
        for _ in range(MAX_ROUNDS):
            body = self._loop_body(first, shapes)
            own = len(body.state) - len(first)
            pairs = zip(body.state[own:], body.carried[own:], strict=True)
            grown = [_common(inner, out) for (_, inner), out in pairs]
            if grown == shapes:
                return [body], self._loop_infos(body, own)
            shapes = grown
        raise UnsupportedOp("the sizes of its state do not settle")

    def _first_state(self) -> list[Value]:
        if self.node.op == "Scan":
            return [self.node.input(k) for k in range(len(self.node.inputs) - int(self.node.attr("num_scan_inputs")))]
        if not (self.node.has(0) or self.node.has(1)):
            raise UnsupportedOp("it has neither a trip count nor a condition")
        return [self.node.input(k) for k in range(2, len(self.node.inputs))]

    def _loop_body(self, first: Sequence[Value], shapes: Sequence[Shape]) -> Body:
        names = self._names()
        state = [_input(next(names), v, s) for v, s in zip(first, shapes, strict=True)]
        body = Body(_label(self.node), self._graph(), [], True, list(zip(first, state, strict=True)))
        if self.node.op == "Scan":
            body.elements = self._elements(len(first), names)
            nodes, outputs, body.captured = self._spliced(
                self.node.attr("body"), [*state, *(e for _, e, _ in body.elements)], names
            )
            body.lines = [bool(f) for f in self._flags("scan_output_directions", len(outputs) - len(first))]
            return self._body(nodes, outputs, body)
        zero = constant(next(names), np.array(0), T.I64)
        number = _input(next(names), zero, ())
        yes = constant(next(names), np.array(True), T.BOOL)
        nodes, outputs, body.captured = self._spliced(self.node.attr("body"), [number, yes, *state], names)
        body.lines = [False] * (len(outputs) - 1 - len(first))
        body.again = self.node.has(1)
        outputs = outputs if body.again else outputs[1:]
        if number in outputs or any(number in (*n.given(), *n.outer) for n in nodes):
            self._count(zero, number, body, nodes, outputs, names)
        return self._body(nodes, outputs, body)

    def _count(
        self, zero: Value, number: Value, body: Body, nodes: list[Node], outputs: list[Value], names: Iterator[str]
    ) -> None:
        """The iteration's number: given by the executor where sizes depend on it, else a state that grows by one."""
        if number.name in self.structural:
            body.number = number
            return
        one = constant(next(names), np.array(1), T.I64)
        following = Value(next(names), T.I64, ())
        following.producer = Node(
            "Add", "", f"{self.node.name}/number", [number, one], [following], self.opsets[""],
            sources=self.node.sources,
        )  # fmt: skip
        nodes.append(following.producer)
        body.state.insert(0, (zero, number))
        outputs.insert(int(body.again), following)

    def _elements(self, count: int, names: Iterator[str]) -> list[tuple[Value, Value, bool]]:
        sequences = [self.node.input(k) for k in range(count, len(self.node.inputs))]
        backward = self._flags("scan_input_directions", len(sequences))
        if any(normalize_axis(a, v.rank) for v, a in zip(sequences, self._input_axes(len(sequences)), strict=True)):
            raise UnsupportedOp("a scanned axis that is not the first")
        return [
            (v, _input(next(names), v, v.known_shape[1:]), bool(b)) for v, b in zip(sequences, backward, strict=True)
        ]

    def _input_axes(self, count: int) -> list[int]:
        return self._flags("scan_input_axes", count)

    def _flags(self, name: str, count: int) -> list[int]:
        given = list(self.node.attr(name, []))
        return given + [0] * (count - len(given))

    def _spliced(
        self, proto: onnx.GraphProto, inputs: Sequence[Value], names: Iterator[str]
    ) -> tuple[list[Node], list[Value], list[tuple[Value, Value]]]:
        """The nodes of a subgraph and its outputs, and the inputs that stand for what it captures."""
        known = {v: _captured(v) for v in self.node.outer}
        caller = replace(self.node, outer=list(known.values()))
        nodes, outputs = subgraph(caller, proto, inputs, self.opsets, names)
        return nodes, outputs, [(a, b) for a, b in known.items() if a is not b and b.contents is None]

    def _body(self, nodes: list[Node], outputs: list[Value], body: Body) -> Body:
        """The body with its graph normalized."""
        graph = body.graph
        graph.nodes, graph.outputs = nodes, outputs
        body.keep_used()
        body.wanted = normalize(graph, set(self.structural), self.enabled, Trace(), self.opener)
        again = graph.outputs[0].const if body.again else None
        if again is not None and again.size == 1 and bool(again.reshape(-1)[0]):
            body.again = False
            del graph.outputs[0]
        self._name_apart(graph)
        body.keep_used()
        return body

    def _name_apart(self, graph: Graph) -> None:
        """A value that is an output twice, such as a state that is stacked as well, has another name there."""
        names = fresh_names(graph)
        for k, v in enumerate(graph.outputs):
            if v not in graph.outputs[:k]:
                continue
            twin = Value(next(names), v.dtype, v.shape, const=v.const, contents=v.contents, roots=v.roots)
            if v.const is None:
                graph.nodes.append(identity(v, twin, self.opsets[""], self.node))
            graph.outputs[k] = twin

    def _graph(self) -> Graph:
        return Graph(
            [], [], [], self.opsets, ir_version=self.graph.ir_version, assumed=self.graph.assumed,
            ranges=self.graph.ranges, around=self.graph, bounds=self.graph.bounds, adapter=self.graph.adapter,
        )  # fmt: skip

    def _names(self) -> Iterator[str]:
        label, taken = _label(self.node), set(names_within(self.node.attrs.values()))
        return (name for k in itertools.count() if (name := f"{label}{k}") not in taken)

    def _either(self, index: int, values: Sequence[Value]) -> Info:
        """An output of an If: what both branches agree on."""
        a, b = values
        result = self.node.outputs[index]
        name = result.name if result is not None else ""
        if a.dtype != b.dtype or a.dtype is None:
            raise UnsupportedType(
                f"its branches give {a.dtype or 'no tensor'} and {b.dtype or 'no tensor'} for {name!r}"
            )
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return a.dtype, None
        sizes = [x if x == y else D.var(f"{name}.{k}") for k, (x, y) in enumerate(zip(a.shape, b.shape, strict=True))]
        return a.dtype, self._outside(name, sizes)

    def _loop_infos(self, body: Body, own: int) -> list[Info]:
        infos: list[Info] = []
        names = ["" if v is None else v.name for v in self.node.outputs]
        for name, (_, inner) in zip(names, body.state[own:], strict=False):
            infos.append((inner.dtype, self._outside(name, inner.known_shape)))
        lines = body.graph.outputs[body.again + len(body.state) :]
        axes = self._flags("scan_output_axes", len(lines)) if self.node.op == "Scan" else [0] * len(lines)
        for k, (value, axis) in enumerate(zip(lines, axes, strict=True)):
            name = names[len(infos)] if len(infos) < len(names) else f"{_label(self.node)}line{k}"
            if value.shape is None:
                infos.append((value.dtype, None))
                continue
            at, sizes = normalize_axis(axis, value.rank + 1), list(value.shape)
            sizes.insert(at, self._trips(body, name, at))
            infos.append((value.dtype, self._outside(name, sizes)))
        return infos

    def _trips(self, body: Body, name: str, axis: int) -> Dim:
        """How many iterations there will be."""
        if self.node.op == "Scan":
            return body.elements[0][0].known_shape[0]
        trips = self.node.inputs[0]
        starts = self.node.inputs[1].const if self.node.has(1) and self.node.inputs[1] is not None else np.array(True)
        if body.again or trips is None or starts is None or not starts.all():
            return D.var(f"{name}.{axis}")
        if trips.const is not None:
            return max(0, int(trips.const.reshape(-1)[0]))
        if trips.contents is not None and trips.contents.size == 1:
            return D.maximum(trips.contents.flat[0], 0)
        return D.var(f"{name}.{axis}")

    def _outside(self, name: str, sizes: Sequence[Dim]) -> Shape:
        """Sizes as the graph around sees them: those that it cannot know become variables of the output."""
        own = {f"{name}.{k}" for k in range(len(sizes))}
        return tuple(d if D.variables(d) <= self.visible | own else D.var(f"{name}.{k}") for k, d in enumerate(sizes))


def _on_device(v: Value) -> Value:
    if v.dtype is None or not v.dtype.on_device:
        raise UnsupportedType(f"devices hold no {v.dtype or 'sequences, optionals or maps'}")
    return v


def _input(name: str, like: Value, shape: Shape) -> Value:
    _on_device(like)
    return Value(name, like.dtype, shape, roots=frozenset({name}))


def _captured(v: Value) -> Value:
    """What stands for a value within a body: a constant itself, anything else a value of the same name."""
    if v.const is not None:
        return v
    return Value(v.name, v.dtype, v.shape, contents=v.contents, type_proto=v.type_proto, roots=v.roots)


def _common(inner: Value, out: Value) -> Shape:
    """The sizes of a state that hold before and after an iteration."""
    if out.dtype != inner.dtype:
        raise UnsupportedType(f"a state of {inner.dtype} becomes {out.dtype or 'no tensor'}")
    if len(out.known_shape) != inner.rank:
        raise UnsupportedOp(f"the rank of its state {inner.name!r} changes from iteration to iteration")
    pairs = enumerate(zip(inner.known_shape, out.known_shape, strict=True))
    return tuple(a if a == b else D.var(f"{inner.name}.{k}") for k, (a, b) in pairs)
