"""onnxruntime's CPU provider as an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]


def onnxruntime_result(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | str:
    """onnxruntime's outputs, or what it says against the model."""
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    refusals = (
        state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented,
        state.RuntimeException, onnx.shape_inference.InferenceError,
    )  # fmt: skip
    try:
        typed = onnx.shape_inference.infer_shapes(model)
        session = ort.InferenceSession(typed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(x) for x in session.run(None, dict(feeds))]
    except refusals as e:
        return str(e)
    except (ValueError, RuntimeError) as e:  # bfloat16 and 8-bit floats as numpy arrays
        return str(e)
