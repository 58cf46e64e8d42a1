"""Models as ONNX text: compiled at two levels, run natively, compared; and what a pass left of their nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser

from tests.kernels.harness import oracle, run_native
from tests.tolerance import close
from webrt import plan as P
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.plan import Plan

Array = np.ndarray[Any, Any]


def parse(body: str, constants: Mapping[str, Array] | None = None, opset: int = 20, **domains: int) -> onnx.ModelProto:
    """`agraph (…) => (…) { … }` as a checked model; `constants` become initializers of those names."""
    opsets = ", ".join([f'"": {opset}', *(f'"{d.replace("_", ".")}": {v}' for d, v in domains.items())])
    model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> {body}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, k) for k, a in (constants or {}).items())
    onnx.checker.check_model(model)
    return model


def feeds_of(model: onnx.ModelProto, free: int = 3) -> dict[str, Array]:
    """Normal numbers for every graph input (f32 or f16); free dims are `free`."""
    rng = np.random.default_rng(7)
    out: dict[str, Array] = {}
    for info in model.graph.input:
        shape = [d.dim_value if d.HasField("dim_value") else free for d in info.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        out[info.name] = rng.standard_normal(shape).astype(dtype)
    return out


def ops(plan: Plan) -> list[str]:
    """The operators that have a kernel of their own, in order."""
    return [p.op for p in plan.placement if p.how == "kernel"]


def dispatches(plan: Plan) -> int:
    return sum(isinstance(s, P.Dispatch) for s in plan.steps)


def check(model: onnx.ModelProto, disabled: Collection[str] = (), **tolerance: float) -> Plan:
    """Runs the model at levels "disabled" and "all" and compares both with the oracle. Returns the plan of "all"."""
    feeds = feeds_of(model)
    want = oracle(model, feeds)
    plain, _ = run_native(model, feeds, level="disabled")
    got, plan = run_native(model, feeds, disabled=disabled)
    for g, p, w in zip(got, plain, want, strict=True):
        close(p, w, what="level disabled", **tolerance)
        close(g, w, what="level all", **tolerance)
    return plan


def compiled(model: onnx.ModelProto, **options: Any) -> Plan:
    return compile_model(model, CompileOptions(**options))


def basic_ops(model: onnx.ModelProto, disabled: Collection[str] = ()) -> list[str]:
    """The operators that the basic passes leave."""
    return [p.op for p in compiled(model, level="basic", disabled=disabled).placement]
