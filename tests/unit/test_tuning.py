"""Tuning: what is measured and chosen, the table and its file, and what becomes of bad ones."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import device
from tests.plans import TUNINGS, edited
from tests.textured import expected, refused_plan
from tests.tuned import FIRST, SECOND, Clock, hashes, two_ways
from webrt.buckets import bucket_of
from webrt.errors import InputError, PlanError
from webrt.inference import InferenceSession
from webrt.options import SessionOptions
from webrt.plan import Dispatch, Plan
from webrt.planfile import dump, load, save
from webrt.runtime import tuning as U
from webrt.runtime.session import Session
from webrt.runtime.tuning import Table, Tuning, empty

X = np.arange(6, dtype=np.float32)


def measuring(timer: Clock, **more: Any) -> Tuning:
    return Tuning(empty(device()), True, timer=timer, **{"clock": lambda: 0.0, **more})


def added(session: Session, n: int = 6) -> float:
    """What the kernel that ran added: 0 is FIRST, 100 is SECOND."""
    (y,) = session.run(["y"], {"x": X[:n]})
    (extra,) = set((y - expected(X[:n])[0]).tolist())
    return float(extra)


def table(plan: Plan, chosen: int) -> Table:
    """The table after a session of the plan."""
    tuning = measuring(Clock(first=1 + chosen, second=2 - chosen))
    with Session(plan, device(), tuning=tuning) as session:
        session.run(["y"], {"x": X})
    return tuning.table


def test_the_fastest_is_measured_once_and_taken() -> None:
    before, plan, clock = device().counters.buffers, two_ways(), Clock(second=0.5)
    tuning = measuring(clock)
    with Session(plan, device(), tuning=tuning) as session:
        assert added(session) == 100
        asked = len(clock.asked)
        assert tuning.measured == asked and set(clock.asked) == {FIRST, SECOND}
        assert added(session) == 100 and len(clock.asked) == asked
        session.run(["y"], {"x": X[:5]})
        assert len(clock.asked) == asked, "there is no choice where n is 5"
    ((key, entry),) = tuning.table.entries.items()
    assert key == (tuple(hashes(plan)), (1, 1, 1, 8)) and entry == ((FIRST, SECOND), hashes(plan)[1], (1e6, 5e5))
    device().read([])
    assert device().counters.buffers == before


@pytest.mark.parametrize("clock", ["CPU time", "timestamps", "the host's"])
def test_kernels_are_timed_on_the_device(clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them is faster is not told here."""
    if clock != "CPU time":
        monkeypatch.setattr(device(), "target", replace(device().target, kind="gpu"))
    if clock == "the host's":
        monkeypatch.setattr(device(), "stamps", lambda count: None)
    tuning = Tuning(empty(device()), True, clock=lambda: 0.0)
    with Session(two_ways(), device(), tuning=tuning) as session:
        assert added(session) in (0, 100)
    (entry,) = tuning.table.entries.values()
    assert entry.names == (FIRST, SECOND) and min(entry.us) > 0


def test_candidates_are_interleaved_and_far_ones_are_left_alone() -> None:
    clock = Clock(second=1.5)
    with Session(two_ways(), device(), tuning=measuring(clock)) as session:
        assert added(session) == 0
    assert clock.asked == [FIRST, SECOND] * 6
    clock = Clock(second=3.5)
    with Session(two_ways(), device(), tuning=measuring(clock)) as session:
        assert added(session) == 0
    assert clock.asked == [FIRST, SECOND] * 2 + [FIRST] * 4


def test_other_work_on_the_machine_is_no_reason_for_another() -> None:
    """Other work slows the default down at first, then most of the time: at best it is as fast."""

    class Busy(Clock):
        def __call__(self, *args: Any) -> list[float]:
            self.seconds[FIRST] = 1.0 if len(self.asked) > 8 else 50.0
            return super().__call__(*args)

    clock = Busy()
    with Session(two_ways(), device(), tuning=measuring(clock)) as session:
        assert added(session) == 0
    assert clock.asked == [FIRST, SECOND] * 6


@pytest.mark.parametrize(("second", "extra"), [(0.96, 0), (0.94, 100)])
def test_the_default_stays_where_another_is_hardly_faster(second: float, extra: float) -> None:
    with Session(two_ways(), device(), tuning=measuring(Clock(second=second))) as session:
        assert added(session) == extra


