"""External data: bytes of initializers that lie in files beside the model, and never outside its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

from webrt.errors import ExternalDataError
from webrt.ir import dtype_of


def resolve(model: onnx.ModelProto, folder: Path | None, given: Mapping[str, bytes] | None = None) -> None:
    """Moves all external data into the model. Files are looked for in `folder`; `given` maps a location to its bytes.

    Raises ExternalDataError where data is missing or short, or its location leaves the folder.
    """
    for tensor in _external_tensors(model.graph):
        info = {e.key: e.value for e in tensor.external_data}
        location = info.get("location", "")
        offset, length = _number(tensor, info.get("offset", "0")), info.get("length")
        count = None if length is None else _number(tensor, length)
        if given is not None and location in given:
            tensor.raw_data = _slice(tensor, location, given[location], offset, count)
        elif folder is None:
            raise ExternalDataError(
                f"tensor {tensor.name!r} lies in the file {location!r}; give the model's path, or its external data"
            )
        else:
            tensor.raw_data = _read(tensor, folder, location, offset, count)
        need = dtype_of(tensor.data_type).nbytes(math.prod(tensor.dims))
        if len(tensor.raw_data) < need:
            raise _short(tensor, location, offset + need, offset + len(tensor.raw_data))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    stack = [graph]
    while stack:
        g = stack.pop()
        yield from (t for t in g.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
        for node in g.node:
            for a in node.attribute:
                stack.extend([*([a.g] if a.HasField("g") else []), *a.graphs])
                tensors = [*([a.t] if a.HasField("t") else []), *a.tensors]
                yield from (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)


def _read(tensor: onnx.TensorProto, folder: Path, location: str, offset: int, count: int | None) -> bytes:
    parts = location.replace("\\", "/").split("/")
    if not location or os.path.isabs(location) or ".." in parts or ":" in parts[0]:
        raise ExternalDataError(f"tensor {tensor.name!r} points outside the model's folder: {location!r}")
    base = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(base / location))
    if base not in path.parents:
        raise ExternalDataError(
            f"tensor {tensor.name!r} points outside the model's folder, by a symbolic link: {location!r}"
        )
    try:
        with path.open("rb") as f:
            size = os.fstat(f.fileno()).st_size
            want = size - offset if count is None else count
            if want < 0 or offset + want > size:
                raise _short(tensor, location, offset + max(want, 0), size)
            f.seek(offset)
            return f.read(want)
    except OSError as e:
        raise ExternalDataError(f"tensor {tensor.name!r}: cannot read {location!r}: {e.strerror or e}") from e


def _slice(tensor: onnx.TensorProto, location: str, data: bytes, offset: int, count: int | None) -> bytes:
    end = len(data) if count is None else offset + count
    if offset > end or end > len(data):
        raise _short(tensor, location, end, len(data))
    return bytes(memoryview(data)[offset:end])


def _short(tensor: onnx.TensorProto, location: str, need: int, size: int) -> ExternalDataError:
    return ExternalDataError(f"tensor {tensor.name!r} needs {need} bytes of {location!r}, which has {size}")


def _number(tensor: onnx.TensorProto, text: str) -> int:
    if not text.isdigit():
        raise ExternalDataError(f"tensor {tensor.name!r} has an offset or a length that is no number: {text!r}")
    return int(text)
