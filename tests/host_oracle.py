"""One node on the CPU provider against ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, helper

from tests.tolerance import close
from webrt.host import evaluate
from webrt.host.values import type_code

Array = np.ndarray[Any, Any]
MS, ML = "com.microsoft", "ai.onnx.ml"
BASE_OPSET = 17


def make_node(op: str, inputs: Sequence[Array | None], outputs: Sequence[bool], domain: str, **a: Any) -> NodeProto:
    """A node whose inputs are x0, x1 … and whose wanted outputs are y0, y1 …"""
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(inputs)]
    return helper.make_node(op, names, [f"y{i}" if o else "" for i, o in enumerate(outputs)], domain=domain, **a)


def ort_run(node: NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Any]:
    """ONNX Runtime's outputs, without graph optimisation."""
    fed = {name: v for name, v in zip(node.input, inputs) if v is not None}
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(name, type_code(v.dtype), v.shape) for name, v in fed.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )  # fmt: skip
    opsets = {"": BASE_OPSET, node.domain: opset}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()], ir_version=10
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, fed))


def agrees(
    op: str, inputs: Sequence[Array | None], outputs: Sequence[bool] = (True,), opset: int = BASE_OPSET,
    domain: str = "", rtol: float | None = None, atol: float | None = None, **attributes: Any,
) -> None:  # fmt: skip
    """Asserts that both give the same types, shapes and values."""
    node = make_node(op, inputs, outputs, domain, **attributes)
    wanted = ort_run(node, inputs, opset)
    got = [v for v in evaluate(node, {"": BASE_OPSET, domain: opset}, inputs) if v is not None]
    assert len(got) == len(wanted)
    for i, (g, w) in enumerate(zip(got, wanted)):
        what = f"{op} opset {opset} {attributes} {[None if v is None else v.shape for v in inputs]} output {i}"
        assert isinstance(g, np.ndarray), what
        if w.dtype.kind in "OU":
            assert g.tolist() == w.tolist(), what
        else:
            close(g, w, rtol=rtol, atol=atol, what=what)


class Draw:
    """Seeded random arguments."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def real(self, *shape: int) -> Array:
        """Normal float32 numbers."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def ints(self, low: int, high: int, *shape: int) -> Array:
        """int64 numbers in [low, high)."""
        return self.rng.integers(low, high, shape)

    def u8(self, *shape: int) -> Array:
        """All of uint8."""
        return self.ints(0, 256, *shape).astype(np.uint8)

    def i8(self, *shape: int) -> Array:
        """All of int8."""
        return self.ints(-128, 128, *shape).astype(np.int8)

    def number(self, low: int, high: int) -> int:
        """An integer in [low, high)."""
        return int(self.rng.integers(low, high))

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[self.number(0, len(options))]

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)


def i64(*values: int) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)


def scalar(value: float, dtype: Any = np.float32) -> Array:
    """A rank-0 tensor."""
    return np.array(value, dtype)
