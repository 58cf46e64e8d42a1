"""Kernels that the device refuses leave their place to the next alternative."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.harness import device
from tests.textured import expected, refused_plan
from webrt.errors import KernelError
from webrt.inference import InferenceSession
from webrt.options import SessionOptions
from webrt.planfile import dump
from webrt.runtime.session import Session
from webrt.runtime.tuning import empty

X = np.arange(6, dtype=np.float32)


def answers(session: Session, x: np.ndarray) -> np.ndarray:
    y: np.ndarray = session.run(["y"], {"x": x})[0]
    return y


def test_the_next_alternative_runs_and_a_warning_names_the_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "webrt"), Session(refused_plan([1]), device()) as session:
        np.testing.assert_array_equal(answers(session, X), expected(X)[0])
    (line,) = [r.getMessage() for r in caplog.records]
    assert line.startswith("the kernel 'wrong' of Add 'sum' is left out: the device refused it: ")
    assert "nowhere" in line and "\n" not in line


@pytest.mark.parametrize(("severity", "warnings"), [(2, 2), (3, 0)])
def test_warnings_follow_the_severity_of_the_session(
    severity: int, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a kernel that is refused and a tuning that is damaged."""
    plan = replace(refused_plan([1]), tuning=({**empty(device()).to_json(), "entries": 3},))
    settings = SessionOptions()
    settings.log_severity_level = severity
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "webrt"):
        tuned = [("WebGpuExecutionProvider", {"tuning_file": tmp_path / "damaged.json"})]
        with InferenceSession(dump(refused_plan([1])), settings, providers=tuned) as session:
            assert "y" in [o.name for o in session.get_outputs()]
        assert len(caplog.records) == warnings
        caplog.clear()
        with InferenceSession(dump(plan), settings, providers=["WebGpuExecutionProvider"]):
            assert len(caplog.records) == warnings


def test_constants_follow_to_where_the_next_alternative_reads_them() -> None:
    before = device().counters.buffers
    with Session(refused_plan([2]), device()) as session:
        np.testing.assert_array_equal(answers(session, X), expected(X)[0] + 100)
    assert device().counters.buffers == before


def test_a_kernel_that_only_some_sizes_need_is_refused_when_they_come(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "webrt"), Session(refused_plan([1], late=True), device()) as session:
        for n in (6, 5, 6, 5):
            x = X[:n]
            want = expected(x)[0] - (100 if n == 5 else 0)
            np.testing.assert_array_equal(answers(session, x), want)
    assert len(caplog.records) <= 1


def test_where_none_is_left_the_error_names_the_node() -> None:
    before = device().counters.buffers
    with pytest.raises(KernelError, match=r"^Add, node 'sum': the device refused the kernel 'wrong'"):
        Session(refused_plan([]), device())
    device().read([])
    assert device().counters.buffers == before


def test_a_kernel_of_another_target_does_not_stand_in() -> None:
    with pytest.raises(KernelError, match="the device refused the kernel 'wrong'"):
        Session(refused_plan([5]), device())
