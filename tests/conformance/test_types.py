"""Every operator with a kernel in every element type that its schema has and devices hold: placed there, and right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.conformance import samples as S
from tests.conformance.on_cpu import FLOATS8, ON_CPU
from tests.conformance.oracles import expected
from tests.conformance.samples_data import Array, Sample
from tests.kernels.harness import node_model, run_native
from tests.tolerance import close
from webrt import schemas
from webrt.dtypes import BY_NAME, SIGNED, SMALL, SMALL_FLOATS, SMALL_INTS
from webrt.runtime.tensor import numpy_dtype

# Attributes that name the type of the output.
TYPE_ATTRIBUTE = {"Cast": "to", "EyeLike": "dtype", "ConstantOfShape": "value"}

# Type parameters that a model must give one type, though the schema has two, and types that nobody implements.
LINKED = {"ms.GroupQueryAttention": {"F": "C"}}
NOWHERE: Mapping[tuple[str, str], tuple[str, str]] = {
    ("DequantizeLinear", "T2"): ("float8e8m0", "without output_dtype the result would be of the scale's type"),
    ("BitCast", "T1"): ("uint4 int4 float4e2m1 uint2 int2", "the sample's other type has more bits"),
    ("ms.GatherBlockQuantized", "B"): ("int4 uint4", "the sample's numbers are packed in bytes"),
    ("QLinearMatMul", "T3"): (FLOATS8, "no 8-bit floats of integers"),
    ("ms.QLinearConcat", "M"): ("uint8 int8 float32", "one parameter for numbers, scales and zero points"),
    ("ms.FusedGemm", "G"): ("uint32 uint64 int32 int64", "no activation of integers"),
    ("ms.GroupQueryAttention", "C"): ("float16 bfloat16 int8 uint8 float8e4m3fn", "a cache of another type"),
}


def numpy_type(name: str) -> np.dtype[Any]:
    """numpy's type of a device type."""
    return np.dtype(numpy_dtype(BY_NAME[name]))


def converted(x: Array, name: str) -> Array:
    """The same kind of values in another type: integers count eighths, signs go where the type has none."""
    dtype = numpy_type(name)
    if dtype.kind == "b":
        return np.asarray(x > 0)
    if BY_NAME[name] in SMALL_INTS:
        count = 1 << BY_NAME[name].width
        low = -count // 2 if BY_NAME[name] in SIGNED else 0
        return np.asarray(x * 2).astype(np.int64).clip(low, low + count - 1).astype(dtype)
    if BY_NAME[name] in SMALL_FLOATS:
        wide = x.astype(np.float32)
        return np.asarray(np.abs(wide) + 0.5 if name == "float8e8m0" else wide).astype(dtype)
    if dtype.kind in "iu" and x.dtype.kind == "f":
        x = x * 8
    return np.asarray(np.abs(x.astype(np.int64)) if dtype.kind == "u" else x).astype(dtype)


def parameters(sample: Sample) -> Mapping[str, list[int]]:
    """Each type parameter of the schema and the inputs that have it."""
    schema = schemas.get_schema(sample.op, S.newest_opset(sample), sample.domain)
    assert schema is not None
    found: dict[str, list[int]] = {c.type_param_str: [] for c in schema.type_constraints}
    for i, x in enumerate(sample.inputs):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if x is not None and formal.type_str in found:
            found[formal.type_str].append(i)
    return found


def typed(sample: Sample, parameter: str, inputs: list[int], name: str) -> Sample | None:
    """The sample with one type parameter replaced; None where nothing of the sample has it."""
    attribute = TYPE_ATTRIBUTE.get(sample.op)
    if not inputs and attribute is None:
        return None
    arrays = [converted(x, name) if i in inputs and x is not None else x for i, x in enumerate(sample.inputs)]
    attrs = dict(sample.attrs)
    if sample.op == "BitCast":
        attrs["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(f"uint{8 * numpy_type(name).itemsize}"))
    if not inputs and attribute == "value":
        attrs["value"] = onnx.numpy_helper.from_array(np.array([1], numpy_type(name)))
    elif not inputs and attribute is not None:
        attrs[attribute] = helper.np_dtype_to_tensor_dtype(numpy_type(name))
    return replace(sample, inputs=tuple(arrays), attrs=attrs)


def cases() -> Iterator[tuple[str, str, str, Sample]]:
    """Operator, type parameter, type, and the sample in that type: one sample of each operator."""
    seen: set[S.Key] = set()
    for sample in S.newest_samples():
        if (sample.domain, sample.op) in seen:
            continue
        seen.add((sample.domain, sample.op))
        op, found = sample.title, parameters(sample)
        for parameter, inputs in found.items():
            inputs = inputs + found.get(LINKED.get(op, {}).get(parameter, ""), [])
            for name in S.types_of((sample.domain, sample.op), S.newest_opset(sample), parameter):
                changed = typed(sample, parameter, inputs, name)
                if changed is not None and name not in NOWHERE.get((op, parameter), ("",))[0].split():
                    yield op, parameter, name, changed


CASES = list(cases())


@pytest.mark.parametrize(("op", "parameter", "name", "sample"), CASES, ids=lambda x: "" if isinstance(x, Sample) else x)
def test_type(op: str, parameter: str, name: str, sample: Sample) -> None:
    model, feeds = node_model(
        sample.op, sample.inputs, sample.attrs, opset=S.newest_opset(sample), domain=sample.domain,
        outputs=sample.outputs, constants=sample.constants,
    )  # fmt: skip
    got, plan = run_native(model, feeds)
    on_cpu = name in ON_CPU.get((op, parameter), ("", ""))[0].split()
    assert bool(plan.host_steps) == on_cpu, [p.reason for p in plan.placement if p.how == "host"]
    for g, w in zip(got, expected(model, feeds, "types"), strict=True):
        small = BY_NAME[name] in SMALL and w.dtype == np.uint8  # what onnxruntime gives for 8-bit floats
        close(g, w.view(g.dtype) if small else w, what=f"{op} {parameter} {name}")
