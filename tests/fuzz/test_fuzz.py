"""Hostile models and plans by number, a few thousand in the quick run; and what such cases found, one by one."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import judge
from tests.fuzz.__main__ import sharded
from tests.fuzz.twins import differences
from tests.web.driver import Player
from webrt.errors import SandboxError, WebrtError
from webrt.sandbox import Compiler, Limits

SEED = 5


@pytest.mark.parametrize("kind", ["models", "plans"])
def test_three_thousand(kind: str) -> None:
    outcome = sharded(kind, SEED, 0, 3000, 1)
    assert not outcome.findings, outcome.text(kind, SEED)
    assert sum(outcome.verdicts.values()) == 3000 and outcome.verdicts["plan"] > 300


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["models", "plans"])
def test_a_hundred_thousand(kind: str) -> None:
    """About 15 minutes for models and 4 for plans on two cores."""
    outcome = sharded(kind, SEED + 1, 0, 100_000, os.cpu_count() or 1)
    assert not outcome.findings, outcome.text(kind, SEED + 1)


@pytest.mark.xdist_group("chromium")
def test_the_player_refuses_the_same_plans(player: Player) -> None:
    assert differences(player, SEED, 0, 3000) == []


@pytest.mark.long
@pytest.mark.xdist_group("chromium")
@pytest.mark.timeout(3600)
def test_the_player_refuses_the_same_plans_of_a_hundred_thousand(player: Player) -> None:
    assert differences(player, SEED + 1, 0, 100_000) == []


def _same_when_confined(count: int, step: int) -> None:
    with Compiler(Limits(seconds=60), spares=1) as compiler:
        for number in range(0, count * step, step):
            data, options = judge.model_case(SEED, number)
            here = judge.compile_verdict(data, options)
            try:
                compiler.compile(data, judge.CompileOptions(**options))
                there = "plan"
            except SandboxError as e:
                raise AssertionError(f"--case models {SEED} {number}: {e}") from e
            except WebrtError as e:
                there = f"{type(e).__name__}: {e}"
            assert there == here, f"--case models {SEED} {number}"


def test_the_same_in_the_sandbox() -> None:
    _same_when_confined(8, 11)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_same_in_the_sandbox_for_two_hundred() -> None:
    _same_when_confined(200, 7)
