"""The optimised graph as an ONNX file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler import places
from webrt.compiler.partition import Placed
from webrt.dims import Dim
from webrt.errors import InputError, ModelError
from webrt.files import atomic_file
from webrt.ir import Graph, Value

MAX_PROTOBUF = 2**31 - 1
EXTENDED = "webrt.extended"
"""The model's metadata that names the extended passes to apply at any level."""
NODE_METADATA = 10
"""The first IR version in which nodes have metadata."""
LEAST_OUTSIDE, DATA_ALIGN = 1024, 4096


def to_model(graph: Graph) -> onnx.ModelProto:
    """The graph as a ModelProto: opsets and metadata of the source, constants as initializers."""
    proto = onnx.GraphProto(name=str(graph.meta.get("graph_name") or "webrt"))
    proto.node.extend(n.to_proto() for n in graph.nodes)
    _tell_apart(proto)
    proto.input.extend(_info(v) for v in graph.inputs)
    proto.output.extend(_info(v) for v in graph.outputs)
    inputs = set(graph.inputs)
    proto.initializer.extend(tensor_of(v) for v in graph.values() if v.const is not None and v not in inputs)
    versions = dict(graph.opsets)
    for node in graph.nodes:
        versions[node.domain] = max(versions.get(node.domain, 0), node.opset)
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in versions.items()]
    model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=graph.ir_version, producer_name="webrt")
    onnx.helper.set_model_props(
        model, {str(k): str(v) for k, v in dict(graph.meta.get("custom_metadata_map", {})).items()}
    )
    return model


def _tell_apart(graph: onnx.GraphProto) -> None:
    """Numbers after the names that several nodes have: ONNX Runtime refuses a graph with equal ones."""
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    for node in graph.node:
        if node.name and node.name in seen:
            node.name = next(name for k in count(1) if (name := f"{node.name}_{k}") not in taken)
            taken.add(node.name)
        seen.add(node.name)


def annotate(
    model: onnx.ModelProto, placed: Sequence[Placed], extended: Sequence[str], wished: Mapping[str, str]
) -> None:
    """Says in each node's metadata who runs it, with which others, and what it was made of in the source model; and in
    the model's, which extended passes the placement is for: a reload at a lower level applies just those, and where
    the caller wished nodes to run (`wished`, by name of a node of the source model)."""
    lines = {next((v.name for v in p.node.outputs if v is not None), ""): p for p in placed}
    model.ir_version = max(model.ir_version, NODE_METADATA)
    kept = {name: wished[name] for name in places.names_of(model.graph.node) if name in wished}
    for node in model.graph.node:
        line = lines.get(next((name for name in node.output if name), ""))
        if line is None:
            continue
        if node.name and (wish := places.wish_of(line.node, wished)):
            kept[node.name] = wish
        told = {
            "webrt.provider": "CPUExecutionProvider" if line.how == "host" else "WebGpuExecutionProvider",
            "webrt.how": line.how,
            "webrt.reason": line.reason,
            "webrt.sources": ", ".join(line.node.sources),
        }
        node.metadata_props.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in told.items() if v)
    props = {p.key: p.value for p in model.metadata_props if p.key != places.KEPT}
    if kept:
        props[places.KEPT] = json.dumps(dict(sorted(kept.items())))
    onnx.helper.set_model_props(model, {**props, EXTENDED: " ".join(extended)})


def save_model(model: onnx.ModelProto, path: str | os.PathLike[str], data: str = "") -> None:
    """Writes an `.onnx` file, whole or not at all. Tensors of at least LEAST_OUTSIDE bytes go to the file `data` beside
    it, where it is named; also where the model would exceed protobuf's 2 GB, to `PATH.data` then."""
    path = Path(path)
    if not data and model.ByteSize() > MAX_PROTOBUF:
        data = f"{path.name}.data"
    if data and (Path(data).name != data or data == path.name):
        raise InputError(f"{data!r} is no name of a file beside {path.name}: give a plain name, other than the model's")
    with atomic_file(path) as out:
        if not data:
            out.write(model.SerializeToString(deterministic=True))
            return
        with atomic_file(path.with_name(data)) as outside:
            _move_out(model, outside, data)
            out.write(model.SerializeToString(deterministic=True))


def to_bytes(model: onnx.ModelProto) -> bytes:
    """A model as the bytes of an `.onnx` file. Raises ModelError above protobuf's 2 GB."""
    if model.ByteSize() > MAX_PROTOBUF:
        raise ModelError(
            f"the optimised model has {model.ByteSize()} bytes; an .onnx file holds at most {MAX_PROTOBUF}: "
            "write it to a path, with its data beside it"
        )
    return bytes(model.SerializeToString(deterministic=True))


def _move_out(model: onnx.ModelProto, out: Any, location: str) -> None:
    """Writes the large tensors to `out` and leaves where they are in the model."""
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < LEAST_OUTSIDE:
            continue
        offset = -(-out.tell() // DATA_ALIGN) * DATA_ALIGN
        out.write(bytes(offset - out.tell()) + tensor.raw_data)
        entries = {"location": location, "offset": str(offset), "length": str(len(tensor.raw_data))}
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.extend(onnx.StringStringEntryProto(key=k, value=v) for k, v in entries.items())


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.dtype is None:
        return onnx.ValueInfoProto(name=value.name, type=value.type_proto)
    if value.shape is None and value.type_proto is not None and value.type_proto.tensor_type.HasField("shape"):
        return onnx.ValueInfoProto(name=value.name, type=value.type_proto)
    shape = None if value.shape is None else [_size(d) for d in value.shape]
    return onnx.helper.make_tensor_value_info(value.name, value.dtype.code, shape)


def _size(d: Dim) -> int | str:
    return d if isinstance(d, int) else str(d)


def tensor_of(value: Value) -> onnx.TensorProto:
    """A constant as ONNX stores it."""
    array = np.asarray(value.const)
    if value.dtype == T.STRING:
        flat = [x.encode() if isinstance(x, str) else bytes(x) for x in array.reshape(-1).tolist()]
        return onnx.helper.make_tensor(value.name, onnx.TensorProto.STRING, array.shape, flat)  # type: ignore[arg-type]
    return onnx.numpy_helper.from_array(array, value.name)
