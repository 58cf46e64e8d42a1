"""The optimised model: valid ONNX that others run, the same bytes every time, and reloaded as it was placed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import webrt
from tests.passes.harness import feeds_of, parse
from webrt.cli.main import main
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import ExternalDataError, InputError, InvalidModel
from webrt.plan import Plan

RNG = np.random.default_rng(5)
CONSTANTS = {
    "w": RNG.standard_normal((32, 16, 3, 3)).astype(np.float32) / 12,
    "b": RNG.standard_normal(32).astype(np.float32),
    "m": RNG.standard_normal((32, 32)).astype(np.float32) / 6,
    "one": np.ones(32, np.float32),
    "two": np.float32(2),
    "eps": np.float32(1e-5),
    "axes": np.array([-1]),
}
NET = """agraph (float[n,16,h,w0] x) => (float[n,h2,c] y, float[n,32,h,w0] z) {
    conv = Conv<pads=[1,1,1,1]>(x, w, b)
    r = Relu(conv)
    same = Identity(r)
    s = Sigmoid(same)
    z = Mul(s, r)
    p = GlobalAveragePool(z)
    f = Flatten(p)
    u = Unsqueeze(f, axes0)
    mean = ReduceMean(u, axes)
    d = Sub(u, mean)
    q = Pow(d, two)
    var = ReduceMean(q, axes)
    safe = Add(var, eps)
    root = Sqrt(safe)
    norm = Div(d, root)
    scaled = Mul(norm, one)
    a = MatMul(scaled, m)
    most = ReduceMax<keepdims=0>(a)
    t = Greater(most, two)
    y = If(t) <
        then_branch = g () => (float[n,h2,c] o) { o = Neg(a) },
        else_branch = e () => (float[n,h2,c] o2) { o2 = Abs(a) }
    >
}"""


def placed_and_written(model: onnx.ModelProto, **options: Any) -> tuple[Plan, onnx.ModelProto]:
    made: list[bytes] = []
    plan = compile_model(model, CompileOptions(optimized=made.append, **options))
    return plan, onnx.load_from_string(made[-1])


def test_nodes_of_one_name_are_told_apart() -> None:
    body = "body = b (int64 i, bool c, float[N] s) => (bool c2, float[N] s2) { c2 = Identity(c) s2 = Mul(s, x) }"
    given = {"n": np.array(3), "go": np.array(True)}
    model = parse(f"agraph (float[N] x) => (float[N] y) {{ y = Loop(n, go, x) <{body}> }}", given)
    _, made = placed_and_written(model)
    names = [n.name for n in made.graph.node]
    assert names == ["/Mul", "/Mul_1", "/Mul_2"]
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": np.array([2, 3], np.float32)})[0], [16, 81])


def test_where_the_caller_placed_nodes_is_kept() -> None:
    model = parse("agraph (float[N] x) => (float[N] y) { a = Exp(x) b = Neg(a) y = Sin(b) }")
    for node in model.graph.node:
        node.name = node.op_type
    plan, made = placed_and_written(model, places={"Neg": "cpu", "Sin": "webgpu"})
    assert [p.provider for p in plan.placement] == ["webgpu", "cpu", "webgpu"]
    again, twice = placed_and_written(made, level="disabled")
    assert again.placement == plan.placement and len(again.steps) == len(plan.steps)
    assert placed_and_written(twice, level="disabled")[0].placement == plan.placement
    assert {p.provider for p in placed_and_written(made, providers=("cpu",))[0].placement} == {"cpu"}
    for text in ("[", "[]", '{"Neg": "gpu"}', '{"Neg": 1}'):
        onnx.helper.set_model_props(made, {"webrt.places": text})
        with pytest.raises(InvalidModel, match="no table of providers by node"):
            compile_model(made)


def net() -> onnx.ModelProto:
    return parse(NET, {**CONSTANTS, "axes0": np.array([1])})


def exported(model: onnx.ModelProto | bytes, **options: object) -> tuple[Plan, bytes]:
    made: list[bytes] = []
    plan = compile_model(model, CompileOptions(optimized=made.append, **options))  # type: ignore[arg-type]
    return plan, made[-1]


def shape_of(plan: Plan) -> tuple[Counter[str], list[tuple[str, str, str]]]:
    return Counter(s.kind for s in plan.steps), [(p.op, p.provider, p.how) for p in plan.placement]


def feeds() -> dict[str, np.ndarray]:
    return feeds_of(net())


def on_cpu(model: bytes) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(a) for a in session.run(None, feeds())]


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_it_is_valid_and_gives_the_same_answers_elsewhere(level: str) -> None:
    _, data = exported(net(), level=level)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    for got, want in zip(on_cpu(data), on_cpu(net().SerializeToString()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["disabled", "basic", "extended", "all"])
def test_it_reloads_without_optimisation_as_it_was_placed(level: str) -> None:
    plan, data = exported(net(), level=level)
    again, second = exported(data, level="disabled")
    assert shape_of(again) == shape_of(plan)
    assert second == data
    assert [k.hash for k in again.kernels] == [k.hash for k in plan.kernels]


def test_the_same_model_gives_the_same_bytes() -> None:
    assert exported(net())[1] == exported(net())[1]


def test_a_session_runs_it_with_everything_off(tmp_path: Path) -> None:
    options = webrt.SessionOptions()
    options.optimized_model_filepath = tmp_path / "small.onnx"
    with webrt.InferenceSession(net(), options) as session:
        want = session.run(None, feeds())
        placement = [(p.node, p.how) for p in session.get_placement()]
    plain = webrt.SessionOptions()
    plain.graph_optimization_level = webrt.GraphOptimizationLevel.ORT_DISABLE_ALL
    with webrt.InferenceSession(tmp_path / "small.onnx", plain) as session:
        for got, there in zip(session.run(None, feeds()), want, strict=True):
            np.testing.assert_array_equal(got, there)
        assert [(p.node, p.how) for p in session.get_placement()] == placement


def test_nodes_say_who_runs_them_and_what_they_were() -> None:
    model = parse(
        """agraph (float[n] x) => (double[n] y, float[n] z) {
            wide = Cast<to = 11>(x)
            y = Neg(wide)
            s = Sin(x)
            z = Neg(s)
        }"""
    )
    for node in model.graph.node:
        node.name = f"the_{node.op_type}"
    _, data = exported(model)
    told = {n.output[0]: {p.key: p.value for p in n.metadata_props} for n in onnx.load_from_string(data).graph.node}
    assert told["y"]["webrt.provider"] == "CPUExecutionProvider"
    assert "float64" in told["y"]["webrt.reason"]
    assert told["z"]["webrt.provider"] == told["s"]["webrt.provider"] == "WebGpuExecutionProvider"
    assert (told["s"]["webrt.how"], told["z"]["webrt.how"]) == ("fused", "kernel")
    assert "the_Sin" in told["z"]["webrt.reason"]
    assert told["s"]["webrt.sources"] == "the_Sin"


def test_a_pass_that_was_off_stays_off_after_a_reload() -> None:
    plan, data = exported(net(), disabled=("fuse_norms",))
    props = {p.key: p.value for p in onnx.load_from_string(data).metadata_props}
    assert "fuse_norms" not in props["webrt.extended"].split()
    again, _ = exported(data, level="basic")
    assert shape_of(again) == shape_of(plan)
    none, _ = exported(data, level="disabled", disabled=tuple(props["webrt.extended"].split()))
    assert shape_of(none)[0]["dispatch"] > shape_of(plan)[0]["dispatch"]


def test_metadata_that_names_no_pass_does_nothing() -> None:
    model = net()
    onnx.helper.set_model_props(model, {"webrt.extended": "rm -rf, fuse_nothing"})
    assert shape_of(exported(model, level="disabled")[0]) == shape_of(exported(net(), level="disabled")[0])


def test_large_tensors_go_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    command = ["compile", "net.onnx", "-o", "small.onnx", "--onnx-data", "small.bin"]
    assert main([*command, "--no-sandbox"]) == 0
    assert f"small.bin: {Path('small.bin').stat().st_size / 1e6:.2f} MB" in capsys.readouterr().out
    model = onnx.load("small.onnx", load_external_data=False)
    outside = {t.name for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}
    assert outside == {t.name for t in model.graph.initializer if np.prod(t.dims) * 4 >= 1024}
    assert Path("small.bin").stat().st_size >= CONSTANTS["w"].nbytes + CONSTANTS["m"].nbytes
    with webrt.InferenceSession("small.onnx") as session:
        for got, want in zip(session.run(None, feeds()), on_cpu(net().SerializeToString()), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "small.bin", "small.onnx"]
    Path("small.bin").write_bytes(b"")
    with pytest.raises(ExternalDataError, match=r"small\.bin"):
        webrt.InferenceSession("small.onnx")
    assert main(command) == 1


@pytest.mark.parametrize("name", ["../out.bin", "/out.bin", "small.onnx"])
def test_its_data_stays_beside_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="beside"):
        compile_model(net(), CompileOptions(optimized_path=tmp_path / "small.onnx", optimized_data=name))
    assert not list(tmp_path.iterdir())


def test_an_output_of_unknown_rank_keeps_what_was_declared() -> None:
    text = """agraph (float[1,m] x) => (float[a] y) {
        zero = Constant<value = float {0}>()
        most = ReduceMax<keepdims=0>(x)
        t = Greater(most, zero)
        y = If(t) <
            then_branch = g () => (float[m] o) { o = Squeeze(x) },
            else_branch = e () => (float[1,m] o2) { o2 = Abs(x) }
        >
    }"""
    _, data = exported(parse(text))
    onnx.checker.check_model(onnx.load_from_string(data))


def test_constants_that_only_subgraphs_read_are_kept_and_keep_their_names() -> None:
    """A branch in a branch: what the outer one defines is captured by the inner one alone."""
    text = """agraph (float[n] x) => (float[n] y) {
        yes = Constant<value = bool {1}>()
        zero = Constant<value = float {0}>()
        most = ReduceMax<keepdims=0>(x)
        t = Greater(most, zero)
        y = If(yes) <
            then_branch = outer () => (float[n] o) {
                k = Constant<value = float {3}>()
                o = If(t) <
                    then_branch = inner () => (float[n] i) { i = Mul(x, k) },
                    else_branch = other () => (float[n] j) { one = Constant<value = float {1}>() j = Add(x, one) }
                >
            },
            else_branch = never () => (float[n] q) { q = Neg(x) }
        >
    }"""
    _, data = exported(parse(text))
    loaded = onnx.load_from_string(data)
    onnx.checker.check_model(loaded)
    names = [t.name for t in loaded.graph.initializer]
    assert len(set(names)) == len(names)
    for x in (np.array([1, 2], np.float32), np.array([-1, -2], np.float32)):
        session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
        (got,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(got, x * 3 if x[0] > 0 else x + 1)
