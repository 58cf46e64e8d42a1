"""If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from webrt.errors import InvalidModel, ShapeError
from webrt.host.graph import GraphRunner
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, HostValue, np_dtype, type_code

Scope = Mapping[str, HostValue]


@op("If", outer=True)
def if_else(call: Call, outer: Scope, condition: Array) -> tuple[HostValue, ...]:
    """One branch or the other."""
    if condition.size != 1:
        raise ShapeError(f"the condition has {condition.size} elements; it must have one")
    branch = call.graphs["then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"]
    return tuple(branch.run([], outer))


@op("Loop", outer=True)
def loop(
    call: Call, outer: Scope, trips: Array | None = None, condition: Array | None = None, *carried: HostValue
) -> tuple[HostValue, ...]:
    """The body, again and again: for a number of trips, while a condition holds, or both."""
    body, count = call.graphs["body"], len(carried)
    limit = None if trips is None else int(trips.reshape(-1)[0])
    alive = True if condition is None else bool(condition.reshape(-1)[0])
    if limit is None and condition is None:
        raise InvalidModel("Loop has neither a trip count nor a condition; it would never end")
    state: list[HostValue] = list(carried)
    collected: list[list[Array]] = [[] for _ in body.outputs[1 + count :]]
    done = 0
    while alive and (limit is None or done < limit):
        results = body.run([np.asarray(done, np.int64), np.asarray(alive), *state], outer)
        state = results[1 : 1 + count]
        for line, value in zip(collected, results[1 + count :]):
            line.append(_tensor(value))
        done += 1
        alive = condition is None or bool(_tensor(results[0]).reshape(-1)[0])
    given: list[HostValue] = [np.asarray(0, np.int64), np.asarray(True), *carried]
    stacked = [_stack(body, 1 + count + i, line, 0, given, outer) for i, line in enumerate(collected)]
    return (*state, *stacked)


def _tensor(value: HostValue) -> Array:
    if not isinstance(value, np.ndarray):
        raise InvalidModel("the body returns no tensor where one is needed; re-export the model")
    return value


def _stack(
    body: GraphRunner, i: int, line: Sequence[Array], axis: int, given: Sequence[HostValue], outer: Scope
) -> Array:
    """Scan outputs joined on a new axis; without any iteration, an empty tensor in the shape that the body implies."""
    if line:
        shapes = {v.shape for v in line}
        if len(shapes) > 1:
            raise ShapeError(f"scan output {body.outputs[i]!r} changes its shape between iterations: {sorted(shapes)}")
        return np.stack(line, normal_axis(axis, line[0].ndim + 1))
    elem, sizes = _declared(body, i, given, outer)
    where = normal_axis(axis, len(sizes) + 1)
    return np.zeros((*sizes[:where], 0, *sizes[where:]), np_dtype(elem))


def _declared(body: GraphRunner, i: int, given: Sequence[HostValue], outer: Scope) -> tuple[int, list[int]]:
    """Element type and sizes of a body's output, by shape inference from what the body would have been given."""
    if body.graph is None:
        raise InvalidModel("a loop without iterations needs a body with declared outputs")
    graph = onnx.GraphProto()
    graph.CopyFrom(body.graph)
    known = {n: v for n, v in zip(body.inputs, given)} | {n: outer[n] for n in body.captures if n in outer}
    del graph.input[:]
    for name, value in known.items():
        if isinstance(value, np.ndarray):
            graph.input.append(onnx.helper.make_tensor_value_info(name, type_code(value.dtype), value.shape))
    declared = graph.output[i].type
    names = {o.name for o in graph.output}
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in body.opsets.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    for value_info in model.graph.output:
        value_info.type.CopyFrom(TypeProto())
    inferred = onnx.shape_inference.infer_shapes(model)
    found = {o.name: o.type for o in inferred.graph.output if o.name in names}[body.outputs[i]]
    return _merge(found, declared)


