"""A folder with a small model, and its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.models import make_model
from webrt.cli import main


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model().SerializeToString())
    return path


@pytest.fixture
def plan(model: Path) -> Path:
    assert main(["compile", str(model)]) == 0
    return model.with_suffix(".webrt")
