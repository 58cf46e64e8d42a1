"""Nodes that the caller places."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import webrt
from tests.kernels.harness import oracle, run_native
from tests.passes.harness import check, compiled, feeds_of, parse
from tests.tolerance import close
from webrt.cli.main import main
from webrt.errors import InputError, PlacementError
from webrt.plan import Plan


def net() -> onnx.ModelProto:
    model = parse("agraph (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Neg(a) c = Exp(b) y = Tanh(c) }")
    for node in model.graph.node:
        node.name = f"the {node.op_type}"
    return model


def on_cpu(plan: Plan) -> list[tuple[str, str]]:
    return [(p.node, p.reason) for p in plan.placement if p.provider == "cpu"]


def test_a_node_on_the_cpu_parts_what_would_be_one_kernel() -> None:
    plan = compiled(net(), places={"the Exp": "cpu"})
    assert on_cpu(plan) == [("the Exp", "the caller places it there")]
    assert [p.how for p in plan.placement] == ["fused", "kernel", "host", "kernel"]
    assert on_cpu(check(net())) == []
    feeds = feeds_of(net())
    (got,), _ = run_native(net(), feeds, places={"the Exp": "cpu"})
    close(got, oracle(net(), feeds)[0])


def test_every_node_that_a_function_becomes() -> None:
    model = parse("agraph (float[N,4] x) => (float[N,4] y) { y = Shrink<lambd=0.5>(x) }", opset=20)
    model.graph.node[0].name = "the one"
    assert {p.provider for p in compiled(model, places={"the one": "cpu"}).placement} == {"cpu"}


def test_the_first_provider_that_takes_a_node() -> None:
    assert {p.reason for p in compiled(net(), providers=("cpu",)).placement} == {
        "the WebGPU provider is not in the list"
    }
    plan = compiled(net(), providers=("cpu", "webgpu"), places={"the Exp": "webgpu"})
    assert [p.provider for p in plan.placement] == ["cpu", "cpu", "webgpu", "cpu"]
    assert plan.placement[0].reason == "the WebGPU provider is not first in the list"


def test_what_cannot_be() -> None:
    doubles = parse("agraph (double[N] x) => (double[N] y) { y = Sin(x) }")
    doubles.graph.node[0].name = "sine"
    with pytest.raises(PlacementError, match="places it on WebGPU, which does not run it: devices hold no float64"):
        compiled(doubles, places={"sine": "webgpu"})
    with pytest.raises(PlacementError, match="the Exp.*add CPUExecutionProvider"):
        compiled(net(), places={"the Exp": "cpu"}, providers=("webgpu",))
    with pytest.raises(PlacementError, match="the caller places it there"):
        compiled(net(), places={"the Exp": "cpu"}, strict=True)
    with pytest.raises(InputError, match="no node is named 'the Exq'; there are .*'the Exp'"):
        compiled(net(), places={"the Exq": "cpu"})
    with pytest.raises(InputError, match="cannot be placed on 'gpu'; use webgpu or cpu"):
        compiled(net(), places={"the Exp": "gpu"})


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    assert main(["compile", "net.onnx", "--place", "the Exp=cpu"]) == 0
    assert "1 on the CPU" in capsys.readouterr().out


def test_by_a_config_entry() -> None:
    options = webrt.SessionOptions()
    options.add_session_config_entry("session.node_providers", '{"the Exp": "cpu"}')
    with webrt.InferenceSession(net(), options) as session:
        assert {p.node for p in session.get_placement() if p.provider == "cpu"} == {"the Exp"}
    options.add_session_config_entry("session.node_providers", "the Exp=cpu")
    with pytest.raises(InputError, match="is a JSON object of texts"):
        webrt.InferenceSession(net(), options)
