"""Wrong arguments, bad files and interruptions: what the commands say, and that they leave nothing behind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.cli.models import fails, make_model
from webrt import plan as P
from webrt import planfile
from webrt.cli import main


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("compile", "no.onnx"), "no.onnx"),
        (("compile", "model.onnx", "-o", "nowhere/out.webrt"), "nowhere"),
        (("compile", "model.onnx", "-o", "model.onnx"), "the model itself"),
        (("compile", "model.onnx", "-o", "a.onnx", "--onnx", "b.onnx"), "two .onnx outputs"),
        (("compile", "model.onnx", "--target", "none"), "no target 'none'"),
        (("compile", "model.onnx", "--target", "model.onnx"), "model.onnx"),
        (("compile", "model.onnx", "--dim", "depth=3"), "'depth'"),
        (("compile", "model.onnx", "--dim", "batch=1", "--dim", "batch=2"), "--dim batch is given twice: 1 and 2"),
        (("compile", "model.onnx", "--dim", "batch=1", "--dim", "batch=1..2"), "batch is given twice: 1 and 1..2"),
        (("compile", "model.onnx", "--known", "x=1", "--known", "x=2"), "--known x is given twice: 1 and 2"),
        (("run", "model.onnx", "--dim", "batch=1", "--dim", "batch=2"), "--dim batch is given twice: 1 and 2"),
        (
            ("run", "model.onnx", "--input", "x=[[1, 2, 3, 4]]", "--input", "x=[[0, 0, 0, 0]]"),
            "--input x is given twice",
        ),
        (("compile", "model.onnx", "--known", "x=x.npy"), "x.npy: no such file"),
        (("compile", "model.onnx", "--known", "x=model.onnx"), "model.onnx holds no numpy arrays"),
        (("compile", "model.onnx", "--strict", "--provider", "cpu"), "CPU"),
        (("inspect", "no.webrt"), "no.webrt"),
        (("run", "no.onnx"), "no.onnx"),
        (("run", "model.onnx", "--output", "nowhere/y.npz"), "nowhere"),
        (("run", "model.onnx", "--output", "model.onnx"), "neither a folder"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    assert words in fails(capsys, *args)
    assert os.listdir() == ["model.onnx"]


@pytest.mark.parametrize(
    "args",
    [[], ["compile"], ["fly", "x"], ["compile", "m", "--dim", "batch"], ["compile", "m", "--dim", "batch=-1"],
     ["compile", "m", "--known", "=x"], ["compile", "m", "--level", "most"], ["run", "m", "--repeat", "0"],
     ["run", "m", "--quick"], ["bench", "--json"]],
)  # fmt: skip
def test_wrong_usage_is_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(args)
    told, hint = capsys.readouterr().err.splitlines()
    of = f"webrt {args[0]}" if args and args[0] != "fly" else "webrt"
    assert end.value.code == 2 and told.startswith(f"{of}: ") and hint == f"`{of} --help` shows the arguments."


@pytest.mark.parametrize("command", ["compile", "run", "inspect", "site", "sandbox-status"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0 and f"\n  webrt {command} " in capsys.readouterr().out


WHOLE = make_model().SerializeToString()


BAD_MODELS = {
    "zero": b"",
    "text": b"This is no model.\n",
    "random": np.random.default_rng(0).bytes(4096),
    "half": WHOLE[: len(WHOLE) // 2],
    "short": WHOLE[:-1],
    "no_graph": onnx.ModelProto(ir_version=9).SerializeToString(),
    "tensor": numpy_helper.from_array(np.zeros(3, np.float32)).SerializeToString(),
    "operator": make_model([helper.make_node("Fly", ["x"], ["y"], "bird")]).SerializeToString(),
    "domain": make_model([helper.make_node("Fly", ["x"], ["y"], domain="sky")], domains=("sky",)).SerializeToString(),
    "opset": make_model(opset=-1).SerializeToString(),
    "new_opset": make_model(opset=9999).SerializeToString(),
}


@pytest.mark.parametrize("command", ["compile", "inspect", "run"])
@pytest.mark.parametrize("kind", list(BAD_MODELS))
def test_bad_models_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.onnx").write_bytes(BAD_MODELS[kind])
    more = ["--onnx", "out.onnx"] if command == "compile" else []
    line = fails(capsys, command, "bad.onnx", *more)
    assert "bad.onnx" in line and "bad.onnx: the model " not in line
    assert {"operator": "Fly", "domain": "sky", "opset": "-1", "new_opset": "9999"}.get(kind, "") in line
    assert os.listdir() == ["bad.onnx"]


def test_plan_cut_short_anywhere_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = plan.read_bytes()
    offsets = np.unique(np.concatenate([np.arange(12), np.linspace(12, len(whole) - 1, 38).astype(int)]))
    assert len(offsets) == 50
    for offset in offsets:
        Path("cut.webrt").write_bytes(whole[:offset])
        assert "cut.webrt" in fails(capsys, "inspect", "cut.webrt"), offset
    assert "cut.webrt" in fails(capsys, "run", "cut.webrt")


def test_plan_of_a_newer_version_is_refused(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = planfile.load(plan)
    with monkeypatch.context() as patch:
        patch.setattr(P, "VERSION", 7)
        planfile.save(loaded, "new.webrt")
    for command in ("inspect", "run"):
        assert "version 7, made by a newer webrt" in fails(capsys, command, "new.webrt")


@pytest.mark.parametrize(
    ("where", "args", "words"),
    [
        ("webrt.sandbox.compile", ["compile", "model.onnx", "--sandbox"], "interrupted; nothing was written"),
        ("webrt.compiler.compile.compile_model", ["compile", "model.onnx", "--no-sandbox"], "; nothing was written"),
        ("webrt.cli.compile.save", ["compile", "model.onnx", "--no-sandbox"], "; model.webrt may be missing"),
        ("webrt.inference.InferenceSession.run", ["run", "model.onnx"], "interrupted; nothing was written"),
        ("numpy.save", ["run", "model.onnx", "--output", "out"], "; files of out may be missing"),
    ],
)
def test_an_interruption_says_what_was_written(
    model: Path, where: str, args: list[str], words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    assert main(args) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"webrt {args[0]}: interrupted") and words in last
    assert not [p for p in Path().rglob("*") if p.is_file() and p.name != "model.onnx"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["compile", "model.onnx", "-o", "m.txt"], "cannot write m.txt: a plan's name ends in .webrt, an optimised"),
        (["compile", "model.onnx", "-o", "m"], "cannot write m: a plan's name ends in .webrt"),
        (["compile", "model.onnx", "--onnx", "m.webrt"], "cannot write m.webrt: .* an optimised model's in .onnx"),
        (["run", "model.onnx", "--output", "y.npy"], "cannot write y.npy: --output takes a folder"),
    ],
)
def test_names_of_outputs_say_what_they_are(
    model: Path, args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(words, fails(capsys, *args))
    assert os.listdir() == ["model.onnx"]
