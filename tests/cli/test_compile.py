"""`webrt compile`: what it writes, what it takes as known, and that it loads no GPU library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.models import FLOAT
from webrt import planfile
from webrt.cli import main
from webrt.cli.options import read_known
from webrt.errors import InputError


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
