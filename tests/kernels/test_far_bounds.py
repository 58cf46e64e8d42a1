"""Slice with bounds that are fed: as far out as their type goes, plans take them as they take nearer ones."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest

from tests.kernels.harness import device
from webrt.compiler.compile import compile_model
from webrt.inference import InferenceSession
from webrt.plan import Plan
from webrt.planfile import dump, load
from webrt.runtime.session import Session

X = np.arange(7, dtype=np.float32)


def sliced(step: int, dtype: str = "int64") -> Plan:
    """y = x[start:end:step] of x float32[n]."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, {dtype}[1] start, {dtype} end) => (float[m] y)
        <{dtype}[1] axes = {{0}}, {dtype}[1] steps = {{{step}}}, int64[1] zero = {{0}}>
        {{ ends = Unsqueeze(end, zero)  y = Slice(x, start, ends, axes, steps) }}"""
    return load(dump(compile_model(onnx.parser.parse_model(text))))


def expected(start: int, end: int, step: int) -> np.ndarray:
    """ONNX's rules, in numbers that do not overflow: with a negative step a start before the first element is it."""
    n = len(X)
    start, end = (b + n if b < 0 else b for b in (start, end))
    if step > 0:
        return X[min(max(start, 0), n) : min(max(end, 0), n) : step]
    return X[np.arange(min(max(start, 0), n - 1), min(max(end, -1), n - 1), step)]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_bounds_are_clamped(step: int, dtype: str) -> None:
    info = np.iinfo(dtype)
    far = [info.min, info.min + 1, -100, info.max - 1, info.max]
    pairs = [*itertools.product(far, [*far, -8, -3, 0, 2]), *itertools.product([-7, 0, 3, 6, 7], far)]
    with Session(sliced(step, dtype), device()) as session:
        for start, end in pairs:
            feeds = {"x": X, "start": np.array([start], dtype), "end": np.array(end, dtype)}
            (y,) = session.run(None, feeds)
            np.testing.assert_array_equal(y, expected(start, end, step), err_msg=f"{start}:{end}:{step}")


def test_a_session_of_a_plan_takes_them() -> None:
    plan = sliced(-1)
    assert plan.meta["clamped"] == ["start", "end"]
    with InferenceSession(dump(plan)) as session:
        feeds = {"x": X, "start": np.array([6]), "end": np.array(np.iinfo(np.int64).min)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], X[::-1])


@pytest.mark.parametrize(
    ("output", "nodes"),
    [
        ("int64[1] z", "y = Slice(x, start, end)  z = Identity(start)"),
        ("float[k] z", "y = Slice(x, start, end)  twice = Add(start, start)  z = Slice(x, twice, end)"),
    ],
    ids=["an output", "arithmetic"],
)
def test_what_else_is_done_with_them_sees_the_numbers_that_were_fed(output: str, nodes: str) -> None:
    text = f"(float[n] x, int64[1] start, int64[1] end) => (float[m] y, {output})"
    plan = compile_model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text} {{ {nodes} }}'))
    assert plan.meta["clamped"] == ["end"]
