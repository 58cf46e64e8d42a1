"""The compile half as a whole: sizes, structural inputs, placement, memory, determinism."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.kernels.harness import device
from webrt.compiler.compile import STAGES, CompileOptions, compile_model
from webrt.errors import InputError, NotConstant, PlacementError, ShapeError
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.planfile import dump, load
from webrt.runtime.session import Session


def model(body: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}')


def run(plan: Plan, **feeds: Any) -> list[Any]:
    with Session(load(dump(plan)), device(), CpuProvider()) as session:
        return session.run(None, feeds)


def test_one_plan_for_all_sizes() -> None:
    plan = compile_model(model("(float[B,S] x) => (float[S,B] y) { t = Transpose(x)  y = Add(t, t) }"))
    for shape in ((1, 1), (3, 5), (5, 3), (0, 4)):
        x = np.random.default_rng(0).random(shape, dtype=np.float32)
        np.testing.assert_array_equal(run(plan, x=x)[0], x.T * 2)


def test_shape_arithmetic_is_folded_into_sizes() -> None:
    text = """(float[B,4,H] x) => (float[?,?] y)
      <int64[1] zero = {0}, int64[1] minus = {-1}>
      { s = Shape(x)  b = Gather<axis=0>(s, zero)  t = Concat<axis=0>(b, minus)  y = Reshape(x, t) }"""
    plan = compile_model(model(text))
    assert not plan.host_steps
    assert {p.how for p in plan.placement} <= {"folded", "alias"}
    assert run(plan, x=np.ones((3, 4, 5), np.float32))[0].shape == (3, 20)


def test_structural_inputs_are_sizes_of_the_plan() -> None:
    """Elements of `shape` are variables: another value needs no other plan."""
    plan = compile_model(model("(float[N] x, int64[2] shape) => (float[?,?] y) { y = Reshape(x, shape) }"))
    assert [v.elements for v in plan.inputs] == [0, 2]
    x = np.arange(12, dtype=np.float32)
    with Session(plan, device()) as session:
        for shape in ([3, 4], [6, 2], [12, 1]):
            (y,) = session.run(None, {"x": x, "shape": np.array(shape)})
            np.testing.assert_array_equal(y, x.reshape(shape))


def test_inputs_that_decide_ranks_are_asked_for() -> None:
    text = "(float[2,3] x, int64[K] axes) => (float y) { y = ReduceSum<keepdims=0>(x, axes) }"
    with pytest.raises(NotConstant) as caught:
        compile_model(model(text.replace("[K]", "[1]")))
    assert caught.value.roots == {"axes"}
    plan = compile_model(model(text.replace("[K]", "[1]")), CompileOptions(known_inputs={"axes": np.array([1])}))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(plan, x=x, axes=np.array([1]))[0], x.sum(1))


def test_sizes_that_only_a_run_knows() -> None:
    """NonZero's size is read back; what follows runs at the size that came out."""
    plan = compile_model(model("(float[N] x) => (int64[?,?] y) { i = NonZero(x)  y = Add(i, i) }"))
    assert [p.how for p in plan.placement] == ["kernel", "kernel"]
    assert [p.bytes for p in plan.placement] == [4, 0]
    x = np.array([0, 1, 0, 2, 3], np.float32)
    np.testing.assert_array_equal(run(plan, x=x)[0], np.array([[2, 6, 8]]))


def test_placement_says_why_and_strict_mode_refuses() -> None:
    m = model("(double[N] x) => (double[N] y) { y = Sin(x) }")
    (line,) = compile_model(m).placement
    assert (line.provider, line.how, line.reason) == ("cpu", "host", "devices hold no float64")
    with pytest.raises(PlacementError, match="Sin"):
        compile_model(m, CompileOptions(strict=True))
    with pytest.raises(PlacementError, match="CPUExecutionProvider"):
        compile_model(m, CompileOptions(providers=("webgpu",)))


def test_cpu_alone_places_nothing_on_webgpu() -> None:
    plan = compile_model(model("(float[N] x) => (float[N] y) { y = Relu(x) }"), CompileOptions(providers=("cpu",)))
    assert len(plan.host_steps) == 1 and not plan.kernels and not plan.slots


def test_slots_are_used_again() -> None:
    chain = "  ".join(f"a{i + 1} = Softmax(a{i})" for i in range(12))
    plan = compile_model(model(f"(float[N,8] a0) => (float[N,8] a12) {{ {chain} }}"))
    assert len(plan.slots) <= 4


