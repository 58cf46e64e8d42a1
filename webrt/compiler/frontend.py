"""From a file, bytes or a ModelProto to a Graph: read, check, sort. The model's own facts win over what it declares."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
from google.protobuf.message import DecodeError

from webrt import dims as D
from webrt import known
from webrt.bounds import Bounds, told
from webrt.compiler import external, precheck, predict
from webrt.compiler.checker import check
from webrt.compiler.datafiles import DataFiles, Reader, model_bytes
from webrt.compiler.tensors import read_constant, read_sparse, read_tensor
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InputError, InvalidModel, ModelError
from webrt.ir import Graph, Node, Value, constant, dtype_of, graphs_of

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto


@told(ModelError, "reading the model")
def read_model(
    source: Source, external_data: Mapping[str, bytes] | Reader | None = None, bounds: Bounds | None = None
) -> onnx.ModelProto:
    """The model with all its data inside; `external_data` is bytes by location, or reads them.

    Raises InvalidModel or ExternalDataError, and ModelError where its data is more than `bounds` allow."""
    bounds = bounds or Bounds()
    name = "the model"
    if isinstance(source, onnx.ModelProto):
        precheck.check(source)
        model = onnx.ModelProto()
        model.CopyFrom(source)
        folder = None
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model, folder = _parse(bytes(source), name), None
    else:
        if not isinstance(source, (str, os.PathLike)):
            raise InvalidModel(f"a model is a path, bytes or a ModelProto; a {type(source).__name__} was given")
        path, name = Path(source), str(source)
        model, folder = _parse(model_bytes(path, bounds.left), name), path.parent
    if not model.HasField("graph"):
        raise InvalidModel(f"{name} is no ONNX model: it has no graph")
    precheck.check(model)
    predict.take(model, bounds)
    external.resolve(
        model, external_data if callable(external_data) else DataFiles(folder, external_data or {}), bounds
    )
    return model


def load(model: onnx.ModelProto, known: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a model that was read. `known` gives elements of graph inputs (or overrides initializers)."""
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except (DecodeError, RuntimeError, ValueError, onnx.checker.ValidationError) as e:
            raise InvalidModel(f"the model's own functions cannot be inlined: {str(e).strip().splitlines()[0]}") from e
    _sort(model.graph)
    check(model)
    return _Loader(model, dict(known or {})).graph()


def shape_of(name: str, proto: onnx.TypeProto) -> tuple[DType | None, tuple[Dim, ...] | None]:
    """Type and shape that a model declares; sizes that are missing or negative become variables `NAME.AXIS`."""
    if not proto.HasField("tensor_type"):
        return None, None
    tensor = proto.tensor_type
    dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(_dim(d, f"{name}.{i}") for i, d in enumerate(tensor.shape.dim))


class _Loader:
    def __init__(self, model: onnx.ModelProto, known: dict[str, Any]) -> None:
        self.model, self.proto, self.known = model, model.graph, known
        self.opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
        self.values: dict[str, Value] = {}
        self.overridable: list[Value] = []

    def graph(self) -> Graph:
        inputs = self._inputs()
        self._initializers()
        for name in self.known:
            if name not in self.values:
                names = ", ".join(v.name for v in inputs) or "none"
                raise InputError(f"the known {name!r} is neither an input nor an initializer; the inputs are {names}")
        self.overridable = [self.values[i.name] for i in self.proto.input if i.name in self._initializer_names]
        nodes = [n for n in (self._node(p) for p in self.proto.node) if n is not None]
        outputs = [self._output(o) for o in self.proto.output]
        for value, times in Counter(outputs).items():
            if times > 1:
                raise InvalidModel(f"the output {value.name!r} is listed twice; export the model with each output once")
        return Graph(nodes, inputs, outputs, self.opsets, self.overridable, self._meta(), self.model.ir_version)

    def _inputs(self) -> list[Value]:
        self._initializer_names = {t.name for t in self.proto.initializer} | {
            s.values.name for s in self.proto.sparse_initializer
        }
        inputs = []
        for info in self.proto.input:
            if info.name in self._initializer_names:
                continue
            dtype, shape = shape_of(info.name, info.type)
            value = Value(info.name, dtype, shape, type_proto=info.type, roots=frozenset({info.name}))
            if info.name in self.known:
                value.const = as_array(value, self.known[info.name])
                value.shape = tuple(value.const.shape)
                value.dtype = value.dtype or dtype_of(_code(value.const.dtype))
            self._define(value)
            inputs.append(value)
        return inputs

    def _initializers(self) -> None:
        for tensor in self.proto.initializer:
            array = self.known.get(tensor.name)
            value = constant(tensor.name, read_tensor(tensor), dtype_of(tensor.data_type))
            if array is not None:
                value.const = as_array(value, array)
                value.shape = tuple(value.const.shape)
            self._define(value)
        for sparse in self.proto.sparse_initializer:
            self._define(constant(sparse.values.name, read_sparse(sparse), dtype_of(sparse.values.data_type)))

    def _node(self, proto: onnx.NodeProto) -> Node | None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if domain == "" and proto.op_type == "Constant":
            value = read_constant(proto)
            if value is not None:
                self._define(value)
                return None
        if domain not in self.opsets:
            raise InvalidModel(
                f"the model imports no opset of domain {domain or 'ai.onnx'!r}", node=proto.name, op=proto.op_type
            )
        node = Node(
            proto.op_type, domain, proto.name, [self._read(n, proto) for n in proto.input], [], self.opsets[domain],
            {a.name: a for a in proto.attribute},
        )  # fmt: skip
        node.outer = [self.values[n] for n in captures(proto) if n in self.values]
        for name in proto.output:
            value = Value(name, producer=node) if name else None
            node.outputs.append(value)
            if value is not None:
                self._define(value)
        node.sources = (proto.name,)
        return node

    def _read(self, name: str, proto: onnx.NodeProto) -> Value | None:
        if not name:
            return None
        if name not in self.values:
            raise InvalidModel(
                f"input {name!r} is made by no node and is no input of the graph", node=proto.name, op=proto.op_type
            )
        return self.values[name]

    def _define(self, value: Value) -> None:
        if value.name in self.values:
            raise InvalidModel(f"the name {value.name!r} is defined twice")
        self.values[value.name] = value

    def _output(self, info: onnx.ValueInfoProto) -> Value:
        if info.name not in self.values:
            raise InvalidModel(f"the graph's output {info.name!r} is made by no node")
        value = self.values[info.name]
        value.type_proto = value.type_proto or info.type
        return value

    def _meta(self) -> dict[str, Any]:
        m = self.model
        return {
            "producer_name": m.producer_name, "producer_version": m.producer_version, "graph_name": self.proto.name,
            "domain": m.domain, "description": m.doc_string, "version": m.model_version, "ir_version": m.ir_version,
            "graph_description": self.proto.doc_string,
            "custom_metadata_map": {p.key: p.value for p in m.metadata_props},
        }  # fmt: skip


