"""player.js in Chromium: host steps, which the page hands to whoever runs them, here to Python by a binding."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.web.driver import Player, pack, unpack
from tests.web.test_player import compiled, values
from webrt import lowering
from webrt.errors import (
    PlacementError,
    ShapeError,
)
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.planfile import dump, load
from webrt.runtime.host_steps import HostSteps

pytestmark = pytest.mark.xdist_group("chromium")

HOST = (
    "agraph (float[n] x) => (float[m] y, int64[1, k] nz, float[n] e)"
    " { a = Abs(x)  nz = NonZero(a)  e = Exp(a)  u = Unique(e)  y = Log(u) }"
)


@pytest.fixture(scope="module")
def hosted() -> Plan:
    """NonZero and Unique stay on the CPU, as operators without a kernel do."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NonZero", "Unique"):
            patch.delitem(lowering._REGISTRY, ("", name))
        return compiled(HOST)


def test_host_steps_need_a_host(player: Player, hosted: Plan) -> None:
    with pytest.raises(PlacementError, match="nodes for the CPU provider, and none was given: NonZero .*Unique"):
        player.load(hosted)


def serve_host(player: Player, plan: Plan) -> list[dict[str, Any]]:
    """Runs host steps of the page in this process; returns a list that fills with what the page passed."""
    steps, passed = HostSteps(plan, CpuProvider()), []

    def answer(text: str) -> str:
        asked = json.loads(text)
        passed.append(asked)
        steps.begin({})
        try:
            made = steps.run(asked["steps"], {n: unpack(v) for n, v in asked["inputs"].items()})
        except Exception as e:
            return json.dumps({"error": str(e)})
        return json.dumps({"outputs": {n: pack(v) for n, v in made.items()}})

    player.page.expose_function("webrtHost", answer)
    return passed


def test_host_segments(host_page: Player, hosted: Plan) -> None:
    passed = serve_host(host_page, hosted)
    session = host_page.load(load(dump(hosted)), host=True)
    x = np.array([1.0, -1.0, 0.0, 2.0, -2.0, 0.5], np.float32)
    for feed in (x, np.concatenate([x, x, x + 1]), x):
        passed.clear()
        before = session.counters
        got = session.run({"x": feed})
        np.testing.assert_allclose(got["y"], np.unique(np.abs(feed)), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got["nz"], np.stack(np.nonzero(feed)))
        np.testing.assert_allclose(got["e"], np.exp(np.abs(feed)), rtol=1e-4)
        assert sum(len(p["steps"]) for p in passed) == 2
        assert session.counters["submits"] - before["submits"] <= len(passed) + 1
    created = session.counters["created"]
    session.run({"x": x})
    assert session.counters["created"] == created
    session.release()


@pytest.mark.parametrize("text", [
    "agraph (double[n] x, bool[n] keep) => (double[k] y)"
    " { c = Compress<axis = 0>(x, keep)  s = Shape(c)  f = Cast<to = 11>(s)  y = Add(c, f) }",
    "agraph (double[n] x, bool[n] keep) => (double[k] y)"
    " { c = Compress<axis = 0>(x, keep)  f = Cast<to = 1>(c)  flat = Constant<value = int64[1] {-1}>()"
    " v = Reshape(f, flat)  y = Cast<to = 11>(v) }",
], ids=["a size", "a view"])  # fmt: skip
def test_what_a_host_segment_makes_for_itself(host_page: Player, text: str) -> None:
    """A size of one CPU node's result, or a device view of it, for the next CPU node."""
    plan = compiled(text)
    serve_host(host_page, plan)
    session = host_page.load(plan, host=True)
    x = np.arange(5, dtype=np.float64)
    for keep in ([1, 0, 1, 0, 1], [0, 1, 1, 0, 0]):
        mask = np.array(keep, bool)
        got = session.run({"x": x, "keep": mask})
        np.testing.assert_array_equal(got["y"], x[mask] + (mask.sum() if "Shape" in text else 0))
    session.release()


def test_what_a_host_makes_is_checked(host_page: Player, hosted: Plan) -> None:
    made: list[dict[str, Any]] = []
    host_page.page.expose_function("webrtHost", lambda text: json.dumps(made[0]))
    session = host_page.load(hosted, host=True)
    x = {"x": values(4)}
    good = {"nz": pack(np.zeros((1, 2), np.int64)), "u": pack(np.ones(2, np.float32))}
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"error": "no such node"}, Exception, "no such node"),
        ({"outputs": {}}, Exception, "made no value"),
        ({"outputs": {**good, "u": pack(np.ones(2, np.float64))}}, ShapeError, "made 'u': its type is float64"),
        ({"outputs": {**good, "u": pack(np.ones((2, 2), np.float32))}}, ShapeError, "made 'u': rank 2"),
    ]
    for answer, kind, message in bad:
        made[:] = [answer]
        with pytest.raises(kind, match=message):
            session.run(x)
    made[:] = [{"outputs": good}]
    assert session.run(x)["y"].tolist() == [0, 0]
    session.release()
