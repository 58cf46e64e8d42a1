"""The small model that the commands are tested on, and how a command fails."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from webrt.cli import main

FLOAT = TensorProto.FLOAT


def make_model(
    nodes: list[onnx.NodeProto] | None = None, opset: int = 20, domains: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """y = relu(x·w), x float32[batch, 4]; or other nodes from x and w to y."""
    nodes = nodes or [
        helper.make_node("MatMul", ["x", "w"], ["h"], "mix"),
        helper.make_node("Relu", ["h"], ["y"], "cut"),
    ]
    w = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "tiny", [x], [y], [w])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def fails(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Runs a command that must fail with one line on stderr; returns the line."""
    capsys.readouterr()
    assert main(args) == 1
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.endswith("…")]
    assert len(lines) == 1 and "Traceback" not in err and not out, err
    assert lines[0].startswith(f"webrt {args[0]}: ")
    return lines[0]
