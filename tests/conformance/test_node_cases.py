"""Every node case of onnx.backend.test on the device-free and on the native device, against expected.toml."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import cases as C
from tests.conformance.run import run_native, run_null

NAMES = sorted(C.cases())
RecordProperty = Callable[[str, object], None]


def test_all_cases_are_there() -> None:
    assert len(NAMES) >= 1884


def test_expected_lists_only_known_cases_once() -> None:
    for key, entries in C.expected().items():
        assert not set(entries) - set(NAMES), f"expected.toml: {key} lists cases that do not exist"
    assert not set(C.expected()["cpu"]) & set(C.expected()["metadata"])


def test_the_issue_allows_no_more_failures() -> None:
    assert len(C.expected()["fails"]) + len(C.expected()["random"]) <= 60


def test_most_cases_run_wholly_on_webgpu() -> None:
    not_there = {*C.expected()["cpu"], *C.expected()["metadata"], *C.expected()["fails"]}
    assert len(set(NAMES) - not_there) >= 700


@pytest.mark.parametrize("name", NAMES)
def test_null(name: str) -> None:
    """The plan is valid, its sizes evaluate, and every node is placed as expected.toml says."""
    case = C.cases()[name]
    if name in C.expected()["fails"]:
        with pytest.raises(Exception):  # noqa: B017 (listed with its reason; the kind is the reason's)
            C.compare(case, run_native(case).outputs)
        return
    kinds = {"metadata": ("metadata", "webgpu")}  # a plan's steps may turn out empty once the sizes are known
    expected = C.expected_kind(name)
    assert run_null(case) in kinds.get(expected, (expected,)), "update expected.toml with tests.conformance.update"


@pytest.mark.parametrize("name", [n for n in NAMES if n not in C.expected()["fails"]])
def test_native(name: str, record_property: RecordProperty) -> None:
    """The values of a native run, and that what is wholly on WebGPU really dispatched or copied there."""
    case = C.cases()[name]
    result = run_native(case)
    assert result.kind == C.expected_kind(name)
    counts = {"dispatches": result.dispatches, "copies": result.copies, "host_nodes": result.host_nodes}
    record_property("conformance", {"device": "native", "case": name, "op": case.op, "kind": result.kind, **counts})
    if result.kind == "webgpu":
        assert result.dispatches + result.copies > 0
        assert result.host_nodes == 0
    C.compare(case, result.outputs)
