"""`webrt run` and `webrt bench`: values, made-up inputs, files of outputs, and what is told of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from tests.cli.models import fails, make_model
from webrt.cli import feeds, main
from webrt.cli.run import describe, file_names
from webrt.errors import InputError, ShapeError, WebrtError
from webrt.inference import InferenceSession


def test_run_gives_the_right_values(model: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.save("x.npy", x)
    np.savez("all.npz", x=x)
    w = numpy_helper.to_array(make_model().graph.initializer[0])
    for path in (model, plan):
        for given in (["x=x.npy"], ["x=all.npz"], ["all.npz"], [f"x={json.dumps(x.tolist())}"]):
            assert main(["run", str(path), "--input", *given, "--output", "y.npz", "--repeat", "3"]) == 0
            np.testing.assert_allclose(np.load("y.npz")["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
    out = capsys.readouterr().out
    for words in ("adapter ", "placement  2 nodes: 2 on WebGPU", "y: float32[5, 3]  min", "first run", "later runs"):
        assert words in out, words


def test_run_makes_inputs_up_and_writes_a_folder(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "model.onnx", "--dim", "batch=3", "--random-seed", "7", "--output", "out"]) == 0
    assert "x: random float32[3, 4], seed 7" in capsys.readouterr().out
    assert os.listdir("out") == ["y.npy"] and np.load("out/y.npy").shape == (3, 3)


def test_run_on_the_cpu_provider(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "model.onnx", "--provider", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "0 on WebGPU, 2 on the CPU" in out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("z=x.npy", "names no input; the inputs are x"),
        ("x=[1, 2", "'x'"),
        ("x=[[1, 2, 3]]", "'x'"),
        ("x=none.npy", "none.npy"),
        ("none.npz", "none.npz"),
        ("x=wide.npy", "float64"),
    ],
)
def test_bad_feeds_are_named(model: Path, capsys: pytest.CaptureFixture[str], given: str, words: str) -> None:
    np.save("wide.npy", np.ones((2, 4)))
    capsys.readouterr()
    assert main(["run", "model.onnx", "--input", given]) == 1
    err = capsys.readouterr().err.splitlines()
    assert words in err[-1] and "Traceback" not in err


def test_run_refuses_a_dim_that_no_input_has(model: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (model, plan):
        for given in ([], ["--input", "x=[[1, 2, 3, 4]]"]):
            line = fails(capsys, "run", str(path), "--dim", "zz=1", *given)
            assert "'zz'" in line and "the free dims are batch" in line


@pytest.mark.parametrize("kind", [InputError, ShapeError])
def test_run_says_what_was_made_up_where_shapes_do_not_fit(
    model: Path, kind: type[WebrtError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise kind("3 rows do not fit")

    monkeypatch.setattr(InferenceSession, "run", refuse)
    made_up = "3 rows do not fit (made up here: x: random float32[3, 4], seed 0: give --input or --dim)"
    assert made_up in fails(capsys, "run", "model.onnx", "--dim", "batch=3")
    assert "made up" not in fails(capsys, "run", "model.onnx", "--input", "x=[[1, 2, 3, 4]]")


def test_sizes_that_were_made_up_are_told(model: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "bench"):
        assert main([command, "model.webrt", "--repeat", "1"]) == 0
        assert "made-up sizes batch=1; choose others with --dim NAME=SIZE" in capsys.readouterr().out
        assert main([command, "model.webrt", "--repeat", "1", "--dim", "batch=1"]) == 0
        assert "--dim" not in capsys.readouterr().out


def test_bench_tells_what_failed_after_the_rows_of_the_others(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.onnx").write_bytes(b"no model")
    given = ["bench", "none.onnx", "model.onnx", "bad.onnx", "--provider", "cpu", "--repeat", "1"]
    assert main(given) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("model.onnx")
    first, last = [line for line in err.splitlines() if not line.endswith("…")]
    assert first.startswith("webrt bench: ") and "none.onnx" in first and "bad.onnx" in last
    assert main([*given, "--json"]) == 1
    assert [row["model"] for row in json.loads(capsys.readouterr().out)] == ["model.onnx"]


class Argument:
    def __init__(self, name: str, type: str, shape: list[int | str | None]) -> None:
        self.name, self.type, self.shape = name, type, shape


def test_made_up_inputs_fit_names_and_types() -> None:
    inputs = [
        Argument("image", "tensor(float)", ["n", 3, "h", "w"]),
        Argument("ids", "tensor(int64)", ["n", "length"]),
        Argument("mask", "tensor(bool)", ["n", "length"]),
        Argument("half", "tensor(float16)", [None]),
        Argument("words", "tensor(string)", [2]),
    ]
    made, notes = feeds.make_feeds(inputs, [], {"length": 5}, 0)
    assert {k: (str(v.dtype), v.shape) for k, v in made.items()} == {
        "image": ("float32", (1, 3, 224, 224)), "ids": ("int64", (1, 5)), "mask": ("bool", (1, 5)),
        "half": ("float16", (1,)), "words": ("object", (2,)),
    }  # fmt: skip
    assert notes[5:] == ["made-up sizes n=1, h=224, w=224, half.0=1; choose others with --dim NAME=SIZE"]
    again, _ = feeds.make_feeds(inputs, [], {"length": 5}, 0)
    assert all(np.array_equal(made[k], again[k]) for k in made)
    one, _ = feeds.make_feeds([Argument("half", "tensor(float16)", [None])], [], {"half.0": 3}, 0)
    assert one["half"].shape == (3,)
    with pytest.raises(InputError, match=r"seq\(tensor"):
        feeds.make_feeds([Argument("a", "seq(tensor(float))", [])], [], {}, 0)


def test_output_names_become_safe_files() -> None:
    assert file_names(["a", "a", "../../etc/x", "", ".hidden", "p/q", "ü"]) == [
        "a.npy", "a.1.npy", "_.._etc_x.npy", "output.npy", "hidden.npy", "p_q.npy", "_.npy",
    ]  # fmt: skip
    assert file_names(["a?", "a_.2", "a/"]) == ["a_.npy", "a_.2.npy", "a_.1.npy"]
    assert file_names(["b.1", "b", "b!", "b"]) == ["b.1.npy", "b.npy", "b_.npy", "b.2.npy"]
    assert file_names(["x" * 100 + "y", "x" * 101])[1] == "x" * 100 + ".1.npy"
    assert describe("e", np.zeros((0, 3), np.float32)) == "e: float32[0, 3]"
    assert describe("s", [1, 2]) == "s: list of 2"
