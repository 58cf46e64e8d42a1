"""External data: bytes of initializers that lie beside the model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx

from webrt.bounds import Bounds
from webrt.compiler.datafiles import Reader, short
from webrt.errors import ExternalDataError
from webrt.ir import dtype_of, graphs_of


def resolve(model: onnx.ModelProto, read: Reader, bounds: Bounds) -> None:
    """Moves all external data into the model, as `read` gives it.

    Raises ExternalDataError where data is missing or short, or its location leaves the model's folder, and ModelError
    where it is more than `bounds` allow: many tensors may name the same bytes.
    """
    for tensor in _external_tensors(model.graph):
        info = {e.key: e.value for e in tensor.external_data}
        location = info.get("location", "")
        offset, length = _number(tensor, info.get("offset", "0")), info.get("length")
        need = dtype_of(tensor.data_type).packed_nbytes(math.prod(tensor.dims))
        count = need if length is None else _number(tensor, length)
        bounds.take(count, f"the external data of tensor {tensor.name!r}")
        tensor.raw_data = read(tensor.name, location, offset, count)
        if len(tensor.raw_data) < need:
            raise short(tensor.name, location, offset + need, offset + len(tensor.raw_data))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    stack = [graph]
    while stack:
        g = stack.pop()
        yield from (t for t in g.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
        for node in g.node:
            for a in node.attribute:
                stack += graphs_of(a)
                tensors = [*([a.t] if a.HasField("t") else []), *a.tensors]
                yield from (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)


def _number(tensor: onnx.TensorProto, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        short = text if len(text) < 40 else f"{text[:40]}…"
        raise ExternalDataError(f"tensor {tensor.name!r} has an offset or a length that is no number: {short!r}")
    return int(text)
