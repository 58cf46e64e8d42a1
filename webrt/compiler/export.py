"""The optimised graph as an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ModelError
from webrt.ir import Graph, Value
from webrt.plan import atomic_file

MAX_PROTOBUF = 2**31 - 1


def to_model(graph: Graph) -> onnx.ModelProto:
    """The graph as a ModelProto: opsets and metadata of the source, constants as initializers."""
    proto = onnx.GraphProto(name=str(graph.meta.get("graph_name") or "webrt"))
    proto.node.extend(n.to_proto() for n in graph.nodes)
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


def save_model(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Writes the graph as an `.onnx` file, whole or not at all. Raises ModelError above protobuf's 2 GB."""
    data = to_bytes(graph)
    with atomic_file(Path(path)) as out:
        out.write(data)


def to_bytes(graph: Graph) -> bytes:
    """The graph as the bytes of an `.onnx` file. Raises ModelError above protobuf's 2 GB."""
    model = to_model(graph)
    if model.ByteSize() > MAX_PROTOBUF:
        raise ModelError(
            f"the optimised model has {model.ByteSize()} bytes; an .onnx file holds at most {MAX_PROTOBUF}"
        )
    return bytes(model.SerializeToString(deterministic=True))


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.dtype is None:
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
