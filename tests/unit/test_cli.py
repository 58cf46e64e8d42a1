"""The commands: what they write and print, how they fail on bad input, and that compiling loads no GPU library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.flow_cases import CASES
from webrt import dims as D
from webrt import plan as P
from webrt import planfile
from webrt.cli import feeds, main
from webrt.cli.options import read_known
from webrt.cli.run import describe, file_names
from webrt.cli.slot_bytes import slot_bytes
from webrt.errors import InputError, ShapeError, WebrtError
from webrt.inference import InferenceSession

FLOAT = TensorProto.FLOAT
N, M = D.var("n"), D.var("m")


def make_model(
    nodes: list[onnx.NodeProto] | None = None, opset: int = 20, domains: tuple[str, ...] = ()
) -> onnx.ModelProto:
    """y = relu(x·w), x float32[batch, 4]; or other nodes from x and w to y."""
    nodes = nodes or [
        helper.make_node("MatMul", ["x", "w"], ["h"], "mix"),
        helper.make_node("Relu", ["h"], ["y"], "cut"),
    ]
    w = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "tiny", [x], [y], [w])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


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


def fails(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Runs a command that must fail with one line on stderr; returns the line."""
    capsys.readouterr()
    assert main(args) == 1
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.endswith("…")]
    assert len(lines) == 1 and "Traceback" not in err and not out, err
    assert lines[0].startswith(f"webrt {args[0]}: ")
    return lines[0]


def test_compile_writes_plan_and_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "model.onnx", "-o", "a.webrt", "--onnx", "b.onnx"]) == 0
    out, err = capsys.readouterr()
    assert "a.webrt" in out and "b.onnx" in out and "2 nodes: 2 on WebGPU, 0 on the CPU" in out
    assert err == "Compiling model.onnx …\n"
    assert [i.name for i in planfile.load("a.webrt").inputs] == ["x"]
    onnx.checker.check_model("b.onnx", full_check=True)
    assert sorted(os.listdir()) == ["a.webrt", "b.onnx", "model.onnx"]


def test_compiling_a_plan_says_that_it_is_one(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "model.onnx"]) == 0
    Path("plan.bin").write_bytes(Path("model.webrt").read_bytes())
    capsys.readouterr()
    for name in ("model.webrt", "plan.bin"):
        assert main(["compile", name]) == 1
        told = capsys.readouterr().err
        assert f"{name} is a plan already: run it (`webrt run {name}`)" in told and "webrt inspect" in told


def test_compile_to_onnx_only(model: Path) -> None:
    assert main(["compile", "model.onnx", "-o", "small.onnx", "--dim", "batch=2"]) == 0
    assert sorted(os.listdir()) == ["model.onnx", "small.onnx"]
    [x] = onnx.load("small.onnx").graph.input
    assert [d.dim_value for d in x.type.tensor_type.shape.dim] == [2, 4]


def test_compile_with_target_file_and_known_input(model: Path) -> None:
    Path("t.json").write_text(json.dumps({"name": "mine", "limits": {"maxStorageBuffersPerShaderStage": 8}}))
    np.save("x.npy", np.ones((2, 4), np.float32))
    assert main(["compile", "model.onnx", "--target", "t.json", "--known", "x=x.npy"]) == 0
    compiled = planfile.load("model.webrt")
    assert compiled.target["name"] == "mine" and not compiled.steps


