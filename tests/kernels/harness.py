"""One-node models: compiled, run natively, compared with onnxruntime's CPU provider (or with values a test gives)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypedDict, Unpack

import numpy as np
import onnx
from onnx import helper

from tests.ort import onnxruntime_result
from tests.tolerance import close
from webrt import schemas
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.host import CpuProvider, run_model
from webrt.plan import Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def device() -> NativeDevice:
    """One native device for all tests of a process."""
    return NativeDevice()


@contextmanager
def plain_device() -> Iterator[NativeDevice]:
    """A device on which no operand is worth a texture."""
    made = NativeDevice()
    made.target = replace(made.target, kind="gpu", architecture="")
    yield made
    made.close()


class Form(TypedDict, total=False):
    """How a node stands in its model. Inputs of the indices in `constants` (axes, shapes, weights) are initializers;
    `outputs`: how many (default 1), or which are wanted."""

    opset: int
    domain: str
    outputs: int | Sequence[bool]
    constants: Collection[int]


def node_model(
    op: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any] | None = None, *,
    symbolic: bool | Collection[int] = False, **form: Unpack[Form],
) -> tuple[onnx.ModelProto, dict[str, Array]]:  # fmt: skip
    """A model of one node and its feeds. None is an absent input; `symbolic` gives the dims of all (or of these) inputs
    that are fed names."""
    opset, domain, constants = form.get("opset", 20), form.get("domain", ""), form.get("constants", ())
    outputs = form.get("outputs", 1)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    out_names = [f"y{i}" if w else "" for i, w in enumerate(wanted)]
    node = helper.make_node(op, names, out_names, name="node", domain=domain, **(attrs or {}))
    infos, initializers, feeds = [], [], {}
    for i, x in enumerate(inputs):
        if x is None:
            continue
        if i in constants:
            initializers.append(onnx.numpy_helper.from_array(x, f"x{i}"))
            continue
        free = symbolic if isinstance(symbolic, bool) else i in symbolic
        shape = [f"d{i}_{k}" for k in range(x.ndim)] if free else list(x.shape)
        infos.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), shape))
        feeds[f"x{i}"] = x
    results = [onnx.ValueInfoProto(name=n) for n in out_names if n]
    graph = helper.make_graph([node], "one_node", infos, results, initializers)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    _type_outputs(model, out_names)
    return model, feeds


def _type_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """The only type that the schema allows; else what onnx infers; else the type of the first input."""
    node, first = model.graph.node[0], model.graph.input[0].type if model.graph.input else onnx.TypeProto()
    opset = next(o.version for o in model.opset_import if o.domain == node.domain)
    schema = schemas.get_schema(node.op_type, opset, node.domain)
    typed = {o.name: o.type for o in onnx.shape_inference.infer_shapes(model).graph.output}
    for result in model.graph.output:
        result.type.CopyFrom(typed[result.name])
        kinds = schema.outputs[min(names.index(result.name), len(schema.outputs) - 1)].types if schema else set()
        only = _CODES.get(next(iter(kinds))) if len(kinds) == 1 else None
        if only is not None:
            result.type.tensor_type.elem_type = only
        elif not result.type.WhichOneof("value"):  # onnx infers nothing for some operators, GroupNormalization for one
            result.type.tensor_type.elem_type = first.tensor_type.elem_type
        if result.type.HasField("tensor_type"):
            result.type.tensor_type.shape.SetInParent()


_CODES = {f"tensor({name.lower()})": code for name, code in onnx.TensorProto.DataType.items()}


def run_native(model: onnx.ModelProto, feeds: Mapping[str, Array], **options: Any) -> tuple[list[Array], Plan]:
    """The outputs and the plan of a model on the native device, host steps allowed."""
    plan = compile_model(model, CompileOptions(target=device().target, **options))
    with Session(plan, device(), CpuProvider()) as session:
        return [np.asarray(x) for x in session.run(None, dict(feeds))], plan


def oracle(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """onnxruntime's CPU provider; webrt's host provider where onnxruntime lacks the operator or the type."""
    got = onnxruntime_result(model, feeds)
    return got if isinstance(got, list) else [np.asarray(x) for x in run_model(model, dict(feeds)).values()]


def check_node(
    op: str, inputs: Sequence[Array | None], attrs: Mapping[str, Any] | None = None, *,
    expected: Sequence[Array] | None = None, on_device: bool = True, symbolic: bool | Collection[int] = True,
    rtol: float | None = None, atol: float | None = None, **form: Unpack[Form],
) -> Plan:  # fmt: skip
    """Runs one node with static sizes and, unless `symbolic` is False, with all sizes (or those of some inputs) free.

    `on_device`: no host step may remain. Returns the plan with static sizes.
    """
    first: Plan | None = None
    for free in (False, symbolic) if symbolic else (False,):
        model, feeds = node_model(op, inputs, attrs, symbolic=free, **form)
        want = list(expected) if expected is not None else oracle(model, feeds)
        got, plan = run_native(model, feeds)
        first = first or plan
        what = f"{op} ({form}, {'symbolic' if free else 'static'})"
        if on_device:
            assert not plan.host_steps, f"{what}: on the CPU: {[p.reason for p in plan.placement if p.how == 'host']}"
        assert len(got) == len(want), what
        for g, w in zip(got, want, strict=True):
            close(g, w, rtol=rtol, atol=atol, what=what)
    assert first is not None
    return first