def test_the_budget_ends_it() -> None:
    now = iter(range(1000))
    tuning = measuring(Clock(second=0.5), budget=3.0, clock=lambda: float(next(now)))
    with Session(two_ways(), device(), tuning=tuning) as session:
        assert added(session) == 0 and tuning.measured < 4
        assert tuning.budget <= 0 and not tuning.table.entries
        assert added(session, 3) == 0 and tuning.measured < 4


def test_a_table_is_used_as_it_is_and_for_the_sizes_of_its_bucket() -> None:
    known = U.loads(table(two_ways(), 1).dumps())
    clock = Clock()
    with Session(two_ways(), device(), tuning=Tuning(known, timer=clock)) as session:
        assert [added(session, n) for n in (6, 1, 4, 6)] == [100, 0, 0, 100]
    assert not clock.asked


def test_a_choice_that_may_not_run_is_not_taken() -> None:
    """Its kernel is for other adapters, so that the alternatives here are others than those that were measured."""
    plan = two_ways()
    first, second = hashes(plan)
    known = table(plan, 1)
    ((_, bucket), entry) = next(iter(known.entries.items()))
    nowhere = plan.kernels[5].hash
    known.entries = {((nowhere, first, second), bucket): entry._replace(names=("", *entry.names), chosen=nowhere)}
    with Session(plan, device(), tuning=Tuning(known)) as session:
        assert added(session) == 0


def test_a_choice_of_more_groups_than_the_device_takes_is_not_taken() -> None:
    plan = two_ways()
    known = table(plan, 1)
    step = plan.steps[1]
    assert isinstance(step, Dispatch)
    second = (step.alternatives[2][0], (len(plan.dims),), 1, 1)
    changed = replace(step, alternatives=(*step.alternatives[:2], second))
    dims, steps = [*plan.dims, ["mul", [0], 20_000]], (plan.steps[0], changed, *plan.steps[2:])
    with Session(replace(plan, dims=dims, steps=steps), device(), tuning=Tuning(known)) as session:
        assert added(session) == 0


def test_sessions_share_a_table() -> None:
    """The second took what the first measured after the second was made: constants follow."""
    tuning = measuring(Clock(second=0.5))
    with Session(two_ways(), device(), tuning=tuning) as first, Session(two_ways(), device(), tuning=tuning) as second:
        assert [added(first), added(second)] == [100, 100]


def test_a_refused_candidate_leaves_its_place(caplog: pytest.LogCaptureFixture) -> None:
    plan = refused_plan([1, 2])
    step = plan.steps[1]
    assert isinstance(step, Dispatch)
    turned = replace(step, alternatives=step.alternatives[1:] + step.alternatives[:1])
    plan = replace(plan, steps=(plan.steps[0], turned, *plan.steps[2:]))
    with caplog.at_level(logging.WARNING, "webrt"):
        tuning = measuring(Clock(second=0.5))
        with Session(plan, device(), tuning=tuning) as session:
            assert added(session) == 100
    assert [r.getMessage()[:29] for r in caplog.records] == ["the kernel 'wrong' of Add 'su"]
    assert len(tuning.table.entries) == 1


@pytest.mark.parametrize("case", TUNINGS["bad"], ids=[c["what"] for c in TUNINGS["bad"]])
def test_bad_tables_are_refused_by_name(case: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as e:
        U.loads(edited(case["edits"], TUNINGS["base"]))
    assert str(e.value) == f"the tuning is damaged: {case['message']}"


@pytest.mark.parametrize("case", TUNINGS["good"], ids=[c["what"] for c in TUNINGS["good"]])
def test_good_tables_are_accepted(case: dict[str, Any]) -> None:
    made = U.loads(edited(case["edits"], TUNINGS["base"]))
    assert U.loads(made.dumps()) == made


@pytest.mark.parametrize("text", TUNINGS["no_json"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(PlanError, match="it is no JSON"):
        U.loads(text)


def test_a_plan_carries_tables_for_several_adapters(caplog: pytest.LogCaptureFixture) -> None:
    plan = two_ways()
    mine, damaged = table(plan, 1).to_json(), {**table(plan, 1).to_json(), "entries": 3}
    carried = load(dump(replace(plan, tuning=(TUNINGS["base"], mine))))
    assert [t["adapter"] for t in carried.tuning] == [TUNINGS["base"]["adapter"], mine["adapter"]]
    with caplog.at_level(logging.WARNING, "webrt"):
        with Session(carried, device()) as session:
            assert added(session) == 100
        assert not caplog.records
        with Session(replace(plan, tuning=(damaged,)), device()) as session:
            assert added(session) == 0
    assert "the tuning in the plan is ignored: the tuning is damaged: its entries" in caplog.text


def opened(path: Path, **options: Any) -> InferenceSession:
    return InferenceSession(path, providers=[("WebGpuExecutionProvider", options)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "two_ways.webrt"
    save(two_ways(), path)
    return path


def extra(session: InferenceSession) -> float:
    (y,) = session.run(["y"], {"x": X})
    return float(y[0] - expected(X)[0][0])


def test_a_file_is_written_read_and_made_anew(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, file = Clock(second=0.5), tmp_path / "new" / "tuning.json"
    monkeypatch.setattr(U, "on_device", clock)
    for text, warning in ((None, ""), ("{", "no JSON"), (json.dumps(TUNINGS["base"]), "for another adapter: v, a, d")):
        caplog.clear()
        if text is not None:
            file.write_text(text, encoding="utf-8")
        asked = len(clock.asked)
        with (
            caplog.at_level(logging.WARNING, "webrt"),
            opened(model, tuning="1", tuning_file=file, tuning_budget="600") as session,
        ):
            assert extra(session) == 100
        assert len(clock.asked) > asked and warning in caplog.text and bool(caplog.records) == bool(warning)
        assert not warning or "it is measured anew" in caplog.text
        assert U.loads(file.read_text(encoding="utf-8")).adapter == device().adapter
    asked = len(clock.asked)
    for options in ({"tuning": "1"}, {}):
        with opened(model, tuning_file=str(file), **options) as session:
            assert extra(session) == 100
    assert len(clock.asked) == asked


def test_a_measurement_is_waited_for_as_a_run_is(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []

    class Waiting(Clock):
        def __call__(self, device: Any, works: Any, wait: Any, timeout: float | None) -> list[float]:
            waited.append(timeout)
            return super().__call__(device, works, wait, timeout)

    monkeypatch.setattr(U, "on_device", Waiting())
    options = SessionOptions()
    options.add_session_config_entry("session.run_timeout", "600")
    provider = ("WebGpuExecutionProvider", {"tuning": "1", "tuning_budget": 600})
    with InferenceSession(model, options, providers=[provider]) as session:
        extra(session)
    assert set(waited) == {600.0}


def test_wrong_options_are_told(model: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"tuning": "yes"}, 'tuning is "0" or "1", not \'yes\''),
        ({"tuning": "1", "tuning_budget": "-1"}, "tuning_budget is a number of seconds above 0, not '-1'"),
        ({"tuning": "1", "tuning_budget": float("nan")}, "tuning_budget is a number"),
        ({"tuning_file": 3}, "tuning_file is a path, not 3"),
        ({"tuning_file": tmp_path / "none.json"}, "there is no tuning file .*none.json; make one: webrt tune"),
        ({"tune": "1"}, "has no option 'tune'"),
    ):
        with pytest.raises(InputError, match=message):
            opened(model, **options)


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    tuning = measuring(Clock(second=0.5), path=tmp_path / "file" / "tuning.json")
    with caplog.at_level(logging.WARNING, "webrt"), Session(two_ways(), device(), tuning=tuning) as session:
        assert added(session) == 100
    assert "the tuning cannot be kept in" in caplog.text


def test_the_user_cache_is_a_file_of_the_adapter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = U.of_options(device(), {"tuning": "1", "tuning_file": U.USER_CACHE})
    assert made is not None and made.path is not None
    assert made.path.parent == tmp_path / "webrt" and made.path.suffix == ".json"


def test_buckets_are_powers_of_two() -> None:
    assert bucket_of([0, 1, 2, 3, 4, 5, 1000, 1 << 31, (1 << 31) + 1, -1]) == (
        0, 1, 2, 4, 4, 8, 1024, 1 << 31, 1 << 32, 1 << 32,
    )  # fmt: skip
