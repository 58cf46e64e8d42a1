"""player.js in Chromium: the tables that it shares with Python, runs against the native device, counters, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.kernels.harness import device
from tests.plans import TABLE, edited
from tests.web.driver import Player
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InputError, KernelError, PlanError, ShapeError, TargetError, WebrtError
from webrt.plan import Plan, dump
from webrt.runtime.session import Session

pytestmark = pytest.mark.xdist_group("chromium")

CASES = json.loads((Path(__file__).parents[1] / "unit" / "dim_cases.json").read_text(encoding="utf-8"))
BIG = 2**53 + 1


def compiled(text: str, **options: Any) -> Plan:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    onnx.checker.check_model(model)
    return compile_model(model.SerializeToString(), CompileOptions(**options))


@pytest.fixture(scope="module")
def chain() -> Plan:
    """Several kernels over a free batch, with a constant."""
    return compiled(
        "agraph (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)"
        " <float[4] w = {1.0, -2.0, 3.0, 0.5}>"
        " { a = Add(x, w)  b = Relu(a)  y = Mul(b, a)  z = Sub(y, w) }"
    )


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def native(plan: Plan, feeds: dict[str, Any]) -> dict[str, Any]:
    with Session(plan, device()) as session:
        return dict(zip([o.name for o in plan.outputs], session.run(None, feeds)))


def same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, want in expected.items():
        assert got[name].dtype == want.dtype
        assert got[name].shape == want.shape
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)


def test_sizes_table(player: Player) -> None:
    wrong = []
    for case in CASES:
        known = list(case["known"].items())
        try:
            got: Any = player.call("evaluate", program=case["program"], known=known)
        except ShapeError as e:
            got = str(e)
        right = case["error"] in got if "error" in case else got == case["values"]
        if not right:
            wrong.append((case["what"], got))
    assert not wrong


def test_bad_plans_table(player: Player) -> None:
    wrong = []
    for case in TABLE["bad"]:
        try:
            player.call("parse", text=edited(case["edits"]))
            wrong.append((case["what"], "accepted"))
        except PlanError as e:
            if case["message"] not in str(e):
                wrong.append((case["what"], str(e)))
    assert not wrong
    for case in TABLE["good"]:
        player.call("parse", text=edited(case["edits"]))


def test_agrees_with_the_native_device(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    assert session.inputs == [{"name": "x", "dtype": "float32", "shape": ["n", 4]}]
    for n in (1, 3, 64, 1000):
        x = values(n, 4, seed=n)
        same(session.run({"x": x}), native(chain, {"x": x}))
    session.release()


def test_second_identical_run_creates_nothing_and_is_one_submit(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    x = values(5, 4)
    first = session.run({"x": x})
    before = session.counters
    second = session.run({"x": x})
    after = session.counters
    same(second, first)
    for name in ("created", "buffers", "bytes", "pipelines", "bindGroups"):
        assert after[name] == before[name], name
    assert after["submits"] - before["submits"] == 1
    assert after["dispatches"] - before["dispatches"] == len(chain.steps)
    assert after["written"] - before["written"] == x.nbytes
    session.release()
