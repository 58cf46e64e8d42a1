"""A page with player.js, plans and shortcuts, for tests of what goes wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.faults.models import CHAIN, LONG_LOOP, SLOW_SIZE, SPLIT, plan_of, slow_plan
from tests.web.driver import Player
from webrt.planfile import save

# Within a page: `webrt`, files of plans by name, and shortcuts. A call's error is told as [name, message].
PRELUDE = (
    f"const slowSize = {SLOW_SIZE};"
    + """
  const webrt = await import("/web/player.js");
  const { loadPlan, openDevice } = webrt;
  const feeds = { x: { data: new Float32Array([0, 3, 1, -4, 1, 1, 1, 1]), dims: [2, 4] } };
  const right = "33,39,45,45,52.5,60";
  const told = (work) => Promise.resolve().then(work).then(() => "nothing was thrown", (e) => [e.name, e.message]);
  const y = async (session, options) => [...(await session.run(feeds, options)).y.data].join();
  const bytes = async (name) => (await fetch(base + name)).arrayBuffer();
  const [chain, split, slow, loop] = ["chain", "split", "slow", "loop"].map((name) => `${base}${name}.webrt`);
"""
)


def write_plans(files: Path) -> None:
    """The plans that a page finds beside it."""
    save(plan_of(CHAIN), files / "chain.webrt")
    save(plan_of(SPLIT), files / "split.webrt")
    save(plan_of(LONG_LOOP), files / "loop.webrt")
    slow_plan(files / "slow.webrt")


def run(player: Player, url: str, code: str) -> Any:
    """What `code` returns in the page."""
    return player.page.evaluate(f"async (base) => {{ {PRELUDE} {code} }}", url)


def refused(answer: Any, name: str, message: str) -> None:
    assert answer[0] == name, answer
    assert re.search(message, answer[1]), answer
