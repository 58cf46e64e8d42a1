"""player.js in Chromium: tuning, its table, and the browser's storage of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.plans import TUNINGS, edited
from tests.textured import expected
from tests.tuned import FIRST, SECOND, hashes, two_ways
from tests.web.driver import Player, PlayerSession
from webrt.errors import InputError, PlanError

pytestmark = pytest.mark.xdist_group("chromium")

X = np.arange(6, dtype=np.float32)
FASTER = {FIRST: 1.0, SECOND: 0.5}


@pytest.fixture
def page(player: Player) -> Iterator[Player]:
    """A page that remembers nothing yet."""
    player.load(two_ways(), tuning=True).release()
    player.call("storeTuning", text=None)
    yield player
    player.call("storeTuning", text=None)


@pytest.fixture
def warnings(page: Player) -> Iterator[list[str]]:
    found: list[str] = []
    listen = lambda message: found.append(message.text) if message.text.startswith("webrt:") else None  # noqa: E731
    page.page.on("console", listen)
    yield found
    page.page.remove_listener("console", listen)


def added(session: PlayerSession, n: int = 6) -> float:
    """What the kernel that ran added: 0 is FIRST, 100 is SECOND."""
    (extra,) = set((session.run({"x": X[:n]})["y"] - expected(X[:n])[0]).tolist())
    return float(extra)


def measured(session: PlayerSession) -> int:
    count = session.counters["measured"]
    assert session.release()["buffers"] == 0
    return count


def test_the_second_load_of_a_page_measures_nothing(page: Player) -> None:
    session = page.load(two_ways(), tuning=True, tuningBudget=600, seconds=FASTER)
    assert [added(session), added(session)] == [100, 100]
    assert measured(session) == 12
    page.page.reload()
    again = Player(page.page)
    for options in ({"tuning": True}, {"tuning": True, "tuningBudget": 5}):
        session = again.load(two_ways(), **options)
        assert added(session) == 100 and measured(session) == 0
    plain = again.load(two_ways())
    assert added(plain) == 0 and measured(plain) == 0


def test_kernels_are_timed_on_the_device(page: Player) -> None:
    """With timestamps and without: which kernel is faster is not told here."""
    for device in (None, page.call("plainDevice")):
        session = page.load(two_ways(), tuning=True, tuningBudget=600, device=device)
        assert added(session) in (0, 100)
        (entry,) = page.call("tuningOf", session=session.number)["entries"]
        assert entry["kernels"] == hashes(two_ways()) and entry["bucket"] == [1, 1, 1, 8]
        assert all(us >= 0 for us in entry["us"]) and measured(session) > 3


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("{", "the tuning is damaged: it is no JSON"),
        (json.dumps(TUNINGS["base"]), "the tuning is for another adapter: v, a, d, Vulkan; this one is google, swift"),
        (7, "the tuning is damaged: it is no JSON"),
    ],
    ids=["damaged", "foreign", "a number"],
)  # fmt: skip
def test_bad_storage_is_ignored_and_made_anew(page: Player, warnings: list[str], text: Any, warning: str) -> None:
    first = page.load(two_ways(), tuning=True, tuningBudget=600, seconds=FASTER)
    added(first)
    first.release()
    assert page.call("storeTuning", text=text) == 1
    session = page.load(two_ways(), tuning=True, tuningBudget=600, seconds=FASTER)
    assert added(session) == 100 and measured(session) == 12
    (line,) = warnings
    assert line.startswith(f"webrt: the tuning in the browser's storage is ignored: {warning}")
    assert line.endswith("it is measured anew")
    session = page.load(two_ways(), tuning=True)
    assert added(session) == 100 and measured(session) == 0


def test_a_table_is_given_or_carried_by_the_plan(page: Player, warnings: list[str]) -> None:
    session = page.load(two_ways(), tuning=True, tuningBudget=600, seconds=FASTER)
    added(session)
    table = page.call("tuningOf", session=session.number)
    session.release()
    page.call("storeTuning", text=None)
    for plan, tuning in ((two_ways(), table), (replace(two_ways(), tuning=(TUNINGS["base"], table)), None)):
        session = page.load(plan, tuning=tuning)
        assert [added(session, n) for n in (6, 1, 6)] == [100, 0, 100] and measured(session) == 0
    assert not warnings
    session = page.load(two_ways(), tuning=TUNINGS["base"])
    assert added(session) == 0 and measured(session) == 0
    assert "the tuning that was given is ignored" in warnings[0] and warnings[0].endswith("defaults are taken")


def test_wrong_options_are_told(page: Player) -> None:
    for options, message in (({"tuning": "yes"}, "tuning is true, or a table"), ({"tuningBudget": -1}, "above 0")):
        with pytest.raises(InputError, match=message):
            page.load(two_ways(), **options)


def test_bad_tables_are_refused_as_natively(player: Player) -> None:
    for case in TUNINGS["bad"]:
        with pytest.raises(PlanError, match=f"^the tuning is damaged: {re.escape(case['message'])}$"):
            player.call("parseTuning", text=edited(case["edits"], TUNINGS["base"]))
    for text in TUNINGS["no_json"]:
        with pytest.raises(PlanError, match="^the tuning is damaged: it is no JSON$"):
            player.call("parseTuning", text=text)
    for case in TUNINGS["good"]:
        player.call("parseTuning", text=edited(case["edits"], TUNINGS["base"]))
