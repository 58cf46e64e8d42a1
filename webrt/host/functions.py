"""Operators that are functions: the model's own, and those that a schema gives a body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from webrt.host.graph import GraphRunner
from webrt.host.node import Functions, Opsets, Runner
from webrt.host.registry import Call
from webrt.host.values import HostValue, Outputs, type_code

_MAX_BODIES = 16


def model_function(node: NodeProto, function: FunctionProto, functions: Functions) -> Runner:
    """A runner on a function of the model, with the attributes of one call."""
    values = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
    graph = GraphRunner.from_function(function, values, functions)

    def run(outer: Mapping[str, HostValue], inputs: Sequence[HostValue]) -> Outputs:
        return tuple(graph.run(_padded(inputs, len(function.input))))

    return run


def schema_function(node: NodeProto, call: Call, schema: Any, opsets: Opsets) -> Runner | None:
    """A runner on the body that an operator's schema carries, None where it has none."""
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return None
    values = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    values |= {a.name: a for a in node.attribute}
    if schema.has_function:
        fixed = _runner(_parse(schema.get_function_with_opset_version(_body_version(schema, call))), values, call)
        return lambda outer, inputs: tuple(fixed.run(_padded(inputs, len(schema.inputs))))
    bodies: dict[tuple[object, ...], GraphRunner] = {}

    def run(outer: Mapping[str, HostValue], inputs: Sequence[HostValue]) -> Outputs:
        key = tuple((v.dtype, v.shape) if isinstance(v, np.ndarray) else None for v in inputs)
        if key not in bodies:
            if len(bodies) >= _MAX_BODIES:
                bodies.clear()
            bodies[key] = _runner(_contextual(node, schema, call, inputs), values, call)
        return tuple(bodies[key].run(_padded(inputs, len(bodies[key].inputs))))

    return run


def _body_version(schema: Any, call: Call) -> int:
    return int(max((v for v in schema.function_opset_versions if v <= call.opset), default=schema.since_version))


def _contextual(node: NodeProto, schema: Any, call: Call, inputs: Sequence[HostValue]) -> FunctionProto:
    types = [_type_of(v).SerializeToString() for v in inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
    version = max(versions, default=schema.since_version)
    return _parse(schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types))


def _type_of(value: HostValue) -> TypeProto:
    if not isinstance(value, np.ndarray):
        return TypeProto()
    return onnx.helper.make_tensor_type_proto(type_code(value.dtype), value.shape)


def _parse(body: bytes | FunctionProto) -> FunctionProto:
    if isinstance(body, FunctionProto):
        return body
    parsed = FunctionProto()
    parsed.ParseFromString(body)
    return parsed


def _runner(body: FunctionProto, values: Mapping[str, AttributeProto], call: Call) -> GraphRunner:
    return GraphRunner.from_function(body, values, (), default_opset=call.opset if not call.domain else None)


def _padded(inputs: Sequence[HostValue], count: int) -> list[HostValue]:
    return list(inputs) + [None] * (count - len(inputs))