def captures(node: onnx.NodeProto) -> list[str]:
    """Names that a node's subgraphs read and do not define, in order."""
    found: dict[str, None] = {}
    for a in node.attribute:
        for g in graphs_of(a):
            known = {i.name for i in g.input} | {t.name for t in g.initializer}
            for n in g.node:
                found.update((x, None) for x in [*n.input, *captures(n)] if x and x not in known)
                known.update(n.output)
            found.update((o.name, None) for o in g.output if o.name not in known)
    return list(found)


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise InvalidModel(f"{what} is empty (zero bytes)")
    try:
        model = onnx.ModelProto()
        model.ParseFromString(data)
        return model
    except (DecodeError, RuntimeError, ValueError) as e:
        deep = next((word for word in ("MaxDepth", "nesting") if word in str(e)), "")
        why = (
            "nests subgraphs too deep (flatten them), or is no ONNX model"
            if deep
            else "is no ONNX model, or is cut short"
        )
        raise InvalidModel(f"{what} {why}: {e}") from e


def _sort(graph: onnx.GraphProto) -> None:
    """Nodes in order of execution, as stable as possible. Raises InvalidModel for a cycle."""
    made_by = {name: i for i, n in enumerate(graph.node) for name in n.output if name}
    needs = [{made_by[x] for x in [*n.input, *captures(n)] if x in made_by} for n in graph.node]
    if all(all(j < i for j in need) for i, need in enumerate(needs)):
        return
    order: list[int] = []
    users: list[list[int]] = [[] for _ in needs]
    for i, need in enumerate(needs):
        for j in need:
            users[j].append(i)
    missing = [len(need) for need in needs]
    ready = [i for i, count in enumerate(missing) if not count]
    while ready:
        order.append(heapq.heappop(ready))
        for i in users[order[-1]]:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)
    if len(order) < len(needs):
        node = graph.node[next(i for i, count in enumerate(missing) if count)]
        raise InvalidModel("the graph has a cycle through this node", node=node.name or node.output[0], op=node.op_type)
    nodes = [graph.node[i] for i in order]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _dim(d: onnx.TensorShapeProto.Dimension, fallback: str) -> Dim:
    if d.HasField("dim_value") and d.dim_value >= 0:
        return int(d.dim_value)
    return D.var(d.dim_param if d.dim_param and d.dim_param not in ("?", "-1") else fallback)


def as_array(value: Value, given: Any) -> np.ndarray[Any, Any]:
    """The known elements of an input. Raises InputError where they do not fit its type and shape."""
    array = np.asarray(given)
    if isinstance(given, known.PYTHON) and value.dtype is not None:
        expected = onnx.helper.tensor_dtype_to_np_dtype(value.dtype.code)
        array = known.of_python(value.name, given, expected, str(value.dtype))
    if value.dtype is not None:
        right = array.dtype.kind in "OSU" if value.dtype.name == "string" else _code(array.dtype) == value.dtype.code
        if not right:
            raise InputError(f"input {value.name!r} is {value.dtype}, {array.dtype} was given")
    declared = value.shape if value.const is None and value.shape is not None else array.shape
    if len(declared) != array.ndim or any(isinstance(d, int) and d != n for d, n in zip(declared, array.shape)):
        raise InputError(f"input {value.name!r} is {list(map(str, declared))}, {list(array.shape)} was given")
    return array


def _code(dtype: np.dtype[Any]) -> int:
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))
    except ValueError:
        return onnx.TensorProto.UNDEFINED
