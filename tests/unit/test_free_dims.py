"""Free dims: fixed by name or denotation, held between bounds, and what contradicts them."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import webrt
from webrt.cli.main import main
from webrt.cli.options import dim_or_bounds
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InputError
from webrt.planfile import dump

TEXT = (
    '<ir_version: 10, opset_import: ["" : 20]> '
    "g (float[n,3,h] x, float[n,3,4] z) => (float[n,3,k] y) { y = Concat<axis=2>(x, z) }"
)


def model(denotations: tuple[str, str, str] = ("DATA_BATCH", "DATA_CHANNEL", "")) -> onnx.ModelProto:
    made = onnx.parser.parse_model(TEXT)
    for dim, denotation in zip(made.graph.input[0].type.tensor_type.shape.dim, denotations, strict=True):
        dim.denotation = denotation
    return made


def test_by_denotation() -> None:
    plan = compile_model(model(), CompileOptions(denotations={"DATA_BATCH": 2, "DATA_CHANNEL": 3}))
    assert [v.shape[:2] for v in plan.inputs if v.shape] == [(2, 3), (2, 3)]
    options = webrt.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 5)
    with webrt.InferenceSession(model(), options) as session:
        assert session.get_inputs()[0].shape == [5, 3, "h"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (CompileOptions(denotations={"DATA_BATCH": 2}, free_dims={"n": 3}), "'n' is 3 by its name and 2 by its"),
        (CompileOptions(denotations={"DATA_CHANNEL": 4}), "'x' has a DATA_CHANNEL of 3, not 4"),
        (CompileOptions(denotations={"DATA_TIME": 4}), "'DATA_TIME'; there are DATA_BATCH, DATA_CHANNEL"),
        (CompileOptions(free_dims={"m": (1, 2)}), "no input has a dim named 'm'"),
    ],
)
def test_contradictions(options: CompileOptions, words: str) -> None:
    with pytest.raises(InputError, match=words):
        compile_model(model(), options)


def test_bounds_are_kept_at_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), "m.onnx")
    assert main(["compile", "m.onnx", "--dim", "h=2..5", "--dim", "n=1"]) == 0
    with webrt.InferenceSession("m.webrt") as session:
        z = np.zeros((1, 3, 4), np.float32)
        for h in (2, 5):
            assert session.run(None, {"x": np.ones((1, 3, h), np.float32), "z": z})[0].shape == (1, 3, h + 4)
        for h in (1, 6):
            with pytest.raises(InputError, match="'h' has to be from 2 to 5"):
                session.run(None, {"x": np.ones((1, 3, h), np.float32), "z": z})


@pytest.mark.parametrize("text", ["h=5..2", "h=..2", "h=1..", "h=a..b", "h=1...4", "..=3"])
def test_bounds_that_are_none(text: str, tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "webrt.cli", "compile", str(tmp_path / "m.onnx"), "--dim", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == (1 if text == "..=3" else 2)
    assert text.partition("=")[0] in done.stderr


@pytest.mark.parametrize("text", ["n=1..", "n=..8"])
def test_an_open_bound_is_quoted_whole(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=rf"'{re.escape(text)}' is not NAME=LOWEST\.\.HIGHEST"):
        dim_or_bounds(text)


BRANCHES = """<ir_version: 9, opset_import: ["" : 20]> g (float[n, m] x) => (float y)
<int64 i = {1}, int64 limit = {3}> {
    shape = Shape(x)
    size = Gather(shape, i)
    small = Less(size, limit)
    y = If(small) <
        then_branch = t () => (float[n, m] a) { a = Relu(x) },
        else_branch = e () => (float b) { b = ReduceSum<keepdims = 0>(x) }>
}"""


@pytest.mark.parametrize(
    ("bounds", "op"),
    [((1, 2), "Relu"), ((0, 2), "Relu"), ((3, 9), "ReduceSum"), ((2, 3), "If"), ((3, 10_000), "If"), (None, "If")],
)
def test_bounds_decide_a_branch_that_they_leave_one_outcome(bounds: tuple[int, int] | None, op: str) -> None:
    """What the branches make has different ranks, so an If of which both are possible stays on the CPU."""
    made = onnx.parser.parse_model(BRANCHES)
    plan = compile_model(made, CompileOptions(free_dims={} if bounds is None else {"m": bounds}))
    kept = [p for p in plan.placement if p.how != "folded"]
    assert [(p.op, p.provider) for p in kept if p.op in ("Relu", "ReduceSum", "If")] == [
        (op, "cpu" if op == "If" else "webgpu")
    ]
    if op == "If":
        (reason,) = [p.reason for p in kept if p.op == "If"]
        assert reason.endswith("which branch makes it depends on m: fix these sizes, or bound them"), reason
    else:
        with webrt.InferenceSession(dump(plan)) as session:
            assert bounds is not None
            for m in bounds:
                x = np.arange(2 * m, dtype=np.float32).reshape(2, m) - 1
                np.testing.assert_array_equal(
                    session.run(None, {"x": x})[0], np.maximum(x, 0) if op == "Relu" else x.sum()
                )
            with pytest.raises(webrt.WebrtError, match="'m' has to be from"):
                session.run(None, {"x": np.zeros((2, bounds[1] + 1), np.float32)})


def test_inspect_shows_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model().SerializeToString())
    plan = tmp_path / "net.webrt"
    assert main(["compile", str(path), "--dim", "n=1..512", "-o", str(plan), "--no-sandbox"]) == 0
    for arguments in ([str(path), "--dim", "n=1..512"], [str(plan)]):
        assert main(["inspect", *arguments]) == 0
        assert "free dims\n  h, n (1 to 512)\n" in capsys.readouterr().out
