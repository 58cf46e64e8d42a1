"""`webrt tune`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.harness import device
from tests.plans import TUNINGS
from tests.textured import expected
from tests.tuned import FIRST, SECOND, Clock, two_ways
from webrt.cli.main import main
from webrt.inference import InferenceSession
from webrt.planfile import load, save
from webrt.runtime import tuning as U
from webrt.runtime.session import Session

X = np.arange(6, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan, on a machine whose adapter is faster with SECOND."""
    monkeypatch.setattr(U, "on_device", Clock(second=0.25))
    path = tmp_path / "two_ways.webrt"
    save(two_ways(), path)
    return path


def tune(*args: object) -> int:
    return main(["tune", *map(str, args), "--dim", "n=6", "--repeat", "1", "--budget", "600"])


def test_a_file_beside_the_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(model) == 0
    file = model.with_suffix(".tuning.json")
    out = capsys.readouterr().out
    assert " ms before, " in out
    assert "measured   1 group of dispatches in" in out and "1 of them get another kernel than the default" in out
    assert "1000000.0    250000.0   4.00      1  a dispatch step" in out and f"wrote      {file}" in out
    assert [e.names for e in U.loads(file.read_text(encoding="utf-8")).entries.values()] == [(FIRST, SECOND)]
    assert tune(model) == 0
    again = capsys.readouterr().out
    assert "measured   0 groups of dispatches in 0.0 s; 0 of them" in again and " ms before, " in again
    with InferenceSession(model, providers=[("WebGpuExecutionProvider", {"tuning_file": file})]) as session:
        np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], expected(X)[0] + 100)


def test_nothing_is_compared_where_no_kernel_changes(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(U, "on_device", Clock(second=2.0))
    assert tune(model) == 0
    out = capsys.readouterr().out
    assert "0 of them get another kernel" in out and "as before: no kernel changed" in out and "ms before" not in out


def test_a_plan_carries_it_beside_those_of_other_adapters(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = load(model)
    save(type(plan)(**{**plan.__dict__, "tuning": (TUNINGS["base"],)}), model)
    assert tune(model, "--into", model, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["wrote"] == [str(model)] and not model.with_suffix(".tuning.json").exists()
    (group,) = made["groups"]
    assert group["kernels"] == [FIRST, SECOND] and group["us"] == [1e6, 25e4] and group["chosen"] == 1
    carried = load(model)
    assert [t["adapter"] for t in carried.tuning] == [TUNINGS["base"]["adapter"], device().adapter]
    with Session(carried, device()) as session:
        np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], expected(X)[0] + 100)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--into", "none.webrt"], "--into none.webrt: there is no such plan; --into names an existing one"),
        (["--dim", "m=3"], "no input has a free dim 'm'"),
        (["-o", "."], "the tuning file . is a folder; name a file, such as tuning.json"),
    ],
)
def test_what_is_wrong_is_told(model: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(model), *args]) == 1
    assert message in capsys.readouterr().err
    assert not model.with_suffix(".tuning.json").exists()


def test_a_budget_is_a_time(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", str(model), "--budget", "0"])
    assert "'0' is not a number of seconds above 0" in capsys.readouterr().err


def test_a_model_without_a_device_step_has_nothing_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx

    path = tmp_path / "text.onnx"
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 20]> g (string[1] x) => (string[1] y)'
                                      " { y = Identity(x) }"), path)  # fmt: skip
    assert main(["tune", str(path), "--repeat", "1"]) == 0
    assert "measured   0 groups of dispatches" in capsys.readouterr().out
