"""onnx's checker, as far as other runtimes follow it: what it refuses of types and deprecated operators is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx.checker
from google.protobuf.message import EncodeError

from webrt import schemas
from webrt.errors import InvalidModel, UnsupportedOp

OLDEST_OPSET = 1
NEWEST_OPSET = onnx.defs.onnx_opset_version()
_DEPRECATED = "is deprecated in domain_version"


def check(model: onnx.ModelProto) -> None:
    """onnx's checker, with the schemas of webrt.schemas. Raises InvalidModel or UnsupportedOp."""
    schemas.register()
    opsets = {o.domain or "": o.version for o in model.opset_import}
    if not opsets:
        raise InvalidModel("the model imports no opset; export it again")
    version = opsets.get("", opsets.get("ai.onnx"))
    if version is not None and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise InvalidModel(
            f"the model's opset is {version}; webrt reads {OLDEST_OPSET} to {NEWEST_OPSET}: convert it with "
            "onnx.version_converter"
        )
    try:
        with _types_filled_in(model.graph):
            _checked(model)
    except (onnx.checker.ValidationError, EncodeError, ValueError, RuntimeError) as e:
        message = str(e).strip().splitlines()[0]
        missing = re.search(r"No Op registered for (\S+)", message)
        if missing:
            node = re.search(r"Bad node spec for node\. Name: (.*) OpType: ", str(e))
            what = f"ONNX has no such operator at opset {version}: {message}"
            raise UnsupportedOp(what, op=missing.group(1), node=node.group(1) if node else "") from e
        raise InvalidModel(f"onnx's checker refuses the model: {message}") from e


def _checked(model: onnx.ModelProto) -> None:
    """The checker, without its refusal of deprecated operators (GroupNormalization at opset 18, Scatter from 11): other
    runtimes take them. A model that has one is checked node by node; the loader checks names and order anyway."""
    try:
        onnx.checker.check_model(model)
        return
    except onnx.checker.ValidationError as e:
        if _DEPRECATED not in str(e):
            raise
    context = onnx.checker.DEFAULT_CONTEXT.__class__()
    context.ir_version = model.ir_version
    context.opset_imports = {o.domain: o.version for o in model.opset_import}
    for node in model.graph.node:
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as e:
            if _DEPRECATED not in str(e):
                raise


@contextmanager
def _types_filled_in(graph: onnx.GraphProto) -> Iterator[None]:
    """While it lasts, inputs and outputs that declare no type or no shape have one, which the checker insists on."""
    filled = []
    for info in [*graph.input, *graph.output]:
        if info.type.WhichOneof("value") in (None, "tensor_type") and not info.type.tensor_type.HasField("shape"):
            filled.append((info, onnx.TypeProto.FromString(info.type.SerializeToString())))
            info.type.tensor_type.shape.SetInParent()
            info.type.tensor_type.elem_type = info.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
    try:
        yield
    finally:
        for info, declared in filled:
            info.type.CopyFrom(declared)