@pytest.mark.parametrize("sandbox", ["--sandbox", "--no-sandbox"])
def test_compile_says_how_to_give_what_decides_kernels(
    model: Path, sandbox: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """y = relu(x) where rate is 8, else -x."""
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x"], ["b"])], op, [], [helper.make_tensor_value_info("b", FLOAT, ["batch", 4])]
        )
        for op in ("Relu", "Neg")
    ]
    eight = numpy_helper.from_array(np.array(8), "eight")
    nodes = [
        helper.make_node("Equal", ["rate", "eight"], ["is"]),
        helper.make_node("If", ["is"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, ["batch", 4])
    rate = helper.make_tensor_value_info("rate", TensorProto.INT64, [])
    y = helper.make_tensor_value_info("y", FLOAT, ["batch", 4])
    graph = helper.make_graph(nodes, "choice", [x, rate], [y], [eight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    model.write_bytes(made.SerializeToString())
    assert main(["compile", "model.onnx", sandbox]) == 1
    assert "--known rate=VALUE (JSON" in capsys.readouterr().err
    for value, op in (("8", "Relu"), ("9", "Neg")):
        assert main(["compile", "model.onnx", sandbox, "--known", f"rate={value}"]) == 0
        assert op in [p.op for p in planfile.load("model.webrt").placement]


@pytest.mark.parametrize(
    ("text", "value"), [("16000", 16000), ("[1, 2.5]", [1, 2.5]), ("[[true]]", [[True]]), ('["a"]', ["a"])]
)
def test_known_elements_in_json(text: str, value: object) -> None:
    assert read_known("x", text) == value


@pytest.mark.parametrize("text", ["[1, 2", "{}", "null", "[[1], [2, 3]]", str(1 << 70), "[" * 9000], ids=range(6))
def test_known_elements_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="input 'x': .* is neither a .npy"):
        read_known("x", text)


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


def test_inspect_shows_model_and_plan(model: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for path, operators in ((model, "2 nodes before, 2 after"), (plan, "operators: 2 nodes")):
        assert main(["inspect", str(path)]) == 0
        out = capsys.readouterr().out
        for words in ("opset ai.onnx 20", "x: float32[batch, 4]", "y: float32[batch, 3]", operators, "webgpu, kernel",
                      "free dims\n  batch", "constants: 1, 48 bytes", "slots: "):  # fmt: skip
            assert words in out, words


def test_inspect_shows_what_is_within_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nested.onnx"
    onnx.save(CASES["a branch within a loop within a branch"].model, path)
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    for words in ("2 webgpu, branch: If (2)", "1 webgpu, loop: Loop", "2 branch, 1 loop", "MB at its peak\n"):
        assert words in out, words


def test_inspect_shows_what_slots_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inputs, and what nodes make: names of tensors may be the compiler's own."""
    path = tmp_path / "nested.onnx"
    onnx.save(CASES["a branch within a loop within a branch"].model, path)
    assert main(["inspect", str(path), "--json"]) == 0
    slots = json.loads(capsys.readouterr().out)["slots"]
    assert slots and all(s["holds"] for s in slots)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["h"], "mix"), helper.make_node("Shape", ["h"], ["y"])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("h", FLOAT, ["batch", 3]))
    onnx.save(model, path)
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert "bytes: input 'x'\n" in told and "bytes: MatMul 'mix'\n" in told


def test_inspect_gives_reasons_and_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--provider", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["operators"] == {"before": {"MatMul": 1, "Relu": 1}, "after": {"MatMul": 1, "Relu": 1}}
    assert [(p["op"], p["provider"], p["how"]) for p in report["placement"]] == [
        ("MatMul", "cpu", "host"),
        ("Relu", "cpu", "host"),
    ]
    assert all(p["reason"] for p in report["placement"])
    assert report["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 4]}]


GPU_FREE = """
import importlib.abc, os, runpy, sys
opened = []
watched = ("open", "import", "ctypes.dlopen")
sys.addaudithook(lambda event, args: opened.append((event, args[0])) if event in watched else None)
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "wgpu":
            raise ModuleNotFoundError("No module named 'wgpu'")
sys.meta_path.insert(0, Refuse())
import webrt.compiler.compile
from webrt.cli import main
code = main(sys.argv[1:])
words = ("wgpu", "libvulkan", "libGL", "libEGL", "libcuda", "vulkan/icd", "libvk", "/dev/dri", "/dev/nvidia")
seen = [f"{event} {name}" for event, name in opened for w in words if isinstance(name, str) and w in name]
seen += [name for name in sys.modules if name.split(".")[0] in ("wgpu", "cffi")]
maps = open("/proc/self/maps").read() if os.path.exists("/proc/self/maps") else ""
seen += [w for w in words if w in maps]
print("SEEN", seen)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "args", [["compile", "model.onnx", "--onnx", "o.onnx", "--no-sandbox"], ["inspect", "model.onnx"]]
)
def test_compiling_loads_no_gpu_library(model: Path, args: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GPU_FREE, *args], capture_output=True, text=True, check=False, cwd=model.parent
    )
    assert done.returncode == 0, done.stderr
    assert "SEEN []" in done.stdout.splitlines()


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
    ("size", "text"),
    [
        (64, 64),
        (D.maximum(16, N * 16), "16*n"),
        (D.maximum(D.maximum(N * 32, 16), D.maximum(16, N * 48)), "48*n"),
        (D.maximum(16, (N * 4 + 15) // 16 * 16), "4*n"),
        (D.maximum(N * 16, N * M * 32), "the largest of 16*n, 32*(m*n)"),
        (D.maximum(N * 16, 4096), "the largest of 16*n, 4096"),
        ((N + 3) // 2 * 16, "16*((3 + n) // 2)"),
    ],
)
def test_slot_sizes_are_told_without_what_all_of_them_have(size: D.Dim, text: str | int) -> None:
    table = D.DimTable()
    ref = table.ref(size)
    assert slot_bytes(table.program, ref) == text
    for n, m in ((1, 1), (7, 3)):
        told = eval(str(text).replace("the largest of ", "").join(("max(0,", ")")), {"n": n, "m": m})
        exact = D.resolve(ref, D.evaluate(table.program, {"n": n, "m": m}))
        assert max(16, -(-told // 16) * 16) == exact


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


def test_one_node_is_no_nodes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_bytes(make_model([helper.make_node("MatMul", ["x", "w"], ["y"])]).SerializeToString())
    for command, words in (("compile", "1 node: 1 on"), ("run", "1 node: 1 on"), ("inspect", "1 node before, 1 after")):
        assert main([command, "model.onnx"]) == 0
        out = capsys.readouterr().out
        assert words in out and "1 nodes" not in out and "1 dispatches" not in out
    assert "operators: 1 node\n" in _inspected("model.webrt", capsys)


def _inspected(path: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["inspect", path]) == 0
    return capsys.readouterr().out


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
