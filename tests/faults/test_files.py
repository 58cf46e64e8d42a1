"""Files that are no files, writing that is interrupted, and calls that contradict themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webrt
from tests.faults.models import CHAIN, HEAD, chain_feeds, model, opened
from webrt import sandbox
from webrt.cli import main
from webrt.compiler.dump import VARIABLE
from webrt.errors import InputError, InvalidModel, PlacementError, PlanError
from webrt.files import atomic_file
from webrt.options import CPU, WEBGPU
from webrt.planfile import dump

pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@pipes
def test_a_pipe_is_no_model_and_nobody_waits_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.onnx", "a.webrt"):
        os.mkfifo(tmp_path / name)
    for call in (webrt.InferenceSession, webrt.compile_model, sandbox.compile):
        with pytest.raises(InvalidModel, match=r"a\.onnx is no plain file"):
            call(tmp_path / "a.onnx")
    for call in (webrt.InferenceSession, webrt.load_plan):
        with pytest.raises(PlanError, match=r"a\.webrt is no plain file"):
            call(tmp_path / "a.webrt")
    for command in (["compile"], ["compile", "--no-sandbox"], ["run"], ["inspect"]):
        assert main([*command, str(tmp_path / "a.onnx")]) == 1
        assert "is no plain file (but a pipe, a socket or a device)" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "a.webrt"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, SystemExit])
def test_interrupted_writing_leaves_what_was_there(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")
    with pytest.raises(failure), atomic_file(path) as out:
        out.write(b"half")
        out.flush()
        raise failure
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("what", ["plan", "model", "dump"])
def test_an_interrupted_compilation_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    options = webrt.SessionOptions()
    options.add_session_config_entry("session.compile_only", "1")
    if what == "plan":
        options.add_session_config_entry("session.plan_filepath", str(tmp_path / "a.webrt"))
    elif what == "model":
        options.optimized_model_filepath = tmp_path / "a.onnx"
    else:
        monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        webrt.InferenceSession(model(CHAIN), options)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_dim_that_contradicts_a_given_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEAD + "(float[batch, 4] x, float[batch, 4] z) => (float[batch, 4] y) { y = Add(x, z) }"
    Path("m.onnx").write_bytes(model(text))
    np.save("x.npy", np.zeros((3, 4), np.float32))
    assert main(["run", "m.onnx", "--input", "x=x.npy", "--dim", "batch=2"]) == 1
    assert "--dim batch=2, but the given input 'x' has batch 3" in capsys.readouterr().err
    for more in ([], ["--dim", "batch=3"]):
        assert main(["run", "m.onnx", "--input", "x=x.npy", *more]) == 0
        assert "z: random float32[3, 4]" in capsys.readouterr().out


def test_damage_in_what_only_the_host_reads_is_found_when_the_session_is_made(tmp_path: Path) -> None:
    text = HEAD + "(double[3] x) => (double[3] y) <double[3] w = {1.0, 2.0, 3.0}> { y = Mul(x, w) }"
    plan = webrt.compile_model(model(text))
    whole = dump(plan)
    at = whole.rindex(np.array([1, 2, 3], np.float64).tobytes())
    for bad in (at, at + 20):
        damaged = bytearray(whole)
        damaged[bad] ^= 1
        (tmp_path / "a.webrt").write_bytes(damaged)
        for source in (bytes(damaged), tmp_path / "a.webrt"):
            with pytest.raises(PlanError, match="damaged, or was changed since it was opened: constant"):
                webrt.InferenceSession(source, None, [WEBGPU, CPU])
    with webrt.InferenceSession(whole, None, [WEBGPU, CPU]) as session:
        assert session.run(None, {"x": np.ones(3)})[0].tolist() == [1, 2, 3]


def test_places_of_outputs_that_do_not_exist() -> None:
    with opened(model(CHAIN)) as session:
        with pytest.raises(InputError, match="no output 'zz'; the outputs are y"):
            session.run(None, chain_feeds(1), output_location={"zz": "device"})
        (y,) = session.run(None, chain_feeds(1), output_location={"y": "device"})
        y.close()


def test_one_node_is_told_as_one() -> None:
    text = HEAD + "(double[N] x) => (double[N] y) { y = Sin(x) }"
    strict = webrt.SessionOptions()
    strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(PlacementError, match="^1 node would run on the CPU"):
        webrt.InferenceSession(model(text), strict, [WEBGPU, CPU])
    plan = webrt.compile_model(model(text))
    with pytest.raises(PlacementError, match="^the plan has 1 node for the CPU"):
        webrt.InferenceSession(dump(plan), strict, [WEBGPU, CPU])
