"""Function bodies of operators that ONNX gives none: what they compute, in operators of ONNX.

Each entry writes a body in ONNX's text format for one node; `inline_functions` puts it in the node's place.
Source: ONNX Runtime's ContribOperators.md and the operators' texts; tested against ONNX Runtime's CPU provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx.parser

from webrt.compiler.bodies_fused import FUSED
from webrt.compiler.bodies_quantized import QUANTIZED
from webrt.compiler.bodies_training import TRAINING
from webrt.compiler.body_text import Writer
from webrt.errors import InvalidModel
from webrt.ir import Node
from webrt.schemas import MS_DOMAIN

OPSET = 21
TRAINING_DOMAIN = "ai.onnx.preview.training"

BODIES: Mapping[tuple[str, str], Writer] = {
    **{(MS_DOMAIN, name): write for name, write in (FUSED | QUANTIZED).items()},
    **{(TRAINING_DOMAIN, name): write for name, write in TRAINING.items()},
}
"""What writes an operator's body, by domain and name."""


def body_of(node: Node) -> onnx.FunctionProto | None:
    """The function body of a node, or None."""
    write = BODIES.get((node.domain, node.op_type))
    lines = write(node) if write is not None else None
    if lines is None:
        return None
    schema = node.schema
    inputs, outputs = _names(schema.inputs, len(node.inputs)), _names(schema.outputs, len(node.outputs))
    head = f'<domain: "{node.domain}", opset_import: ["": {OPSET}]> body ({inputs}) => ({outputs})'
    try:
        return onnx.parser.parse_function(f"{head} {{ {' '.join(lines)} }}")
    except onnx.parser.ParseError as e:
        raise InvalidModel("an attribute is no finite number", node=node.name, op=node.op) from e


def _names(formal: Sequence[onnx.defs.OpSchema.FormalParameter], count: int) -> str:
    """The formal names; a variadic parameter is numbered from where it starts."""
    names = [p.name for p in formal]
    if formal and formal[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic:
        start = len(formal) - 1
        names[start:] = [f"{names[start]}{i}" for i in range(max(count - start, 0))]
    return ", ".join(names[:count])
