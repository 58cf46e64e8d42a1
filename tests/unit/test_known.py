"""Inputs that were fixed when the plan was compiled: another feed is refused, an equal one and none are fine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.kernels.harness import device
from webrt import planfile
from webrt.cli import main
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InputError, PlanError
from webrt.host import CpuProvider
from webrt.inference import InferenceSession
from webrt.options import SessionOptions
from webrt.runtime.null import NullDevice
from webrt.runtime.session import Session
from webrt.validate import validate

X = np.array([1, 2], np.float32)


def scaled(dtype: str = "int64", shape: str = "") -> onnx.ModelProto:
    """y = x · the sum of k, and z = k."""
    kind = {"float32": "float"}.get(dtype, dtype)
    text = f"g (float[n] x, {kind}{shape} k) => (float[n] y, {kind}{shape} z) {{ z = Identity(k)"
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> {text} f = Cast<to=1>(k) s = ReduceSum<keepdims=0>(f)'
        " y = Mul(x, s) }"
    )


def session(known: Any, dtype: str = "int64", shape: str = "") -> Session:
    array = np.array(known, object if dtype == "string" else dtype)
    options = CompileOptions(providers=("cpu",), known_inputs={"k": array})
    return Session(compile_model(scaled(dtype, shape), options), NullDevice(), CpuProvider())


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "wrong", "words"),
    [
        ("int32", "", 3, 2.5, "input 'k' is a float; int32 is expected"),
        ("uint8", "[2]", [1, 2], [1, 256], "input 'k': the list does not convert to uint8"),
        ("float32", "", 3, "3", "input 'k' is a str; float32 is expected"),
        ("bool", "", True, 1, "input 'k' is a int; bool is expected"),
        ("string", "", "2", 2, "input 'k' is a int; string is expected"),
    ],
)  # fmt: skip
def test_python_values_become_arrays_as_in_numpy(dtype: str, shape: str, value: Any, wrong: Any, words: str) -> None:
    """As known values and as feeds."""
    model = scaled(dtype, shape)
    for bad in (
        lambda: CompileOptions(providers=("cpu",), known_inputs={"k": wrong}),
        lambda: CompileOptions(providers=("cpu",)),
    ):
        with (
            pytest.raises(InputError, match=words),
            Session(compile_model(model, bad()), NullDevice(), CpuProvider()) as opened,
        ):
            opened.run(None, {"x": X, "k": wrong})
    made = compile_model(model, CompileOptions(providers=("cpu",), known_inputs={"k": value}))
    free = compile_model(model, CompileOptions(providers=("cpu",)))
    for plan in (made, free):
        with Session(plan, NullDevice(), CpuProvider()) as opened:
            y, z = opened.run(None, {"x": X, "k": value})
        np.testing.assert_array_equal(z, np.array(value))
        np.testing.assert_array_equal(y, X * np.sum(np.array(value, np.float32)))


@pytest.mark.parametrize(
    ("dtype", "shape", "known", "other", "words"),
    [
        ("int64", "", 2, 5, "'k' was fixed to 2 when the plan was compiled; 5 was given: compile it again without "
         "--known k, or feed 2"),
        ("int64", "", 2, 2 + 2**32, "; 4294967298 was given"),
        ("int32", "[2]", [1, 2], [2, 1], r"fixed to \[1, 2\] when .*; \[2, 1\] was given.* or feed \[1, 2\]"),
        ("bool", "", True, False, "fixed to true when .*; false was given"),
        ("float32", "", 0.5, 0.25, "fixed to 0.5 when .*; another value was given.* or feed 0.5"),
        ("int8", "[m]", [7] * 9, [7] * 8 + [8], "'k' was fixed when .*; another value was given.*, or feed the same"),
        ("int64", "[m]", [7] * 999, [7] * 998 + [8], "'k' was fixed when"),
        ("string", "", "2", "3", "'k' was fixed when"),
    ],
)  # fmt: skip
def test_another_value_is_refused(dtype: str, shape: str, known: Any, other: Any, words: str) -> None:
    as_array = lambda value: np.array(value, object if dtype == "string" else dtype)  # noqa: E731
    with session(known, dtype, shape) as s:
        with pytest.raises(InputError, match=words):
            s.run(None, {"x": X, "k": as_array(other)})
        for feeds in ({"x": X, "k": as_array(known)}, {"x": X}):
            y, z = s.run(None, feeds)
            np.testing.assert_array_equal(y, X * np.sum(as_array(known).astype(np.float32), dtype=np.float32))
            assert z.tolist() == as_array(known).tolist()


def test_a_session_of_a_model_takes_any_value() -> None:
    """Where elements decide shapes it compiles for each."""
    text = "g (float[n] x, int64[1] k) => (float[m] y) { s = Mul(k, k) y = Tile(x, s) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    with InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]) as s:
        for k in (1, 2, 1, 3):
            assert s.run(None, {"x": X, "k": np.array([k])})[0].shape == (2 * k * k,)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(scaled(), "k.onnx")
    assert main(["compile", "k.onnx", "--known", "k=2"]) == 0
    run = ["run", "k.webrt", "--input", "x=[1, 2]"]
    assert main([*run, "--input", "k=5"]) == 1
    assert "'k' was fixed to 2" in capsys.readouterr().err
    assert main([*run, "--input", "k=2"]) == 0 and main(run) == 0
    capsys.readouterr()
    assert main(["inspect", "k.webrt"]) == 0 and "k: int64[] (fixed to 2)" in capsys.readouterr().out
    assert main(["inspect", "k.webrt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known"] == {"k": "2"}


@pytest.mark.parametrize("sandbox", ["--sandbox", "--no-sandbox"])
@pytest.mark.parametrize(
    ("dtype", "shape", "text", "told"),
    [
        ("int32", "", "3", "3"),
        ("uint8", "[2]", "[1, 255]", "[1, 255]"),
        ("float16", "", "2", "2.0"),
        ("bool", "", "true", "true"),
    ],
)
def test_json_of_the_command_line_has_the_inputs_type(
    sandbox: str, dtype: str, shape: str, text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(scaled(dtype, shape), "k.onnx")
    assert main(["compile", "k.onnx", sandbox, "--known", f"k={text}"]) == 0
    plan = planfile.load("k.webrt")
    assert plan.meta["known"]["k"]["text"] == told
    with Session(plan, NullDevice() if not plan.kernels else device(), CpuProvider()) as opened:
        (z,) = opened.run(["z"], {"x": X})
    assert str(z.dtype) == dtype and z.tolist() == json.loads(text)


@pytest.mark.parametrize(
    ("dtype", "text", "words"),
    [
        ("int32", "2.5", "input 'k' is a float; int32 is expected"),
        ("uint8", "256", "input 'k': the int does not convert to uint8"),
        ("float32", "1e300", "input 'k': the float does not convert to float32"),
        ("float32", '"a"', "input 'k' is a str; float32 is expected"),
    ],
)
def test_json_that_is_not_of_the_inputs_type(
    dtype: str,
    text: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(scaled(dtype), "k.onnx")
    for sandbox in ("--sandbox", "--no-sandbox"):
        assert main(["compile", "k.onnx", sandbox, "--known", f"k={text}"]) == 1
        assert words in capsys.readouterr().err


def test_a_misspelt_config_entry_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    options = SessionOptions()
    for key in ("session.run_timeuot", "session.disable_cpu_ep_fallback", "session.set_denormal_as_zero", "mine.key"):
        options.add_session_config_entry(key, "1")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
    InferenceSession(scaled().SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [r.message for r in caplog.records if "config entry" in r.message] == [
        "there is no session config entry 'session.run_timeuot'; it is ignored: did you mean 'session.run_timeout'?"
    ]
    options.log_severity_level = 4
    caplog.clear()
    InferenceSession(scaled().SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert not caplog.records


def test_a_known_value_of_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="the known 'zz' is neither .*; the inputs are x, k$"):
        compile_model(scaled(), CompileOptions(known_inputs={"zz": np.array(3)}))
    monkeypatch.chdir(tmp_path)
    onnx.save(scaled(), "k.onnx")
    assert main(["compile", "k.onnx", "--known", "zz=3"]) == 1
    assert "the inputs are x, k" in capsys.readouterr().err


@pytest.mark.parametrize("known", [[], {"k": {}}, {"k": {"text": 2, "bits": ""}}, {"q": {"text": "", "bits": ""}}])
def test_damaged_entries_are_a_plan_error(known: Any) -> None:
    with session(2) as s:
        plan = s.plan
    data = planfile.dump(plan)
    assert planfile.load(data).meta["known"]["k"]["text"] == "2"
    plan.meta["known"] = known  # type: ignore[index]
    with pytest.raises(PlanError, match="known input"):
        validate(planfile.load(planfile.dump(plan)))
