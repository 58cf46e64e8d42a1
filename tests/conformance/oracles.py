"""What a one-node model must give: onnxruntime's CPU result, or the CPU provider's where a table says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.ort import onnxruntime_result
from webrt.host import run_model

Array = np.ndarray[Any, Any]

# What onnxruntime's CPU provider does not run, by operator: from which opset on, and what it says. The CPU provider
# stands in for it: it passes all node cases of the onnx package.
LACKS: Mapping[str, tuple[int, str]] = {
    "Swish": (24, "no kernel"),
    "GlobalLpPool": (22, "no kernel for the schema of opset 22"),
    "QuantizeLinear": (28, "no kernel for the schema of opset 28"),
    "DequantizeLinear": (28, "no kernel for the schema of opset 28"),
    "com.microsoft SimplifiedLayerNormalization": (1, "registered in the default domain only"),
}

# Where onnxruntime does not do what the ONNX text says. The CPU provider stands in for it.
AT_ODDS: Mapping[str, str] = {
    "Bernoulli": "below opset 22 it gives 1 with probability 1 - p",
    "DynamicQuantizeLSTM": "it quantizes the inputs of each product as well, which its description does not say",
}


class Missing(Exception):
    """onnxruntime does not run a model, and no table says so."""


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array], reason: str = "") -> list[Array]:
    """The outputs of a model of one node; `reason`: why onnxruntime may not run it."""
    node = model.graph.node[0]
    if node.op_type in AT_ODDS:
        return host_result(model, feeds)
    got = onnxruntime_result(model, feeds)
    if isinstance(got, list):
        return got
    opset = next(o.version for o in model.opset_import if o.domain == node.domain)
    since, why = LACKS.get(f"{node.domain} {node.op_type}".strip(), (10**6, ""))
    if not reason and (opset < since or not why):
        raise Missing(f"{node.op_type} at opset {opset}: {got}")
    return host_result(model, feeds)


def host_result(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The CPU provider's outputs."""
    return [np.asarray(x) for x in run_model(model, dict(feeds)).values()]
