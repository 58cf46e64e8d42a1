"""The body of a function, a branch or a loop in the place of the node that has it, under fresh names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from webrt.compiler.frontend import captures
from webrt.compiler.tensors import read_constant, read_sparse, read_tensor
from webrt.errors import InvalidModel
from webrt.ir import Graph, Node, Value, constant, dtype_of, graphs_of, unique_names

Known = dict[str, Value | None]


def fresh_names(graph: Graph) -> Iterator[str]:
    """Names of values that neither the graph nor a subgraph in it uses."""
    inner = itertools.chain.from_iterable(names_within(n.attrs.values()) for n in graph.nodes)
    return unique_names(itertools.chain((v.name for v in graph.values()), inner))


def opsets_of(node: Node, graph: Graph) -> dict[str, int]:
    """The opset versions under which a node runs: its own, and the model's for its subgraphs."""
    return {**graph.opsets, node.domain: node.opset}


def function(node: Node, body: onnx.FunctionProto, opsets: Mapping[str, int], names: Iterator[str]) -> list[Node]:
    """The nodes of a function's body for the node that calls it."""
    opsets = {**opsets, **{_domain(o.domain): o.version for o in body.opset_import}}
    known: Known = dict(zip(body.input, [*node.inputs, *[None] * len(body.input)], strict=False))
    given = dict(zip(body.output, node.outputs, strict=False))
    nodes = _nodes(node, body.node, known, given, opsets, names)
    for inner in nodes:
        inner.caller = node.caller or node
    if any(v is not None and v.producer is node for v in node.outputs):
        raise InvalidModel("its function makes fewer outputs than it has", node=node.name, op=node.op)
    return nodes


def subgraph(
    node: Node, body: onnx.GraphProto, inputs: Sequence[Value], opsets: Mapping[str, int], names: Iterator[str],
    results: Sequence[Value | None] = (),
) -> tuple[list[Node], list[Value]]:  # fmt: skip
    """The nodes of a subgraph of `node` for these inputs, and its outputs; those in `results` become those values."""
    known: Known = {v.name: v for v in node.outer}
    known.update(zip((i.name for i in body.input), inputs, strict=False))
    for tensor in body.initializer:
        known[tensor.name] = constant(next(names), read_tensor(tensor), dtype_of(tensor.data_type))
    for sparse in body.sparse_initializer:
        known[sparse.values.name] = constant(next(names), read_sparse(sparse), dtype_of(sparse.values.data_type))
    made = {name for n in body.node for name in n.output}
    wanted = {o.name: v for o, v in zip(body.output, results, strict=False) if v is not None and o.name in made}
    nodes = _nodes(node, body.node, known, wanted, opsets, names)
    outputs = [_output(node, known, o.name) for o in body.output]
    for i, (source, result) in enumerate(zip(outputs, results, strict=False)):
        if result is not None and source is not result:
            nodes.append(identity(source, result, opsets[""], node))
            outputs[i] = result
    return nodes, outputs


def identity(source: Value, result: Value, opset: int, node: Node) -> Node:
    """A node that gives `source` another name, in the place of `node`."""
    result.producer = Node("Identity", "", f"{node.name}/Identity", [source], [result], opset, sources=node.sources)
    return result.producer


def _nodes(
    caller: Node, protos: Iterable[onnx.NodeProto], known: Known, given: Mapping[str, Value | None],
    opsets: Mapping[str, int], names: Iterator[str],
) -> list[Node]:  # fmt: skip
    """Nodes for the protos of a body; `known` grows by what they make; `given` are values for some of their outputs."""
    out: list[Node] = []
    for proto in protos:
        domain = _domain(proto.domain)
        call = onnx.NodeProto()
        call.CopyFrom(proto)
        _bind(call, caller, {k: v.name for k, v in known.items() if v is not None})
        if domain == "" and proto.op_type == "Constant" and (value := read_constant(call)) is not None:
            known[proto.output[0]] = _named(value, next(names))
            continue
        if domain not in opsets:
            raise InvalidModel(f"no opset of domain {domain!r} is imported", node=proto.name, op=proto.op_type)
        new = Node(
            proto.op_type, domain, f"{caller.name}/{proto.name or proto.op_type}",
            [known.get(x) if x else None for x in proto.input], [], opsets[domain],
            {a.name: a for a in call.attribute},
            [v for name in captures(proto) if (v := known.get(name)) is not None], caller.sources,
        )  # fmt: skip
        for name in proto.output:
            value = (given.get(name) or Value(next(names))) if name else None
            if value is not None:
                value.producer = new
            known[name] = value
            new.outputs.append(value)
        new.caller = caller.caller
        out.append(new)
    return out


def _named(value: Value, name: str) -> Value:
    value.name = name
    return value


def _output(node: Node, known: Known, name: str) -> Value:
    value = known.get(name)
    if value is None:
        raise InvalidModel(f"the output {name!r} of a subgraph is made by no node", node=node.name, op=node.op)
    return value


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def names_within(attributes: Iterable[onnx.AttributeProto]) -> Iterator[str]:
    """Names that subgraphs among a node's attributes give to values."""
    for a in attributes:
        for g in graphs_of(a):
            yield from (x.name for x in [*g.input, *g.initializer])
            for n in g.node:
                yield from n.output
                yield from names_within(n.attribute)


def _bind(call: onnx.NodeProto, caller: Node, names: dict[str, str]) -> None:
    """Gives a body's node the caller's attributes, and its subgraphs the new names of what they capture."""
    attributes = [_resolved(a, caller) for a in call.attribute]
    del call.attribute[:]
    call.attribute.extend(a for a in attributes if a is not None)
    for a in call.attribute:
        for graph in graphs_of(a):
            own = {x.name for x in [*graph.input, *graph.initializer]} | {x for n in graph.node for x in n.output}
            inner = {k: v for k, v in names.items() if k not in own}
            for n in graph.node:
                n.input[:] = [inner.get(x, x) for x in n.input]
                _bind(n, caller, inner)
            for o in graph.output:
                o.name = inner.get(o.name, o.name)


def _resolved(a: onnx.AttributeProto, caller: Node) -> onnx.AttributeProto | None:
    """An attribute of a body: itself, or what it refers to among the caller's attributes; None where that is absent."""
    if not a.ref_attr_name:
        return a
    source = caller.attrs.get(a.ref_attr_name)
    declared = caller.schema.attributes.get(a.ref_attr_name)
    if source is None and declared is not None and declared.default_value.type:
        source = declared.default_value
    if source is None:
        return None
    copy = onnx.AttributeProto()
    copy.CopyFrom(source)
    copy.name = a.name
    return copy
