"""The documents are run: Python and shell blocks one after the other, the JavaScript block in Chromium."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from webrt.cli import assets, chromium
from webrt.compiler.compile import compile_model
from webrt.planfile import save
from webrt.resources import web_dir

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def small_twin() -> onnx.ModelProto:
    """A small model with the input of the demo's: x float32[batch, 3, height, width] → float32[batch, width, 10]."""
    w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32), "w")
    axes = numpy_helper.from_array(np.array([2]), "axes")
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"], "mean", keepdims=0),
        helper.make_node("Transpose", ["mean"], ["places"], "places", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["places", "w"], ["scores"], "classes"),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax"),
    ]
    batch, width = "p2o.DynamicDimension.0", "p2o.DynamicDimension.1"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, "?", width])
    probabilities = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [batch, width, 10])
    graph = helper.make_graph(nodes, "readme", [x], [probabilities], [w, axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def folder_with(model: str, folder: Path) -> Path:
    """The folder, with the demo's model or its small twin as model.onnx."""
    if model == "demo":
        (folder / "model.onnx").symlink_to(assets.demo_model_path())
    else:
        onnx.save(small_twin(), folder / "model.onnx")
    return folder


@pytest.fixture(params=["small", pytest.param("demo", marks=pytest.mark.long)])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return folder_with(request.param, tmp_path)


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(document: str, folder: Path) -> None:
    found = blocks((ROOT / document).read_text(encoding="utf-8"), "python")
    assert found, f"{document} has no Python block"
    run([sys.executable, "-c", "\n".join(found)], folder)


def test_the_twin_takes_what_the_demos_model_takes() -> None:
    assert list(small_twin().graph.input) == list(onnx.load(assets.demo_model_path()).graph.input)


@pytest.mark.parametrize(
    ("document", "model"),
    [
        ("README.md", "demo"),
        ("docs/adding-an-operator.md", "small"),
        ("docs/architecture.md", "small"),
        ("docs/security.md", "small"),
    ],
)
def test_python_blocks(document: str, model: str, tmp_path: Path) -> None:
    run_python(document, folder_with(model, tmp_path))


@pytest.mark.xdist_group("pages")
def test_shell_blocks(folder: Path) -> None:
    commands = [line.split("#")[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]
    assert any(c.startswith("make demo") for c in commands) and any(c.startswith("webrt compile") for c in commands)
    run_python("README.md", folder)  # which writes x.npy
    for command in filter(None, commands):
        if command.startswith("make "):
            run([*shlex.split(command), "--dry-run"], ROOT)
        else:
            run(["sh", "-c", command], folder)


@pytest.mark.xdist_group("pages")
def test_javascript_block(folder: Path) -> None:
    save(compile_model(folder / "model.onnx"), folder / "model.webrt")
    snippet, _ = blocks(README, "js")  # the second needs Pyodide: tests/web/test_start.py
    (folder / "webrt").symlink_to(web_dir())
    page_text = f'<!doctype html><script type="module">{snippet}\nwindow.answer = probabilities;</script>'
    (folder / "index.html").write_text(page_text, encoding="utf-8")
    with chromium.serve(folder) as base, chromium.launch() as browser:
        page = browser.new_page()
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(base)
        page.wait_for_function("window.answer")
        kind, dims, count = page.evaluate("[window.answer.type, [...window.answer.dims], window.answer.data.length]")
        assert kind == "float32" and dims[0] == 1 and len(dims) == 3 and count == math.prod(dims)
        assert not failures


def test_links_lead_somewhere() -> None:
    for document in ("README.md", "docs/adding-an-operator.md", "docs/architecture.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document} → {target}"
        for name in re.findall(r"`((?:webrt|shaders|web|tests|docs|examples)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{document} names {name}"