def test_equal_models_give_equal_bytes() -> None:
    m = model("(float[B,8] x) => (float[B,8] y) { t = Softmax(x)  u = Exp(t)  y = Mul(u, x) }")
    assert dump(compile_model(m)) == dump(compile_model(m))


def test_equal_nodes_are_merged_and_random_ones_are_not() -> None:
    plan = compile_model(model("(float[4] x) => (float[4] y) { a = Exp(x)  b = Exp(x)  y = Mul(a, b) }"))
    assert [p.op for p in plan.placement].count("Exp") == 1
    text = "(float[4] x) => (float[4] y) { a = RandomUniformLike(x)  b = RandomUniformLike(x)  y = Sub(a, b) }"
    plan = compile_model(model(text))
    assert [p.op for p in plan.placement].count("RandomUniformLike") == 2
    assert np.any(run(plan, x=np.zeros(4, np.float32))[0] != 0)


@pytest.mark.parametrize("branch", [True, False])
@pytest.mark.parametrize("providers", [("cpu",), ("webgpu",)])
def test_captured_values_of_a_subgraph(branch: bool, providers: tuple[str, ...]) -> None:
    """On the CPU the node chooses at each run; on WebGPU the branch of a known condition takes its place."""
    text = """(float[4] x, bool c) => (float[4] y)
      { a = Exp(x)  y = If (c) <then_branch = t () => (float[4] r) { r = Neg(a) },
                                else_branch = e () => (float[4] r2) { r2 = Abs(x) }> }"""
    known = {"c": np.array(branch)} if "webgpu" in providers else {}
    plan = compile_model(model(text), CompileOptions(providers=providers, known_inputs=known))
    x = np.array([-1, 2, -3, 4], np.float32)
    expected = -np.exp(x) if branch else np.abs(x)
    np.testing.assert_allclose(run(plan, x=x, c=np.array(branch))[0], expected, rtol=1e-5)


def test_outputs_that_are_inputs_constants_or_sizes() -> None:
    text = """(float[N] x) => (float[N] x, float[2] k, int64[1] s)
      { k = Constant<value = float[2] {1.5, 2.5}>()  s = Shape(x) }"""
    x = np.arange(3, dtype=np.float32)
    got = run(compile_model(model(text)), x=x)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], np.array([1.5, 2.5], np.float32))
    np.testing.assert_array_equal(got[2], np.array([3]))


def test_shapes_that_contradict_each_other() -> None:
    with pytest.raises(ShapeError, match=r"MatMul.*"):
        compile_model(model("(float[2,3] a, float[4,5] b) => (float[2,5] y) { y = MatMul(a, b) }"))
    plan = compile_model(model("(float[A] a, float[B] b) => (float[?] y) { y = Add(a, b) }"))
    with pytest.raises((ShapeError, InputError)):
        run(plan, a=np.ones(3, np.float32), b=np.ones(4, np.float32))


def test_progress_names_every_stage() -> None:
    seen: list[str] = []
    options = CompileOptions(progress=lambda stage, done, total: seen.append(stage))
    compile_model(model("(float[N] x) => (float[N] y) { y = Relu(x) }"), options)
    assert seen == [*STAGES, "done"]


def test_the_optimised_model_is_valid_and_gives_the_same(tmp_path: Any) -> None:
    text = """(float[N,2] x) => (float[N,2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}>
      { c = Add(a, b)  y = Mul(x, c) }"""
    path = tmp_path / "optimised.onnx"
    compile_model(model(text), CompileOptions(optimized_path=path))
    made = onnx.load(path)
    onnx.checker.check_model(made, full_check=True)
    assert [n.op_type for n in made.graph.node] == ["Mul"]
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(run(compile_model(path), x=x)[0], x * [4, 6])


def test_reasons_name_what_the_model_names() -> None:
    """A value of an inlined branch has a name of webrt's own."""
    text = """<ir_version: 9, opset_import: ["" : 20]>
        g (float[2, 2] x, bool[n] c) => (y) <bool yes = {1}> {
            [choose] y = If(yes) <
                then_branch = t () => (a) {
                    any = ReduceMax<keepdims = 0>(c)
                    [pick] v = If(any) <
                        then_branch = p () => (q) { q = Flatten(x) },
                        else_branch = r () => (s) { s = ReduceSum<keepdims = 0>(x) }>
                    [cut] a = Relu(v)
                },
                else_branch = e () => (b) { b = Neg(x) }>
        }"""
    reasons = {p.node: p.reason for p in compile_model(parser.parse_model(text)).placement}
    assert reasons["choose/cut"] == "the rank of what If 'choose/pick' makes is not known before the run"
