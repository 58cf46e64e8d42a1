"""Every pattern of the compiler: found where it must be, not where it must not, right either way (tests/passes/cases).
and right either way (tests/passes/cases).

What a basic pass makes is run by onnxruntime at ORT_DISABLE_ALL and by onnx's reference evaluator; what an extended one
makes by the native device. Both are compared with the model as it was.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.kernels.harness import Array, oracle, run_native
from tests.passes.cases import attention, fusions, kernels, lookups, moving, products, structure, tidying, transposed
from tests.passes.cases.case import FIRES, REASONS, Case
from tests.passes.harness import compiled, feeds_of, ops
from tests.tolerance import close
from webrt.compiler.fuse import PASSES as LATER
from webrt.compiler.normalize import NEEDS, PASSES, REQUIRED
from webrt.compiler.patterns import patterns

TABLES = (tidying, products, structure, fusions, kernels, attention, moving, transposed, lookups)
CASES = [c for m in TABLES for c in m.T.cases]
BASIC = {name for name, _ in PASSES} - set(NEEDS)
EXTENDED = {name for name, _ in LATER}
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 88.0, 1e-30], np.float32)


def left(case: Case, without: bool = False) -> str:
    """The operators that remain, with the case's pass or without it; of an extended one with no other than it needs."""
    disabled = {case.name} if without else set[str]()
    if case.name not in BASIC:
        disabled |= EXTENDED - {case.name, NEEDS.get(case.name)}
        return " ".join(ops(compiled(case.model(), disabled=disabled)))
    return " ".join(p.op for p in compiled(case.model(), level="basic", disabled=disabled).placement)


def name_of(case: Case) -> str:
    return f"{case.pattern} {case.why}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_found_or_not(case: Case) -> None:
    assert left(case) == case.left
    if case.why == FIRES and case.name not in REQUIRED:
        assert left(case, without=True) != case.left


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_same_results(case: Case) -> None:
    model = case.model()
    feeds = feeds_of(model)
    compare(case, model, feeds)
    if case.odd:
        compare(case, model, {k: oddly(x) for k, x in feeds.items()})


def compare(case: Case, model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    with np.errstate(all="ignore"):
        want = oracle(model, feeds)
        if case.name in BASIC:
            made = optimized(model)
            found = {"onnxruntime": oracle(made, feeds)}
            if case.reference and "com.microsoft" not in case.graph + case.left:
                found["reference"] = [np.asarray(y) for y in ReferenceEvaluator(made).run(None, feeds)]
        else:
            found = {"native": run_native(model, feeds)[0]}
    for what, results in found.items():
        for got, expected in zip(results, want, strict=True):
            close(got, expected, what=what, **(case.tolerance or {}))


def optimized(model: onnx.ModelProto) -> onnx.ModelProto:
    """What the basic passes make of a model."""
    made: list[bytes] = []
    compiled(model, level="basic", optimized=made.append)
    return onnx.load_from_string(made[-1])


def oddly(x: Array) -> Array:
    """With NaN, infinities, zeros and large numbers in the first places of an array of floats."""
    if x.dtype.kind != "f":
        return x
    flat = x.reshape(-1).copy()
    flat[: len(ODD)] = ODD[: len(flat)]
    return flat.reshape(x.shape)


def test_every_pattern_has_both_kinds() -> None:
    names = {f"{name}/{op}" if op else name for name, told in patterns().items() for op in told or ("",)}
    assert {c.pattern for c in CASES} == names
    for name in sorted(names):
        whys = {c.why for c in CASES if c.pattern == name}
        assert FIRES in whys, name
        assert whys & set(REASONS), name
    assert {c.why for c in CASES} == {FIRES, *REASONS}
