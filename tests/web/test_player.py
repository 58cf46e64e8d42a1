"""player.js in Chromium: the tables that it shares with Python, runs against the native device, counters, tensors."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from onnx import parser

from tests.kernels.harness import device
from tests.passes.test_shared_slots import graph as network
from tests.plans import TABLE, damaged, edited
from tests.textured import expected, textured_plan
from tests.web.driver import Player
from webrt.compiler.compile import compile_model
from webrt.errors import InputError, PlanError, ShapeError
from webrt.plan import Copy, Dispatch, Plan
from webrt.planfile import save
from webrt.planjson import plan_from_json
from webrt.runtime.session import Session
from webrt.validate import validate

pytestmark = pytest.mark.xdist_group("chromium")

CASES = json.loads((Path(__file__).parents[1] / "unit" / "dim_cases.json").read_text(encoding="utf-8"))
BIG = 2**53 + 1


def compiled(text: str) -> Plan:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return compile_model(model.SerializeToString())


@pytest.fixture(scope="module")
def chain() -> Plan:
    """Several kernels over a free batch, with a constant."""
    return compiled(
        "agraph (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[4] w = {1.0, -2.0, 3.0, 0.5}>"
        " { a = Add(x, w)  b = Relu(a)  y = Mul(b, a)  z = Sub(y, w) }"
    )


@pytest.fixture(scope="module")
def integers() -> Plan:
    return compiled("agraph (int64[n] a, int64[n] b) => (int64[n] y) { y = Add(a, b) }")


def values(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def native(plan: Plan, feeds: dict[str, Any]) -> dict[str, Any]:
    with Session(plan, device()) as session:
        return dict(zip([o.name for o in plan.outputs], session.run(None, feeds)))


def same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, want in expected.items():
        assert (got[name].dtype, got[name].shape) == (want.dtype, want.shape)
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


def refusal(check: Any, *args: Any, **kwargs: Any) -> str:
    try:
        check(*args, **kwargs)
    except PlanError as e:
        return e.what
    return ""


def test_damaged_plans_are_refused_alike(player: Player) -> None:
    texts = [damaged(Random(seed)) for seed in range(400)]
    there = [bool(refusal(player.call, "parse", text=t)) for t in texts]
    here = [bool(refusal(lambda t: validate(plan_from_json(t)), t)) for t in texts]
    assert there == here
    assert 250 < sum(here) < 400


def test_agrees_with_the_native_device(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    assert session.inputs == [{"name": "x", "dtype": "float32", "shape": ["n", 4]}]
    for n in (1, 3, 64, 1000):
        x = values(n, 4, seed=n)
        same(session.run({"x": x}), native(chain, {"x": x}))
    session.release()


def test_parts_of_a_slot(player: Player) -> None:
    """A Concat that is written part by part, a Split that is read so, and no copies."""
    plan = compiled(
        "agraph (float[n, 64] x, float[n, 64] z, float[2, n, 64] s)"
        " => (float[a, 64] y, float[b, 64] w, float[1, c, 64] u)"
        " { a = Softmax(x)  b = Softmax(z)  c = Concat<axis=0>(a, b)  d = Softmax(c)  e, f = Split<axis=0>(d)"
        " y = Softmax(e)  w = Softmax(f)  g, h = Split<axis=0>(s)  k = Softmax(g)  l = Softmax(h)"
        " u = Concat<axis=1>(k, l) }"
    )
    assert not any(isinstance(s, Copy) for s in plan.steps)
    session = player.load(plan)
    for n in (1, 3, 64):
        feeds = {"x": values(n, 64, seed=n), "z": values(n, 64, seed=n + 1), "s": values(2, n, 64, seed=n + 2)}
        same(session.run(feeds), native(plan, feeds))
    session.release()


def test_tensors_side_by_side_in_a_slot(player: Player) -> None:
    """Bound from their first byte on, in a run after another, too."""
    plan = compile_model(network(27, free=False))
    starts = [offset for s in plan.steps if isinstance(s, Dispatch) for p, _, offset, _ in s.bindings if p[0] == "s"]
    assert any(isinstance(offset, int) and offset > 0 for offset in starts)
    session = player.load(plan)
    for seed in (1, 2):
        feeds = {v.name: values(*map(int, v.shape or ()), seed=seed) for v in plan.inputs if v.constant is None}
        same(session.run(feeds), native(plan, feeds))
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


def test_bounds_of_slices_are_taken_as_far_out_as_they_come(player: Player) -> None:
    plan = compiled(
        "agraph (float[n] x, int64[1] s, int64[1] e) => (float[m] y)"
        " <int64[1] axes = {0}, int64[1] steps = {-1}> { y = Slice(x, s, e, axes, steps) }"
    )
    session, x, least, most = player.load(plan), values(5), -(2**63), 2**63 - 1
    for start, end, want in ((most, least, x[::-1]), (3, least, x[3::-1]), (most, 2, x[:2:-1]), (least, least, x[:1])):
        got = session.run({"x": x, "s": np.array([start]), "e": np.array([end])})
        np.testing.assert_array_equal(got["y"], want)
    session.release()


def test_sizes_are_read_back_and_numbers_are_drawn(player: Player) -> None:
    plan = compiled(
        "agraph (float[n] x, float least) => (float[k] y, float[n] r) { m = Greater(x, least)"
        " kept = Compress <axis = 0> (x, m)  y = Neg(kept)  r = RandomUniformLike(x) }"
    )
    session, drawn = player.load(plan), []
    for n, least in ((40, 0.0), (90, 0.5), (90, 9.0), (40, 0.0), (40, 0.0)):
        x, before = values(n, seed=n), session.counters
        got = session.run({"x": x, "least": np.array(least, np.float32)})
        np.testing.assert_array_equal(got["y"], -x[x > least])
        drawn.append(got["r"])
        assert session.counters["submits"] - before["submits"] == 2
    assert session.counters["created"] == before["created"]
    assert min(d.min() for d in drawn) >= 0 and max(d.max() for d in drawn) < 1
    assert np.mean(drawn[-1] == drawn[-2]) < 0.1
    session.release()


def test_slots_grow_by_half_again(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    created = []
    for n in range(100, 160, 10):
        x = values(n, 4, seed=n)
        same(session.run({"x": x}), native(chain, {"x": x}))
        created.append(session.counters["created"])
    grown = [b - a for a, b in itertools.pairwise(created)]
    assert grown[0] > 0
    assert grown[1:4] == [0, 0, 0]
    same(session.run({"x": values(100, 4)}), native(chain, {"x": values(100, 4)}))
    assert session.counters["created"] == created[-1]
    session.release()


def test_release_frees_everything(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    session.run({"x": values(3, 4)})
    assert session.counters["buffers"] > 0
    counters = session.release()
    assert (counters["buffers"], counters["bytes"]) == (0, 0)
    session.release()
    with pytest.raises(Exception, match="the session was released"):
        session.run({"x": values(3, 4)})


def test_int64_is_exact(player: Player, integers: Plan) -> None:
    session = player.load(integers)
    a = np.array([BIG, -BIG, 2**63 - 1, -(2**63), 0], np.int64)
    b = np.array([1, -1, 0, 0, -1], np.int64)
    assert session.run({"a": a, "b": b})["y"].tolist() == (a + b).tolist()
    texts = {"bigints": [str(BIG)], "bare": True}
    assert session.run({"a": texts, "b": {"list": [1], "bare": True}})["y"].tolist() == [BIG + 1]
    for wrong in (2**53, 0.5, "1", None, True):
        with pytest.raises(InputError, match="input 'b': element 0 of the list"):
            session.run({"a": texts, "b": {"list": [wrong], "bare": True}})
    with pytest.raises(InputError, match="element 0"):
        session.run({"a": {"bigints": [str(2**63)], "bare": True}, "b": texts})
    session.release()


def test_zero_sizes(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    got = session.run({"x": values(0, 4)})
    assert got["y"].shape == (0, 4)
    same(session.run({"x": values(2, 4)}), native(chain, {"x": values(2, 4)}))
    assert session.run({"x": values(0, 4)})["z"].size == 0
    session.release()


def test_all_element_types_pass_through(player: Player) -> None:
    types = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
    names = {"float32": "float"}
    for name in types:
        onnx_name = names.get(name, name)
        plan = compiled(f"agraph ({onnx_name}[n] x) => ({onnx_name}[m] y) {{ y = Concat<axis = 0>(x, x) }}")
        session = player.load(plan)
        x = np.array([0, 1, 1, 0, 1, 1, 1], name)
        y = session.run({"x": x})["y"]
        assert (y.dtype, y.tolist()) == (x.dtype, [*x.tolist(), *x.tolist()])
        session.release()


def test_outputs_by_name(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    x = values(2, 4)
    assert list(session.run({"x": x}, outputs=["z"])) == ["z"]
    assert list(session.run({"x": x}, outputs=[])) == []
    with pytest.raises(InputError, match="there is no output 'q'; the outputs are y, z"):
        session.run({"x": x}, outputs=["q"])
    session.release()


def test_tensors_stay_on_the_device_and_may_be_fed(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    x = values(3, 4)
    expected = native(chain, {"x": x})
    before = session.counters["read"]
    handed = session.run({"x": x}, location="gpu")
    assert session.counters["read"] == before
    mixed = session.run({"x": {"tensor": handed["y"]["tensor"]}}, location={"y": "gpu"})
    same({"z": mixed["z"]}, {"z": native(chain, {"x": expected["y"]})["z"]})
    again = session.run({"x": {"tensor": handed["y"]["tensor"]}})
    same(again, native(chain, {"x": expected["y"]}))
    for tensor in (handed["y"], handed["z"], mixed["y"]):
        player.call("dispose", tensor=tensor["tensor"])
    assert session.release()["buffers"] == 0


def test_a_file_arrives_over_http(player: Player, chain: Plan, files: Path, base_url: str) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((700, 1100)).astype(np.float32)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[700] x) => (float[1100] y) { y = MatMul(x, w) }'
    )
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.raw_data = "w", 1, weights.tobytes()
    tensor.dims.extend(weights.shape)
    plan = compile_model(model)
    save(plan, files / "large.webrt")
    session = player.load(f"{base_url}large.webrt")
    assert session.progress[1:] == [session.progress[2]] * 2
    x = values(700)
    np.testing.assert_allclose(session.run({"x": x})["y"], x @ weights, rtol=1e-3, atol=1e-3)
    session.release()


def test_runs_take_turns(player: Player, chain: Plan) -> None:
    session = player.load(chain)
    answers = player.page.evaluate(
        """async ([session, feeds]) => {
          const run = (x) => webrtCall("run", JSON.stringify({ session, feeds: { x }, options: {} }));
          return Promise.all(feeds.map(run));
        }""",
        [session.number, [{"list": [k] * 4 * k, "dims": [k, 4]} for k in range(1, 6)]],
    )
    for k, answer in enumerate(answers, 1):
        assert answer["value"]["y"]["dims"] == [k, 4]
    session.release()


@pytest.mark.parametrize("loader", ["sampled", "storage"])
def test_kernels_read_through_textures(player: Player, loader: str) -> None:
    session = player.load(textured_plan(loader, "uint8"))
    for n in (1, 5, 100, 9000, 5):
        x = np.random.default_rng(n).integers(0, 100, n).astype(np.uint8)
        got = session.run({"x": x})
        for name, want in zip("yz", expected(x)):
            np.testing.assert_array_equal(got[name], want)
    before = session.counters
    session.run({"x": x})
    after = session.counters
    assert {k for k in after if after[k] > before[k]} <= {"submits", "dispatches", "copies", "written", "read"}
    assert after["copies"] - before["copies"] == 2
    assert session.release()["buffers"] == 0
