"""`webrt compile` with and without the sandbox, and `webrt sandbox-status`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.sandbox.test_compile import small
from webrt import sandbox
from webrt.cli import main
from webrt.confine import NAMES, Layer

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the layers exist on Linux only")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.onnx").write_bytes(small())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@LINUX
def test_confined_by_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "m.onnx", "-o", "a.webrt", "--onnx", "a.onnx"]) == 0
    assert "without a sandbox" not in capsys.readouterr().err
    assert main(["compile", "m.onnx", "-o", "b.webrt", "--onnx", "b.onnx", "--no-sandbox"]) == 0
    assert "has all the rights of this account" in capsys.readouterr().err
    for ending in ("webrt", "onnx"):
        assert (folder / f"a.{ending}").read_bytes() == (folder / f"b.{ending}").read_bytes()


@LINUX
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--memory-limit", "0.05"], "out of memory"),
        (["--time-limit", "0.1"], "out of time"),
        (["--require-sandbox", "--no-sandbox"], "contradict"),
    ],
)
def test_limits_and_contradictions(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], text: str
) -> None:
    with (folder / "m.onnx").open("ab") as f:
        f.truncate(64 << 20)  # more than the limit on memory; never parsed
    assert main(["compile", "m.onnx", *flags]) == 1
    assert text in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "much"])
def test_limits_that_are_none(folder: Path, value: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compile", "m.onnx", "--time-limit", value])
    assert end.value.code == 2


@LINUX
def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox-status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in told] == list(NAMES)
    assert main(["sandbox-status"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)


def test_status_of_an_incomplete_sandbox(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sandbox, "status", lambda: (Layer("seccomp", False, "not written for riscv64"),))
    assert main(["sandbox-status"]) == 0
    assert main(["sandbox-status", "--require-sandbox"]) == 1
    assert "MISSING  not written for riscv64" in capsys.readouterr().out
