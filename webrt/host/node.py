"""One node, made ready to run many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, NodeProto
from onnx.defs import OpSchema

from webrt import schemas
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp, UnsupportedType, WebrtError
from webrt.host import growth
from webrt.host.attributes import plain_attributes, strings
from webrt.host.registry import Call, lookup
from webrt.host.values import HostValue, Outputs, describe

Opsets = Mapping[str, int]
Functions = Sequence[FunctionProto]
Runner = Callable[[Mapping[str, HostValue], Sequence[HostValue]], Outputs]

_ADVICE = (
    (IndexError, ShapeError, "an index lies outside its tensor; check the values that the node is fed"),
    (ZeroDivisionError, ShapeError, "a divisor is zero; check the values that the node is fed"),
    (OverflowError, ShapeError, "a number is too large; check the values that the node is fed"),
    (MemoryError, ShapeError, "the result does not fit into memory; feed smaller inputs"),
    (NotImplementedError, UnsupportedOp, "no provider has this form of the operator; use another opset or form"),
    (TypeError, UnsupportedType, "the element types do not fit the operator; check the model's types"),
    (ValueError, ShapeError, "the inputs do not fit the operator; check their shapes and values"),
)


class PreparedNode:
    """A parsed node with its implementation found; `run` evaluates it.

    Takes a NodeProto, the opset of each domain, and the model's functions. Raises UnsupportedOp where nothing
    implements the operator, InvalidModel where the node breaks its schema.
    """

    def __init__(self, node: NodeProto, opsets: Opsets, functions: Functions = ()) -> None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        self.op = f"{domain}:{node.op_type}" if domain else node.op_type
        self.name, self.outputs = node.name, tuple(node.output)
        self.opset = _opset(opsets, domain)
        try:
            schema = schemas.get_schema(node.op_type, self.opset, domain)
            local = _local_function(node, functions)
            if local is None:
                _check_schema(node, schema, domain)
            self._same = _same_type_groups(node, schema) if local is None else ()
            self.call = _make_call(node, domain, self.opset, opsets, functions, None if local else schema)
            self._run = _implementation(node, self.call, opsets, functions, local, schema)
        except WebrtError as error:
            error.at(node=self.name, op=self.op, opset=self.opset)
            raise

    @property
    def captures(self) -> frozenset[str]:
        """Names of outer values that the node's subgraphs read."""
        return frozenset().union(*(g.captures for g in self.call.graphs.values()))

    def run(self, inputs: Sequence[HostValue], outer: Mapping[str, HostValue] | None = None) -> list[HostValue]:
        """The outputs, one per name in the node (None for an absent one).

        `inputs` has one entry per input of the node; `outer` the values that the node's subgraphs capture.
        Raises a WebrtError that names the node, the operator and the inputs.
        """
        try:
            _check_readable(inputs)
            if self._same:
                self._check_types(inputs)
            if not self.call.domain:
                growth.check(self.call.op_type, inputs)
            with np.errstate(all="ignore"):
                return self._collect(self._run(outer or {}, inputs))
        except WebrtError as error:
            if ";" not in error.what:
                error.what += "; check the node's inputs and attributes"
            error.at(**self._where(inputs))
            raise
        except Exception as error:
            raise self._translate(error, inputs) from error

    def _collect(self, result: Outputs) -> list[HostValue]:
        values = result if isinstance(result, tuple) else (result,)
        collected: list[HostValue] = []
        for i, name in enumerate(self.outputs):
            if not name:
                collected.append(None)
                continue
            if i >= len(values):
                raise InvalidModel(f"the operator has {len(values)} outputs here, the node names {len(self.outputs)}")
            collected.append(_normal(values[i]))
        return collected

    def _check_types(self, inputs: Sequence[HostValue]) -> None:
        for group in self._same:
            dtypes = {v.dtype for v in (inputs[i] for i in group) if isinstance(v, np.ndarray)}
            if len(dtypes) > 1 and not all(d.kind in "OUS" for d in dtypes):
                names = " and ".join(sorted(str(d) for d in dtypes))
                raise UnsupportedType(f"inputs {list(group)} must share one element type, got {names}; insert a Cast")

    def _where(self, inputs: Sequence[HostValue]) -> dict[str, Any]:
        shown = ", ".join(describe(v) for v in inputs)
        return {"node": self.name, "op": self.op, "opset": self.opset, "inputs": shown}

    def _translate(self, error: Exception, inputs: Sequence[HostValue]) -> WebrtError:
        text = str(error) or type(error).__name__
        for kind, target, advice in _ADVICE:
            if isinstance(error, kind):
                return target(f"{text.rstrip('.')}: {advice}", **self._where(inputs))
        return InvalidModel(f"{type(error).__name__}: {text}; check the node", **self._where(inputs))


