"""onnx's reference operators as a fallback, each with the schema of the model's opset."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import NodeProto
from onnx.defs import OpSchema

from webrt.host.node import Runner
from webrt.host.registry import Call
from webrt.host.values import HostValue, Outputs

_MODULES = {
    "": "onnx.reference.ops",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}


def implementation(node: NodeProto, call: Call, schema: OpSchema | None) -> Runner | None:
    """A runner on onnx's reference operator, None where it has none for this operator."""
    cls = _reference_class(call)
    if cls is None or call.graphs:  # subgraphs run on our own GraphRunner, so through the function body
        return None
    versioned = type(cls.__name__, (cls,), {"op_schema": schema}) if schema is not None else cls
    plain = NodeProto()
    plain.CopyFrom(node)
    operator = versioned(plain, _parameters(call))
    outputs = len(node.output)

    def run(outer: Mapping[str, HostValue], inputs: Sequence[HostValue]) -> Outputs:
        result = tuple(operator.run(*_trimmed(inputs)))
        return result + (None,) * (outputs - len(result))

    return run


def load_all() -> None:
    """Imports every operator now, for a process that cannot open files later."""
    for module in _MODULES.values():
        importlib.import_module(module)
        importlib.import_module(f"{module}._op_list")


def _reference_class(call: Call) -> Any:
    module = _MODULES.get(call.domain)
    if module is None:
        return None
    registry = importlib.import_module(f"{module}._op_list")
    known = {name.split("_")[0] for name in vars(registry) if name[:1].isupper()}
    if call.op_type not in known:
        return None
    load = importlib.import_module(module).load_op
    return load(call.domain, call.op_type, call.opset)


def _parameters(call: Call) -> dict[str, Any]:
    return {
        "log": lambda *_: None,
        "opsets": {"": onnx.defs.onnx_opset_version(), call.domain: call.opset},
        "verbose": 0,
        "new_ops": {},
        "existing_functions": {},
        "evaluator_cls": None,
    }


def _trimmed(inputs: Sequence[HostValue]) -> list[HostValue]:
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept
