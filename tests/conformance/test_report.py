"""The committed counts and the page made from them agree with expected.toml and with each other."""

from __future__ import annotations

from tests.conformance import cases as C
from tests.conformance import report


def test_the_page_is_what_the_counts_say() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.render(report.load()), "run `make conformance`"


def test_the_counts_are_of_every_case() -> None:
    data = report.load()
    runnable = {n for n in C.cases() if n not in C.expected()["fails"]}
    assert set(data["native"]) == runnable
    assert set(data["browser"]) == {n for n in runnable if C.expected_kind(n) != "cpu"}


def test_the_counts_agree_with_expected() -> None:
    for device, cases in report.load().items():
        for name, counts in cases.items():
            assert counts["kind"] == C.expected_kind(name), f"{device}: {name}; run `make conformance`"
            if counts["kind"] == "webgpu":
                assert counts["dispatches"] + counts["copies"] > 0, f"{device}: {name}"


def test_native_and_browser_run_the_same_cases_on_webgpu() -> None:
    data = report.load()
    wholly = {d: {n for n, c in cases.items() if c["kind"] == "webgpu"} for d, cases in data.items()}
    assert wholly["native"] == wholly["browser"]
    assert len(wholly["native"]) >= 700