def _check_readable(inputs: Sequence[HostValue]) -> None:
    """Raises UnsupportedType for bits of a type that numpy has from ml_dtypes only where that is a stand-in: numpy
    would take the bits for numbers."""
    for v in inputs:
        if isinstance(v, np.ndarray) and v.dtype.names:
            raise UnsupportedType(f"the element type {v.dtype.names[0]} needs the package ml_dtypes, which is not here")


def _opset(opsets: Opsets, domain: str) -> int:
    found = opsets.get(domain)
    if found is None and domain == "":
        found = opsets.get("ai.onnx")
    return int(found) if found is not None else 1 if domain else 28


def _local_function(node: NodeProto, functions: Functions) -> FunctionProto | None:
    for function in functions:
        if (function.domain, function.name, function.overload) == (node.domain, node.op_type, node.overload):
            return function
    return None


def _check_schema(node: NodeProto, schema: OpSchema | None, domain: str) -> None:
    """Raises UnsupportedOp for an operator that the opset lacks, InvalidModel for a wrong number of values."""
    if schema is None:
        history = onnx.defs.get_all_schemas_with_history()
        first = min((s.since_version for s in history if (s.name, s.domain) == (node.op_type, domain)), default=0)
        since = f"it exists from opset {first} on" if first else "onnx and webrt know no such operator"
        raise UnsupportedOp(f"the opset has no such operator, {since}; convert the model, or pass a model function")
    given = len(node.input)
    while given and not node.input[given - 1]:
        given -= 1
    if len(node.input) < schema.min_input or given > schema.max_input:
        most = "any number" if OpSchema.is_infinite(schema.max_input) else schema.max_input
        raise InvalidModel(
            f"{given} inputs given, the operator takes {schema.min_input} to {most}; re-export the model"
        )
    if len(node.output) > schema.max_output:
        raise InvalidModel(
            f"{len(node.output)} outputs named, the operator has at most {schema.max_output}; re-export the model"
        )


def _same_type_groups(node: NodeProto, schema: OpSchema | None) -> tuple[tuple[int, ...], ...]:
    """Groups of inputs that the schema wants to have one element type."""
    if schema is None or not schema.inputs:
        return ()
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(node.input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        variable = formal.type_str in {t.type_param_str for t in schema.type_constraints}
        if name and variable and formal.is_homogeneous:
            groups.setdefault(formal.type_str, []).append(i)
    return tuple(tuple(g) for g in groups.values() if len(g) > 1)


def _make_call(
    node: NodeProto, domain: str, opset: int, opsets: Opsets, functions: Functions, schema: OpSchema | None
) -> Call:
    from webrt.host.graph import GraphRunner

    attributes = schemas.attribute_defaults(schema) if schema is not None else {}
    attributes |= plain_attributes(node)
    graphs = {
        a.name: GraphRunner.from_graph(a.g, opsets, functions) for a in node.attribute if a.type == AttributeProto.GRAPH
    }
    return Call(node.op_type, domain, opset, node.name, tuple(node.output), attributes, graphs)


def _implementation(
    node: NodeProto,
    call: Call,
    opsets: Opsets,
    functions: Functions,
    local: FunctionProto | None,
    schema: OpSchema | None,
) -> Runner:
    """In order: the model's own function, ours, onnx's reference operator, the schema's function body."""
    entry = lookup(call.op_type, call.domain, call.opset) if local is None else None
    if entry is not None:
        return lambda outer, inputs: entry.run(call, outer, inputs)
    from webrt.host import functions as bodies
    from webrt.host import reference

    if local is not None:
        return bodies.model_function(node, local, functions)
    found = reference.implementation(node, call, schema) or bodies.schema_function(node, call, schema, opsets)
    if found is None:
        known = "its opset is not one that onnx knows" if schema is None else "onnx has no reference for it"
        raise UnsupportedOp(f"no implementation on the CPU: {known}; replace the operator, or pass a model function")
    return found


def _normal(value: HostValue | Any) -> HostValue:
    if isinstance(value, np.ndarray):
        return strings(value) if value.dtype.kind in "US" else value
    if value is None or isinstance(value, (list, dict)):
        return value
    return np.asarray(value)
