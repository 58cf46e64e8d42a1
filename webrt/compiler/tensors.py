"""Constants of a model: tensors, sparse ones, and Constant nodes of every kind, as values with their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from webrt.errors import InvalidModel
from webrt.ir import Value, constant, dtype_of

MAX_DENSE = 1 << 30
"""Bytes that a sparse tensor may take with its zeros."""
_CONSTANT_ATTRIBUTES = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
}  # fmt: skip


def read_constant(proto: onnx.NodeProto) -> Value | None:
    """What a Constant node gives; None for an attribute that a later opset may have. Raises InvalidModel."""
    if len(proto.attribute) != 1 or len(proto.output) != 1:
        raise InvalidModel("a Constant has one value and one output", node=proto.name, op="Constant")
    attribute, name = proto.attribute[0], proto.output[0]
    if attribute.name == "value":
        return constant(name, read_tensor(attribute.t), dtype_of(attribute.t.data_type))
    if attribute.name == "sparse_value":
        return constant(name, read_sparse(attribute.sparse_tensor), dtype_of(attribute.sparse_tensor.values.data_type))
    if attribute.name in _CONSTANT_ATTRIBUTES:
        array = np.asarray(onnx.helper.get_attribute_value(attribute), dtype=_CONSTANT_ATTRIBUTES[attribute.name])
        return constant(name, array, dtype_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)))
    if attribute.name in ("value_string", "value_strings"):
        raw = onnx.helper.get_attribute_value(attribute)
        array = np.asarray(
            [x.decode() for x in raw] if isinstance(raw, Sequence) and not isinstance(raw, bytes) else raw.decode(),
            dtype=object,
        )
        return constant(name, array, dtype_of(onnx.TensorProto.STRING))
    return None


def read_tensor(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """Its elements. Raises InvalidModel where it is damaged."""
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise InvalidModel(f"tensor {tensor.name!r} is damaged: {e}") from e


def read_sparse(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    """Its elements with the zeros between them. Raises InvalidModel where it is damaged, or too large."""
    values, indices = read_tensor(sparse.values), read_tensor(sparse.indices)
    dims = tuple(sparse.dims)
    if min(dims, default=0) < 0 or math.prod(dims) * values.itemsize > MAX_DENSE:
        what = f"sparse tensor {sparse.values.name!r} is {list(dims)}"
        raise InvalidModel(f"{what}: negative, or more than {MAX_DENSE} bytes")
    out = np.zeros(dims, values.dtype)
    try:
        if indices.ndim == 1:
            out.reshape(-1)[indices] = values
        else:
            out[tuple(indices.T)] = values
    except (IndexError, ValueError) as e:
        raise InvalidModel(f"sparse tensor {sparse.values.name!r} has indices outside its shape") from e
    return out
