"""What passes did, for people: records, files of WEBRT_DUMP, and `webrt inspect --passes`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import pytest

from tests.passes.harness import compiled, feeds_of, oracle, parse
from tests.tolerance import close
from webrt.cli.main import main
from webrt.compiler.options import PassRecord
from webrt.errors import PlanError
from webrt.planfile import dump


def small_model() -> onnx.ModelProto:
    return parse(
        "agraph (float[1,3,5,5] x) => (float[a,b,c,d] y) { c = Conv(x, w) m = Mul(c, k) i = Identity(m) y = Relu(i) }",
        {"w": np.ones((2, 3, 2, 2), np.float32), "k": np.float32(2)},
    )


def test_records() -> None:
    told: list[PassRecord] = []
    compiled(small_model(), passes=told.append)
    by_name = {p.name: p for p in reversed(told)}
    assert (by_name["remove_identities"].before, by_name["remove_identities"].after) == (4, 3)
    assert (by_name["fold_into_weights"].before, by_name["fold_into_weights"].after) == (3, 2)
    assert (by_name["fuse_epilogues"].before, by_name["fuse_epilogues"].after) == (2, 1)
    assert all(p.seconds >= 0 for p in told)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    plain = dump(compiled(model))
    monkeypatch.setenv("WEBRT_DUMP", str(tmp_path))
    plan = compiled(model)
    compiled(model)
    assert dump(plan) == plain
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]
    models = sorted((tmp_path / "0").glob("*.onnx"))
    assert [p.name for p in models] == ["000-remove_identities.onnx", "001-fold_into_weights.onnx"]
    feeds = feeds_of(model)
    for path in models:
        written = onnx.load(path)
        onnx.checker.check_model(written, full_check=True)
        close(oracle(written, feeds)[0], oracle(model, feeds)[0])
    assert {p.stem for p in (tmp_path / "0").glob("*.wgsl")} == {f"{k.name}-{k.hash}" for k in plan.kernels}
    assert json.loads((tmp_path / "0" / "plan.json").read_text())["params_size"] == plan.params_size
    (told,) = (tmp_path / "0").glob("*-fuse_epilogues.txt")
    assert "fused\tConv" in told.read_text()


def test_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WEBRT_DUMP", str(tmp_path / "file"))
    with pytest.raises(PlanError, match="WEBRT_DUMP: cannot make"):
        compiled(small_model())


def test_inspect_prints_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(small_model(), tmp_path / "m.onnx")
    assert main(["inspect", str(tmp_path / "m.onnx"), "--passes"]) == 0
    assert "fold_into_weights                    3 → 2" in capsys.readouterr().out


def test_the_sandbox_writes_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEBRT_DUMP", str(tmp_path / "dump"))
    path = tmp_path / "net.onnx"
    path.write_bytes(parse("agraph (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString())
    for arguments, heeded in (("--sandbox", False), ("--no-sandbox", True)):
        assert main(["compile", str(path), "-o", str(tmp_path / "net.webrt"), arguments]) == 0
        assert ("WEBRT_DUMP is not heeded" in capsys.readouterr().err) is not heeded
        assert (tmp_path / "dump").exists() is heeded
