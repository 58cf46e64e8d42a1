"""Graphs on the CPU: a whole model, a constant's subgraph, a branch, a loop's body, a function's body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from webrt.errors import InputError, InvalidModel
from webrt.host.attributes import bind, dense, tensor_array
from webrt.host.node import Functions, Opsets, PreparedNode
from webrt.host.values import Array, HostValue


@dataclass(frozen=True)
class Step:
    """A node, the names it reads and writes, what its subgraphs read, and what nobody reads after it."""

    node: PreparedNode
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captures: frozenset[str]
    dead: tuple[str, ...]


class GraphRunner:
    """A graph made ready to run many times; holds no state between runs.

    `inputs` and `outputs` are names; `captures` the names that the graph reads from the scope around it.
    """

    def __init__(
        self,
        nodes: Iterable[NodeProto],
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, Array],
        opsets: Opsets,
        functions: Functions = (),
        graph: GraphProto | None = None,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.constants, self.opsets, self.graph = dict(constants), dict(opsets), graph
        ordered = topological(list(nodes))
        prepared = [PreparedNode(n, opsets, functions) for n in ordered]
        defined = {*self.inputs, *self.constants} | {o for n in ordered for o in n.output}
        read = {i for n in ordered for i in n.input if i} | set(self.outputs)
        self.captures = frozenset((read | {c for p in prepared for c in p.captures}) - defined - {""})
        self.steps = _steps(ordered, prepared, self.outputs)

    @classmethod
    def from_graph(cls, graph: GraphProto, opsets: Opsets, functions: Functions = ()) -> GraphRunner:
        """A GraphProto; initializers are its constants."""
        constants = {t.name: tensor_array(t) for t in graph.initializer}
        constants |= {t.values.name: dense(t) for t in graph.sparse_initializer}
        inputs, outputs = [i.name for i in graph.input], [o.name for o in graph.output]
        return cls(graph.node, inputs, outputs, constants, opsets, functions, graph)

    @classmethod
    def from_model(cls, model: ModelProto | bytes | str | Path) -> GraphRunner:
        """A model, its bytes, or the path of its file."""
        if isinstance(model, bytes):
            model = onnx.load_from_string(model)
        elif not isinstance(model, ModelProto):
            model = onnx.load(model)
        opsets = {o.domain: o.version for o in model.opset_import}
        return cls.from_graph(model.graph, opsets, list(model.functions))

    @classmethod
    def from_function(
        cls,
        function: FunctionProto,
        attributes: Mapping[str, AttributeProto],
        functions: Functions,
        default_opset: int | None = None,
    ) -> GraphRunner:
        """A function's body with the attributes of one call."""
        opsets = {o.domain: o.version for o in function.opset_import}
        if default_opset is not None:
            opsets.setdefault("", default_opset)
        nodes = [bind(n, attributes) for n in function.node]
        return cls(nodes, list(function.input), list(function.output), {}, opsets, functions)

    def run(
        self,
        inputs: Sequence[HostValue] | Mapping[str, HostValue],
        outer: Mapping[str, HostValue] | None = None,
        fetch: Sequence[str] | None = None,
        observe: Callable[[str, HostValue], None] | None = None,
    ) -> list[HostValue]:
        """The values of `fetch` (the graph's outputs by default; any name inside the graph is allowed).

        `inputs` by position or by name; an input that is also an initializer may be left out. `observe` is told of each
        value that a node makes.
        """
        names = self.outputs if fetch is None else tuple(fetch)
        keep = frozenset(names)
        env: dict[str, HostValue] = dict(self.constants)
        env.update(inputs if isinstance(inputs, Mapping) else zip(self.inputs, inputs))
        around = outer or {}
        self._check(env)
        for step in self.steps:
            values = [_find(name, env, around) if name else None for name in step.inputs]
            scope = {name: _find(name, env, around) for name in step.captures}
            for name, value in zip(step.outputs, step.node.run(values, scope)):
                if name:
                    env[name] = value
                    if observe is not None:
                        observe(name, value)
            for name in step.dead:
                if name not in keep:
                    env.pop(name, None)
        return [_find(name, env, around) for name in names]

    def output_info(self, i: int) -> ValueInfoProto | None:
        """What the graph declares about output i."""
        return self.graph.output[i] if self.graph is not None else None

    def _check(self, env: Mapping[str, HostValue]) -> None:
        missing = [name for name in self.inputs if name not in env]
        if missing:
            raise InputError(f"no value for the graph's inputs {missing}; feed them")


def run_model(
    model: ModelProto | bytes | str | Path, feeds: Mapping[str, HostValue], fetch: Sequence[str] | None = None
) -> dict[str, HostValue]:
    """Runs a model once on the CPU: name → value for `fetch`, by default the model's outputs."""
    runner = GraphRunner.from_model(model)
    names = runner.outputs if fetch is None else tuple(fetch)
    return dict(zip(names, runner.run(feeds, fetch=names)))


def topological(nodes: list[NodeProto]) -> list[NodeProto]:
    """Nodes with producers before readers, otherwise in the given order; raises InvalidModel on a cycle."""
    waiting = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    done: list[NodeProto] = []
    rest = list(enumerate(nodes))
    while rest:
        later: list[tuple[int, NodeProto]] = []
        for i, node in rest:
            if any(waiting.get(name, i) != i for name in _reads(node)):
                later.append((i, node))
                continue
            done.append(node)
            for name in node.output:
                waiting.pop(name, None)
        if len(later) == len(rest):
            names = [n.name or n.op_type for _, n in rest[:4]]
            raise InvalidModel(f"the graph has a cycle through {names}; re-export the model")
        rest = later
    return done


def _reads(node: NodeProto) -> set[str]:
    names = {i for i in node.input if i}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            names |= captured_names(attribute.g)
    return names


def captured_names(graph: GraphProto) -> set[str]:
    """Names that a subgraph reads from the scopes around it."""
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer} | {o for n in graph.node for o in n.output}
    read = set().union({o.name for o in graph.output}, *(_reads(n) for n in graph.node))
    return read - defined - {""}


def _steps(nodes: Sequence[NodeProto], prepared: Sequence[PreparedNode], outputs: Collection[str]) -> list[Step]:
    steps: list[Step] = []
    seen = set(outputs)
    for node, ready in zip(reversed(nodes), reversed(prepared)):
        captures = ready.captures
        used = {n for n in (*node.input, *node.output, *captures) if n}
        steps.append(Step(ready, tuple(node.input), tuple(node.output), captures, tuple(used - seen)))
        seen |= used
    return steps[::-1]


def _find(name: str, env: Mapping[str, HostValue], outer: Mapping[str, HostValue]) -> HostValue:
    if name in env:
        return env[name]
    if name in outer:
        return outer[name]
    raise InvalidModel(f"nothing computes the value {name!r}; re-export the model")
