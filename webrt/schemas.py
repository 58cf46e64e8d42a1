"""Schemas of operators that real models contain and onnx does not define.

Sources: ONNX Runtime's registry (names, optional inputs, defaults, type constraints) and its ContribOperators.md.
After `register()` the checker, the attribute defaults and the shape inference of onnx treat them like their own.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from typing import Any

import onnx
from onnx.defs import OpSchema

from webrt.schema_shapes import INFERENCE
from webrt.schema_table import DEFAULT_DOMAIN, MICROSOFT, TYPES

__all__ = ["MS_DOMAIN", "attribute_defaults", "get_schema", "register"]

MS_DOMAIN = "com.microsoft"

_lock = threading.Lock()
_done = False


def register() -> None:
    """Adds every schema of this file to onnx's registry, once per process; schemas that exist already stay."""
    global _done
    with _lock:
        if _done:
            return
        # onnx.reference refuses to be imported once two domains share an operator's name, as ours and onnx's do.
        with contextlib.suppress(ImportError):
            importlib.import_module("onnx.reference.op_run")
        for domain, table in ((MS_DOMAIN, MICROSOFT), ("", DEFAULT_DOMAIN)):
            for signature, attributes, inference in table:
                schema = _schema(domain, signature, attributes, inference)
                if _lookup(schema.name, 1, domain) is None:
                    onnx.defs.register_schema(schema)
        _done = True


def get_schema(op_type: str, opset: int, domain: str = "") -> OpSchema | None:
    """The schema of an operator at an opset (ours included), or None where there is none."""
    register()
    return _lookup(op_type, opset, "" if domain == "ai.onnx" else domain)


def attribute_defaults(schema: OpSchema) -> dict[str, Any]:
    """Attribute name → default value, for the attributes that have one; strings as str."""
    found: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            found[name] = _decoded(onnx.helper.get_attribute_value(attribute.default_value))
    return found


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return [_decoded(v) for v in value] if isinstance(value, list) else value


def _lookup(op_type: str, opset: int, domain: str) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _schema(domain: str, signature: str, attributes: dict[str, Any], inference: str) -> OpSchema:
    match = re.fullmatch(r"(\w+)\((.*)\) -> (.*)", signature)
    assert match, signature
    name, inputs, outputs = match.groups()
    used: set[str] = set()
    schema = OpSchema(
        name, domain, 1, f"{name}, as ONNX Runtime defines it.",
        inputs=[_parameter(p, used) for p in inputs.split(", ")],
        outputs=[_parameter(p, used) for p in outputs.split(", ")],
        type_constraints=[(t, [f"tensor({n})" for n in TYPES[t[0]]], "") for t in sorted(used)],
        attributes=[_attribute(k, v) for k, v in attributes.items()],
    )  # fmt: skip
    schema.set_type_and_shape_inference_function(INFERENCE[inference])
    return schema


def _parameter(text: str, used: set[str]) -> OpSchema.FormalParameter:
    name, letter = text.strip().split(":")
    used.add(letter)
    option = OpSchema.FormalParameterOption.Single
    if name.endswith("?"):
        option = OpSchema.FormalParameterOption.Optional
    elif name.endswith("*"):
        option = OpSchema.FormalParameterOption.Variadic
    heterogeneous = name.endswith("*") and letter == "M"
    return OpSchema.FormalParameter(
        name.rstrip("?*"), letter, param_option=option, is_homogeneous=not heterogeneous, min_arity=1
    )


def _attribute(name: str, value: Any) -> OpSchema.Attribute:
    if isinstance(value, str) and value[:1] in ("!", "?"):
        kind = getattr(OpSchema.AttrType, value[1:])
        return OpSchema.Attribute(name, kind, required=value[0] == "!")
    return OpSchema.Attribute(name, onnx.helper.make_attribute(name, value))
