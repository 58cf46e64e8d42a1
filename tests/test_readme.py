"""The documents are run: Python and shell blocks one after the other, the JavaScript block in Chromium."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from webrt.cli import chromium
from webrt.compiler.compile import compile_model
from webrt.planfile import save
from webrt.resources import web_dir

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def write_model(path: Path) -> None:
    """The model that README's snippets run: pixels float32[batch, 3, height, width] → logits float32[batch, 10]."""
    w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32), "w")
    axes = numpy_helper.from_array(np.array([2, 3]), "axes")
    nodes = [
        helper.make_node("Relu", ["pixels"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r", "axes"], ["m"], "mean", keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["logits"], "classes"),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "readme", [pixels], [logits], [w, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.write_bytes(model.SerializeToString())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.onnx")
    return tmp_path


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    "document", ["README.md", "docs/adding-an-operator.md", "docs/architecture.md", "docs/security.md"]
)
def test_python_blocks(document: str, folder: Path) -> None:
    found = blocks((ROOT / document).read_text(encoding="utf-8"), "python")
    if not found:
        pytest.fail(f"{document} has no Python block")
    run([sys.executable, "-c", "\n".join(found)], folder)


@pytest.mark.xdist_group("browser")
def test_shell_blocks(folder: Path) -> None:
    commands = [line.split("#")[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]
    assert any(c.startswith("make demo") for c in commands) and any(c.startswith("webrt compile") for c in commands)
    for command in filter(None, commands):
        if command.startswith("make "):
            run([*shlex.split(command), "--dry-run"], ROOT)
        else:
            run(["sh", "-c", command], folder)


@pytest.mark.xdist_group("browser")
def test_javascript_block(folder: Path) -> None:
    save(compile_model(folder / "model.onnx"), folder / "model.webrt")
    snippet, _ = blocks(README, "js")  # the second needs Pyodide: tests/web/test_start.py
    (folder / "webrt").symlink_to(web_dir())
    page_text = f'<!doctype html><script type="module">{snippet}\nwindow.answer = logits;</script>'
    (folder / "index.html").write_text(page_text, encoding="utf-8")
    with chromium.serve(folder) as base, chromium.launch() as browser:
        page = browser.new_page()
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(base)
        page.wait_for_function("window.answer")
        assert page.evaluate("[window.answer.type, [...window.answer.dims], window.answer.data.length]") == [
            "float32", [1, 10], 10,
        ]  # fmt: skip
        assert not failures


def test_links_lead_somewhere() -> None:
    for document in ("README.md", "docs/adding-an-operator.md", "docs/architecture.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document} → {target}"
        for name in re.findall(r"`((?:webrt|shaders|web|tests|docs|examples)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{document} names {name}"
