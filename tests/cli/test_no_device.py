"""The commands that need a device, on a machine that has none: what they say, before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuned import two_ways
from webrt.cli.main import main
from webrt.errors import NoAdapter
from webrt.planfile import save
from webrt.runtime import devices

INSTALL = "the package wgpu is not installed; run: pip install 'webrt[native]'"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan with kernels, where wgpu is not installed."""

    def refuse(**options: Any) -> None:
        raise NoAdapter(INSTALL)

    monkeypatch.setattr(devices, "NativeDevice", refuse)
    monkeypatch.setattr(devices, "_open", {})
    path = tmp_path / "plan.webrt"
    save(two_ways(), path)
    return path


@pytest.mark.parametrize("command", ["run", "bench", "profile", "tune"])
def test_a_plan_needs_a_device(
    command: str, plan: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main([command, str(plan)]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert "WebGPU device" in told and INSTALL in told
    assert not caplog.records


def test_tuning_a_model_needs_a_device(
    plan: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["tune", str(plan.with_suffix(".onnx"))]) == 1
    told = capsys.readouterr().err
    assert told == f"webrt tune: tuning measures a WebGPU device, and there is none here: {INSTALL}\n"
    assert not caplog.records
