"""All node cases of onnx.backend.test, compiled: what each plan places where, and what a run must give."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.tolerance import close
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import NotConstant
from webrt.plan import Copy, Dispatch, Plan, Step
from webrt.subplans import walk
from webrt.target import BASE, Target

EXPECTED = Path(__file__).with_name("expected.toml")
MAX_KNOWN = 8
KEYS = ("metadata", "cpu", "fails", "random", "rounded")


@dataclass(frozen=True)
class Case:
    """A node case: `feeds` and `wanted` by name; `op` is the operator that the case is about."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    wanted: Sequence[Any]
    rtol: float
    atol: float

    @property
    def op(self) -> str:
        return str(self.model.graph.node[0].op_type) if len(self.model.graph.node) else ""


@lru_cache(maxsize=1)
def cases() -> dict[str, Case]:
    """Every node case by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    out: dict[str, Case] = {}
    for t in tests:
        inputs, outputs = t.data_sets[0]
        names = [i.name for i in t.model.graph.input]
        feeds = dict(zip(names, map(_array, inputs), strict=False))
        out[t.name] = Case(t.name, t.model, feeds, [_array(o) for o in outputs], t.rtol, t.atol)
    return out


def _array(value: Any) -> Any:
    """Some cases hold TensorProtos."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def compile_case(case: Case, target: Target = BASE) -> Plan:
    """The case's plan; inputs whose elements decide shapes are given as known inputs."""
    known: dict[str, Any] = {}
    for _ in range(MAX_KNOWN):
        try:
            return compile_model(case.model, CompileOptions(target=target, known_inputs=known))
        except NotConstant as e:
            fresh = {r: case.feeds[r] for r in e.roots if r not in known}
            if not fresh:
                raise
            known.update(fresh)
    raise AssertionError(f"{case.name}: known inputs do not settle: {sorted(known)}")


def classify(plan: Plan) -> str:
    """ "webgpu": wholly there, with a dispatch or a copy; "metadata": nothing to run; "cpu": a host step remains."""
    if plan.host_steps:
        return "cpu"
    return "webgpu" if any(_runs(s) for s in walk(plan.steps)) else "metadata"


def _runs(step: Step) -> bool:
    """Whether a step has anything to do; a case's sizes are all known."""
    if isinstance(step, Dispatch):
        return 0 not in step.alternatives[0][1:]
    return isinstance(step, Copy) and step.size != 0


def why_cpu(plan: Plan) -> str:
    """The first reason for a host step."""
    return next(p.reason for p in plan.placement if p.how == "host")


def compare(case: Case, got: Sequence[Any]) -> None:
    """Every output against the case's own values; where these are drawn, type, shape and mean."""
    assert len(got) == len(case.wanted), f"{case.name}: {len(got)} outputs, expected {len(case.wanted)}"
    if case.name in expected()["random"]:
        for g, w in zip(map(np.asarray, got), map(np.asarray, case.wanted), strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape), case.name
            a, b = g.astype(np.float64), w.astype(np.float64)
            assert abs(a.mean() - b.mean()) <= 6 * max(a.std(), b.std()) * (2 / a.size) ** 0.5, case.name
        return
    rtol, atol = (case.rtol, 1e-4) if case.name in expected()["rounded"] else (None, None)
    for i, (g, w) in enumerate(zip(got, case.wanted, strict=True)):
        same(g, w, f"{case.name} output {i}", rtol, atol)


def same(got: Any, want: Any, what: str, rtol: float | None = None, atol: float | None = None) -> None:
    """Tensors within DESIGN's tolerances; sequences, optionals and maps element by element."""
    if want is None:
        assert got is None, what
    elif isinstance(want, (list, tuple)):
        assert isinstance(got, (list, tuple)), f"{what}: {type(got).__name__} for a sequence"
        assert len(got) == len(want), f"{what}: length {len(got)}, expected {len(want)}"
        for g, w in zip(got, want, strict=True):
            same(g, w, what, rtol, atol)
    elif isinstance(want, dict):
        assert got == want, what
    else:
        g, w = np.asarray(got), np.asarray(want)
        if w.dtype.kind in "OUS":
            assert g.shape == w.shape and g.astype(str).tolist() == w.astype(str).tolist(), what
        elif w.dtype.kind == "V" and str(w.dtype) != "bfloat16":
            np.testing.assert_array_equal(g.astype(np.float32), w.astype(np.float32), err_msg=what)
        else:
            close(g, w, what=what, rtol=rtol, atol=atol)


@lru_cache(maxsize=1)
def expected() -> dict[str, Any]:
    """`expected.toml`, each case → reason: `cpu`, `metadata`, `fails`, `random` (values are drawn), `rounded` (the
    case's own values have few digits)."""
    with EXPECTED.open("rb") as f:
        data = tomllib.load(f)
    return {k: {n: reason for reason, names in data.get(k, {}).items() for n in names} for k in KEYS}


def expected_kind(name: str) -> str:
    """What `classify` must say of a case."""
    if name in expected()["cpu"]:
        return "cpu"
    return "metadata" if name in expected()["metadata"] else "webgpu"
