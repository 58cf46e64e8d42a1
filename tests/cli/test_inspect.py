"""`webrt inspect`: models and plans, placement with reasons, slots and their sizes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.cli.models import FLOAT, make_model
from tests.flow_cases import CASES
from webrt import dims as D
from webrt.cli import main
from webrt.cli.slot_bytes import slot_bytes

N, M = D.var("n"), D.var("m")


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