def _merge(found: TypeProto, declared: TypeProto) -> tuple[int, list[int]]:
    elem = found.tensor_type.elem_type or declared.tensor_type.elem_type or TensorProto.FLOAT
    best = found if found.tensor_type.HasField("shape") else declared
    return elem, [d.dim_value if d.HasField("dim_value") else 0 for d in best.tensor_type.shape.dim]


@op("Scan", since=9, outer=True)
def scan(call: Call, outer: Scope, *inputs: Array) -> tuple[HostValue, ...]:
    """The body for each element along the scan axes, in either direction."""
    body, scanned = call.graphs["body"], call.integer("num_scan_inputs")
    count = len(inputs) - scanned
    flags, axes = _flags(call, "scan_input_directions", scanned), _flags(call, "scan_input_axes", scanned)
    state, lines = _run_scan(body, inputs[:count], inputs[count:], axes, flags, outer)
    outputs = len(body.outputs) - count
    flags, places = _flags(call, "scan_output_directions", outputs), _flags(call, "scan_output_axes", outputs)
    elements = [_element(x, normal_axis(a, x.ndim)) for a, x in zip(axes, inputs[count:])]
    stacked = [
        _stack(body, count + i, line[::-1] if flags[i] else line, places[i], [*inputs[:count], *elements], outer)
        for i, line in enumerate(lines)
    ]
    return (*state, *stacked)


def _element(x: Array, axis: int) -> Array:
    """What a body would be given of x, zeros where x has no elements."""
    return np.zeros(x.shape[:axis] + x.shape[axis + 1 :], x.dtype)


def _flags(call: Call, name: str, count: int) -> list[int]:
    return (call.ints(name) or []) + [0] * (count - len(call.ints(name) or []))


def _run_scan(
    body: GraphRunner, state: Sequence[HostValue], scanned: Sequence[Array], axes: Sequence[int],
    backward: Sequence[int], outer: Scope,
) -> tuple[list[HostValue], list[list[Array]]]:  # fmt: skip
    moved = [np.moveaxis(x, normal_axis(a, x.ndim), 0) for x, a in zip(scanned, axes)]
    steps = {x.shape[0] for x in moved}
    if len(steps) != 1:
        raise ShapeError(f"the scanned inputs have {sorted(steps)} elements; they must have equally many")
    now, count = list(state), len(state)
    lines: list[list[Array]] = [[] for _ in body.outputs[count:]]
    total = steps.pop()
    for t in range(total):
        elements = [x[total - 1 - t] if b else x[t] for x, b in zip(moved, backward)]
        results = body.run([*now, *elements], outer)
        now = results[:count]
        for line, value in zip(lines, results[count:]):
            line.append(_tensor(value))
    return now, lines


@op("Scan", until=9, outer=True)
def scan_8(call: Call, outer: Scope, lengths: Array | None, *inputs: Array) -> tuple[HostValue, ...]:
    """Opset 8: a batch axis before the scan axis, and a length for each batch entry."""
    body, scanned = call.graphs["body"], call.integer("num_scan_inputs")
    count = len(inputs) - scanned
    backward = _flags(call, "directions", scanned)
    batch, steps = inputs[count].shape[:2]
    ends = [steps] * batch if lengths is None else [int(n) for n in lengths]
    states: list[list[Array]] = [[] for _ in range(count)]
    lines: list[list[Array]] = [[] for _ in body.outputs[count:]]
    for b in range(batch):
        cut = [x[b, : ends[b]] for x in inputs[count:]]
        now, found = _run_scan(body, [x[b] for x in inputs[:count]], cut, [0] * scanned, backward, outer)
        for collected, value in zip(states, now):
            collected.append(_tensor(value))
        for line, values in zip(lines, found):
            stacked = np.stack(values)
            room = [(0, steps - len(values))] + [(0, 0)] * (stacked.ndim - 1)
            line.append(np.pad(stacked, room))
    return (*(np.stack(s) for s in states), *(np.stack(line) for line in lines))
