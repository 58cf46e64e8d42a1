"""Attributes of a node as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto

from webrt.errors import InvalidModel
from webrt.host.values import Array

GRAPH_TYPES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def tensor_array(tensor: TensorProto) -> Array:
    """A TensorProto's elements; strings as str objects."""
    try:
        found = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise InvalidModel(f"tensor {tensor.name!r} is damaged: {e}; export the model again") from e
    return strings(found) if found.dtype.kind in "OSU" else found


def strings(array: Array) -> Array:
    """A string tensor as an object array of str."""
    decoded = [v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
    result = np.empty(len(decoded), dtype=object)
    result[:] = decoded
    return result.reshape(array.shape)


def dense(sparse: SparseTensorProto) -> Array:
    """A SparseTensorProto as a dense array; indices are linear or one row per element."""
    values, indices = tensor_array(sparse.values), tensor_array(sparse.indices)
    shape = tuple(sparse.dims)
    result = np.zeros(shape, dtype=values.dtype)
    if indices.ndim == 1:
        result.reshape(-1)[indices] = values
    else:
        result[tuple(indices.T)] = values
    return result


def attribute_value(attribute: AttributeProto) -> Any:
    """An attribute's value: int, float, str, list, array, or a proto for types."""
    kind = attribute.type
    if kind == AttributeProto.STRING:
        return _text(attribute.name, attribute.s)
    if kind == AttributeProto.STRINGS:
        return [_text(attribute.name, s) for s in attribute.strings]
    if kind == AttributeProto.TENSOR:
        return tensor_array(attribute.t)
    if kind == AttributeProto.TENSORS:
        return [tensor_array(t) for t in attribute.tensors]
    if kind == AttributeProto.SPARSE_TENSOR:
        return dense(attribute.sparse_tensor)
    value = onnx.helper.get_attribute_value(attribute)
    return list(value) if kind in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise InvalidModel(f"the attribute {name!r} is no UTF-8: {data!r}") from e


def plain_attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node, subgraphs left out."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise InvalidModel(
                f"the attribute {attribute.name!r} refers to {attribute.ref_attr_name!r} of a function, "
                "and the node is in none; inline the function first"
            )
        if attribute.type not in GRAPH_TYPES:
            found[attribute.name] = attribute_value(attribute)
    return found


def bind(node: NodeProto, values: Mapping[str, AttributeProto]) -> NodeProto:
    """A function's node with references to the function's attributes replaced by those of one call.

    A reference to an attribute that the call does not set, and that has no default, leaves the attribute away.
    """
    if not _refers(node):
        return node
    bound = NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in values:
                copy = bound.attribute.add()
                copy.CopyFrom(values[attribute.ref_attr_name])
                copy.name = attribute.name
        else:
            copy = bound.attribute.add()
            copy.CopyFrom(attribute)
            if attribute.type == AttributeProto.GRAPH:
                nodes = [bind(n, values) for n in attribute.g.node]
                del copy.g.node[:]
                copy.g.node.extend(nodes)
    return bound


def _refers(node: NodeProto) -> bool:
    return any(
        a.ref_attr_name or (a.type == AttributeProto.GRAPH and any(_refers(n) for n in a.g.node))
        for a in node.attribute
    )
