"""Branches and loops in player.js, in Chromium: alone, and with host steps under a host provider."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.flow_cases import CASES
from tests.kernels.harness import oracle
from tests.tolerance import close
from tests.web.driver import Player, pack, unpack
from webrt.compiler.compile import compile_model
from webrt.errors import PlacementError
from webrt.host import CpuProvider
from webrt.planfile import dump, load
from webrt.runtime.host_steps import HostSteps

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c.host])
def test_what_only_the_run_decides(player: Player, name: str) -> None:
    """As onnxruntime; the second identical run creates nothing."""
    case = CASES[name]
    session = player.load(load(dump(compile_model(case.model))))
    for feeds in case.feeds:
        expected = oracle(case.model, feeds)
        for _ in range(2):
            before = session.counters
            got = session.run(feeds)
            for value, want in zip(got.values(), expected, strict=True):
                assert value.shape == want.shape
                close(value, want)
        now = session.counters
        assert (now["created"], now["pipelines"]) == (before["created"], before["pipelines"])
    session.release()


def test_only_what_decides_is_read_back(player: Player) -> None:
    session = player.load(compile_model(CASES["a loop by a count that is fed"].model))
    feeds = {"x": np.ones((2, 3), np.float32), "n": np.array(5)}
    session.run(feeds)
    before = session.counters
    session.run(feeds)
    now = session.counters
    assert (now["submits"] - before["submits"], now["read"] - before["read"]) == (1, 24 + 5 * 24)
    session.release()


def test_host_steps_within_a_loop(host_page: Player) -> None:
    case = CASES["a node for the CPU within a loop"]
    plan = compile_model(case.model)
    with pytest.raises(PlacementError, match="nodes for the CPU provider.*Exp"):
        host_page.load(plan)
    steps = HostSteps(plan, CpuProvider())

    def answer(text: str) -> str:
        asked: dict[str, Any] = json.loads(text)
        made = steps.run(asked["steps"], {n: unpack(v) for n, v in asked["inputs"].items()})
        return json.dumps({"outputs": {n: pack(v) for n, v in made.items()}})

    host_page.page.expose_function("webrtHost", answer)
    session = host_page.load(plan, host=True)
    for feeds in case.feeds:
        steps.begin({})
        for value, want in zip(session.run(feeds).values(), oracle(case.model, feeds), strict=True):
            close(value, want)
    session.release()
