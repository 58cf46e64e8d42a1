"""Profiles in a page: what player.js times, with and without timestamp queries, and around host steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from playwright.sync_api import Browser

from tests.unit.test_profile import CHAIN, chain_feeds, check_trace
from tests.web.driver import Player, PlayerSession
from webrt.cli import main
from webrt.compiler.compile import compile_model


def traced(player: Player, session: PlayerSession, feeds: dict[str, Any]) -> dict[str, Any]:
    """The trace of two runs, whose outputs are those of a run that nothing times."""
    plain = session.run(feeds)
    assert player.call("endProfiling", session=session.number) is None
    player.call("startProfiling", session=session.number)
    for _ in range(2):
        for name, got in session.run(feeds).items():
            np.testing.assert_array_equal(got, plain[name])
    made: dict[str, Any] = player.call("endProfiling", session=session.number)
    return made


@pytest.mark.parametrize("stamps", [True, False])
def test_runs_are_timed(player: Player, stamps: bool) -> None:
    plan = compile_model(onnx.parser.parse_model(CHAIN))
    device = None if stamps else player.call("plainDevice")
    session = player.load(plan, device)
    made = traced(player, session, chain_feeds(8))
    check_trace(made)
    (clock,) = made["otherData"]["clocks"]
    assert clock.startswith("timestamp queries" if stamps else "CPU clock")
    steps = [e for e in made["traceEvents"] if e["ph"] == "X" and e["cat"] == "dispatch"]
    assert len(steps) == 2 * len(plan.steps) and all(e["args"]["kernel"] for e in steps)
    products = [e for e in steps if e["args"]["op"] == "MatMul"]
    assert len(products) == 6 and "float32[384, 384]" in products[0]["args"]["tensors"]
    before = session.counters
    session.run(chain_feeds(8))
    after = session.counters
    assert after["submits"] - before["submits"] == 1 and after["created"] == before["created"]
    session.release()
    if device is not None:
        player.call("destroy", device=device)


@pytest.mark.parametrize("width", [390, 1100])
def test_the_html_of_a_profile_fits_its_window(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(CHAIN)
    model.graph.node[0].name = "a_name_with_nothing_to_break_at_" * 4
    onnx.save(model, "model.onnx")
    assert main(["profile", "model.onnx", "--dim", "N=2", "--repeat", "1", "--html", "p.html"]) == 0
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((tmp_path / "p.html").as_uri())
    page.click("summary >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
