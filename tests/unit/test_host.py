"""The CPU provider's interface: nodes, graphs, subgraphs, functions, the cache, and errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from webrt.errors import InputError, InvalidModel, ShapeError, UnsupportedOp, UnsupportedType, WebrtError
from webrt.host import CpuProvider, GraphRunner, captured_names, evaluate, run_model

OPSETS = {"": 17}


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def info(name: str, elem: int = TensorProto.FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def graph(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], **more: Any) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", [info(i) for i in inputs], [info(o) for o in outputs], **more)


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_evaluate_gives_one_value_per_output() -> None:
    y = evaluate(node("TopK", ["x", "k"], ["", "i"]), OPSETS, [f32(3, 1, 2), np.array([2])])
    assert y[0] is None
    np.testing.assert_array_equal(y[1], [0, 2])


def test_absent_optional_input() -> None:
    (y,) = evaluate(node("Clip", ["x", "", "hi"], ["y"]), OPSETS, [f32(-5, 5), None, np.float32(1).reshape(())])
    np.testing.assert_array_equal(y, [-5, 1])


def test_ai_onnx_is_the_default_domain() -> None:
    n = helper.make_node("Neg", ["x"], ["y"], domain="ai.onnx")
    np.testing.assert_array_equal(evaluate(n, {"ai.onnx": 17}, [f32(1)])[0], [-1])


def test_provider_parses_a_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = CpuProvider()
    data = node("Add", ["a", "b"], ["c"]).SerializeToString()
    first = provider.prepare(data, OPSETS)
    monkeypatch.setattr(onnx.NodeProto, "ParseFromString", lambda *_: pytest.fail("parsed again"))
    assert provider.prepare(data, dict(OPSETS)) is first
    np.testing.assert_array_equal(first.run([f32(1), f32(2)])[0], [3])
    np.testing.assert_array_equal(first.run([f32(4), f32(2)], {})[0], [6])


def test_families_are_imported_as_they_are_looked_up() -> None:
    code = """import sys
from webrt.host import registry
def there(*names): return [f"webrt.host.{n}" in sys.modules for n in names]
assert registry.lookup("Add", "", 17) and there("elementwise", "svm") == [True, False]
assert registry.lookup("NoSuch", "", 17) is None and there("svm", *registry.FAMILIES).count(False) == 0
assert ("", "Softmax") in registry.registered()"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_inputs_are_never_changed() -> None:
    x = f32(1, 2, 3)
    x.flags.writeable = False
    updates, index = f32(9), np.array([1])
    for n, inputs in (
        (node("ScatterElements", ["x", "i", "u"], ["y"]), [x, index, updates]),
        (node("Softmax", ["x"], ["y"]), [x]),
        (node("CumSum", ["x", "a"], ["y"]), [x, np.array(0)]),
        (node("Pad", ["x", "p"], ["y"]), [x, np.array([1, 1])]),
    ):
        evaluate(n, OPSETS, inputs)
    np.testing.assert_array_equal(x, [1, 2, 3])


@pytest.mark.parametrize(
    ("make", "inputs", "error", "says"),
    [
        (node("Gather", ["x", "i"], ["y"]), [np.zeros((3, 4)), np.array([3])], ShapeError, "index 3"),
        (node("Gather", ["x", "i"], ["y"]), [np.zeros((3, 4)), np.array([-4])], ShapeError, "index -4"),
        (node("GatherElements", ["x", "i"], ["y"]), [np.zeros(3), np.array([3])], ShapeError, "index 3"),
        (node("GatherND", ["x", "i"], ["y"]), [np.zeros((3, 4)), np.array([[0, 4]])], ShapeError, "index 4"),
        (node("ScatterND", ["x", "i", "u"], ["y"]), [np.zeros(3), np.array([[3]]), np.ones(1)], ShapeError, "index 3"),
        (node("Add", ["a", "b"], ["c"]), [np.zeros((3, 4)), np.zeros(3)], ShapeError, "broadcast"),
        (node("Add", ["a", "b"], ["c"]), [np.zeros(3), np.zeros(3, np.int64)], UnsupportedType, "float64 and int64"),
        (node("Reshape", ["x", "s"], ["y"]), [np.zeros(12), np.array([5, -1])], ShapeError, "12"),
        (node("Div", ["a", "b"], ["c"]), [np.array([1]), np.array([0])], ShapeError, "zero"),
        (node("Split", ["x", "s"], ["a", "b"]), [np.zeros(3), np.array([1, 1])], ShapeError, "add up to 3"),
        (node("MatMul", ["a", "b"], ["c"]), [np.zeros((3, 4)), np.zeros((3, 4))], ShapeError, "4 and 3"),
        (node("Transpose", ["x"], ["y"], perm=[0, 0]), [np.zeros((3, 4))], ShapeError, "perm"),
        (node("Softmax", ["x"], ["y"], axis=4), [np.zeros(3)], ShapeError, "axis 4"),
        (node("Squeeze", ["x", "a"], ["y"]), [np.zeros((3, 1)), np.array([0])], ShapeError, "not 1"),
        (node("TopK", ["x", "k"], ["v", "i"]), [f32(1, 2), np.array([3])], ShapeError, "k is 3"),
        (node("Conv", ["x", "w"], ["y"]), [np.zeros((1, 3, 4)), np.zeros((2, 2, 3))], ShapeError, "3 channels"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[5]), [np.zeros((1, 1, 3))], ShapeError, "window of 5"),
        (node("SequenceAt", ["s", "i"], ["y"]), [[f32(1)], np.array(1)], ShapeError, "position 1"),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else "",
)  # fmt: skip
def test_bad_input_is_named(make: onnx.NodeProto, inputs: list[Any], error: type[WebrtError], says: str) -> None:
    make.name = "the node"
    with pytest.raises(error) as caught:
        evaluate(make, OPSETS, inputs)
    text = str(caught.value)
    assert says in text and "'the node'" in text and f"{make.op_type} (opset 17)" in text
    assert caught.value.inputs


def test_deprecated_operators_still_run() -> None:
    (y,) = evaluate(node("Upsample", ["x", "s"], ["y"]), OPSETS, [f32(1, 2), f32(2)])
    np.testing.assert_array_equal(y, [1, 1, 2, 2])


@pytest.mark.parametrize(
    ("op", "domain", "opset", "says"),
    [
        ("Nope", "", 17, "know no such operator"),
        ("Gelu", "", 13, "exists from opset 20"),
        ("Relu", "my.domain", 1, "know no such operator"),
    ],
)
def test_unknown_operators(op: str, domain: str, opset: int, says: str) -> None:
    with pytest.raises(UnsupportedOp, match=says):
        evaluate(helper.make_node(op, ["x", "s"], ["y"], domain=domain), {domain: opset}, [f32(1), f32(1)])


def test_wrong_number_of_inputs() -> None:
    with pytest.raises(InvalidModel, match="1 inputs given"):
        evaluate(node("Add", ["a"], ["c"]), OPSETS, [f32(1)])


def test_nan_and_infinity_need_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    (y,) = evaluate(node("Log", ["x"], ["y"]), OPSETS, [f32(-1, 0, np.inf)])
    assert np.isnan(y[0]) and y[1] == -np.inf and y[2] == np.inf
    assert not recwarn.list


def test_graph_in_any_order_with_initializers() -> None:
    nodes = [node("Mul", ["s", "k"], ["y"]), node("Add", ["x", "b"], ["s"])]
    k, b = (onnx.numpy_helper.from_array(f32(v), n) for n, v in (("k", 10), ("b", 1)))
    g = graph(nodes, ["x", "b"], ["y"], initializer=[k, b])
    runner = GraphRunner.from_graph(g, OPSETS)
    np.testing.assert_array_equal(runner.run({"x": f32(1, 2)})[0], [20, 30])
    np.testing.assert_array_equal(runner.run({"x": f32(1), "b": f32(0)})[0], [10])
    assert [v.tolist() for v in runner.run([f32(1)], fetch=["s", "y"])] == [[2], [20]]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="'x'"):
        runner.run({})


def test_cycles_and_missing_values_are_refused() -> None:
    with pytest.raises(InvalidModel, match="cycle"):
        GraphRunner.from_graph(graph([node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["a"])], [], ["a"]), OPSETS)
    with pytest.raises(InvalidModel, match="'z'"):
        GraphRunner.from_graph(graph([node("Neg", ["z"], ["y"])], ["x"], ["y"]), OPSETS).run([f32(1)])


def test_subgraphs_see_outer_values_at_any_depth() -> None:
    inner = graph([node("Add", ["x", "c"], ["t"])], [], ["t"])
    other = graph([node("Identity", ["c"], ["e"])], [], ["e"])
    outer = graph([node("If", ["cond"], ["u"], then_branch=inner, else_branch=other)], [], ["u"])
    assert captured_names(outer) == {"x", "c", "cond"}
    n = node("If", ["cond"], ["y"], then_branch=outer, else_branch=outer)
    m = helper.make_model(graph([node("Neg", ["x"], ["c"]), n], ["x", "cond"], ["y"]))
    m.opset_import[0].version = 17
    assert run_model(m, {"x": f32(2), "cond": np.array(True)})["y"].tolist() == [0]  # type: ignore[union-attr]
    assert run_model(m, {"x": f32(2), "cond": np.array(False)})["y"].tolist() == [-2]  # type: ignore[union-attr]


def _loop(nodes: list[onnx.NodeProto], names: list[str], outputs: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
    inputs = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), *(info(n) for n in names)]
    return helper.make_graph(nodes, "body", inputs, [info("c2", TensorProto.BOOL, []), *outputs])


def test_loop_counts_and_stops() -> None:
    nodes = [
        node("Add", ["v", "step"], ["v2"]), node("Identity", ["v2"], ["scan"]), node("Less", ["v2", "limit"], ["c2"]),
    ]  # fmt: skip
    body = _loop(nodes, ["v"], [info("v2"), info("scan")])
    n = node("Loop", ["m", "cond", "v0"], ["v", "s"], body=body)
    scope = {"step": f32(1), "limit": f32(3)}
    v, s = evaluate(n, OPSETS, [np.array(10), np.array(True), f32(0)], scope)
    assert v.tolist() == [3] and s.tolist() == [[1], [2], [3]]  # type: ignore[union-attr]
    v, s = evaluate(n, OPSETS, [np.array(2), np.array(True), f32(0)], scope)
    assert v.tolist() == [2] and s.shape == (2, 1)  # type: ignore[union-attr]
    v, s = evaluate(n, OPSETS, [None, np.array(True), f32(0)], scope)
    assert v.tolist() == [3]  # type: ignore[union-attr]


def test_a_loop_without_iterations_knows_the_shape_of_its_scan_outputs() -> None:
    nodes = [
        node("Identity", ["c"], ["c2"]),
        node("Identity", ["v"], ["v2"]),
        node("Concat", ["v", "v"], ["s"], axis=0),
    ]
    body = _loop(nodes, ["v"], [info("v2"), info("s")])
    n = node("Loop", ["m", "", "v0"], ["v", "s"], body=body)
    v, s = evaluate(n, OPSETS, [np.array(0), None, np.zeros((2, 3), np.float32)])
    assert v.shape == (2, 3) and s.shape == (0, 4, 3) and s.dtype == np.float32  # type: ignore[union-attr]


def test_scan_directions_and_axes() -> None:
    body = graph([node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["o"])], ["s", "x"], ["t", "o"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    n = node("Scan", ["s0", "x"], ["s", "y"], body=body, num_scan_inputs=1, scan_input_directions=[1],
             scan_input_axes=[1], scan_output_directions=[1], scan_output_axes=[-1])  # fmt: skip
    s, y = evaluate(n, OPSETS, [np.zeros(2, np.float32), x])
    np.testing.assert_array_equal(s, x.sum(1))
    np.testing.assert_array_equal(y, np.cumsum(x[:, ::-1], 1)[:, ::-1])


def test_scan_of_nothing() -> None:
    body = graph([node("Identity", ["s"], ["t"]), node("Neg", ["x"], ["o"])], ["s", "x"], ["t", "o"])
    n = node("Scan", ["s0", "x"], ["s", "y"], body=body, num_scan_inputs=1)
    s, y = evaluate(n, OPSETS, [f32(7), np.zeros((0, 2), np.float32)])
    assert s.tolist() == [7] and y.shape == (0, 2)  # type: ignore[union-attr]


def test_scan_of_opset_8_has_a_batch() -> None:
    body = graph([node("Add", ["s", "x"], ["t"]), node("Identity", ["t"], ["o"])], ["s", "x"], ["t", "o"])
    n = node("Scan", ["n", "s0", "x"], ["s", "y"], body=body, num_scan_inputs=1)
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    s, y = evaluate(n, {"": 8}, [np.array([3, 2]), np.zeros((2, 2), np.float32), x])
    np.testing.assert_array_equal(s, [x[0].sum(0), x[1, :2].sum(0)])
    np.testing.assert_array_equal(y[1, 2], [0, 0])  # type: ignore[index]


def test_model_functions_with_attributes_and_nesting() -> None:
    scaled = helper.make_function(
        "my", "Scaled", ["x"], ["y"],
        [_referring("Constant", [], ["k"], value_float="factor"), node("Mul", ["x", "k"], ["y"])],
        [helper.make_opsetid("", 17)], attributes=["factor"],
    )  # fmt: skip
    twice = helper.make_function(
        "my", "Twice", ["x"], ["y"],
        [helper.make_node("Scaled", ["x"], ["t"], domain="my", factor=2.0),
         helper.make_node("Scaled", ["t"], ["y"], domain="my", factor=5.0)],
        [helper.make_opsetid("my", 1)],
    )  # fmt: skip
    n = helper.make_node("Twice", ["x"], ["y"], domain="my")
    assert evaluate(n, {"my": 1}, [f32(1)], functions=[scaled, twice])[0].tolist() == [10]  # type: ignore[union-attr]


def _referring(op: str, inputs: list[str], outputs: list[str], **references: str) -> onnx.NodeProto:
    made = node(op, inputs, outputs)
    for name, target in references.items():
        attribute = made.attribute.add()
        attribute.name, attribute.ref_attr_name, attribute.type = name, target, onnx.AttributeProto.FLOAT
    return made


def test_a_model_function_may_replace_an_operator() -> None:
    mine = helper.make_function("", "Relu", ["x"], ["y"], [node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 17)])
    assert evaluate(node("Relu", ["x"], ["y"]), OPSETS, [f32(3)], functions=[mine])[0].tolist() == [-3]  # type: ignore[union-attr]


def test_optionals_and_sequences() -> None:
    assert evaluate(node("OptionalHasElement", ["x"], ["y"]), {"": 18}, [None])[0].tolist() is False  # type: ignore[union-attr]
    (s,) = evaluate(node("SequenceConstruct", ["a", "b"], ["s"]), OPSETS, [f32(1), f32(2)])
    (s2,) = evaluate(node("SequenceInsert", ["s", "t", "i"], ["r"]), OPSETS, [s, f32(3), np.array(-1)])
    assert [v.tolist() for v in s2] == [[1], [3], [2]]  # type: ignore[union-attr]
    assert len(s) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_the_seed_makes_random_numbers_repeatable(op: str) -> None:
    n = node(op, [], ["y"], shape=[50], seed=3.0)
    free = node(op, [], ["y"], shape=[50])
    first, second = (evaluate(n, OPSETS, [])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (evaluate(free, OPSETS, [])[0] != evaluate(free, OPSETS, [])[0]).any()  # type: ignore[union-attr]


def test_multinomial_follows_the_odds() -> None:
    odds = np.log(np.array([[0.1, 0.9], [0.5, 0.5]], np.float32))
    (y,) = evaluate(node("Multinomial", ["x"], ["y"], sample_size=4000, seed=1.0, dtype=7), OPSETS, [odds])
    np.testing.assert_allclose(y.mean(1), [0.9, 0.5], atol=0.03)  # type: ignore[union-attr]
    assert y.dtype == np.int64  # type: ignore[union-attr]


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "Softmax", "LayerNormalization", "MatMul"])
def test_half_precision_accumulates_wide(op: str) -> None:
    x = np.full((1, 6000), 1.0, np.float16)
    inputs = [x] + ([np.ones(6000, np.float16)] if op == "LayerNormalization" else [])
    if op == "MatMul":
        inputs = [x, x.T]
    n = node(op, [f"x{i}" for i in range(len(inputs))], ["y"])
    (y,) = evaluate(n, OPSETS, inputs)
    want = {"ReduceSum": 6000, "ReduceMean": 1, "Softmax": 1 / 6000, "LayerNormalization": 0, "MatMul": 6000}[op]
    np.testing.assert_allclose(y.astype(np.float64), np.full(y.shape, want), rtol=2e-3)  # type: ignore[union-attr]


def test_importing_the_provider_leaves_onnx_reference_usable() -> None:
    evaluate(helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"), {"com.microsoft": 1}, [f32(1)])
    from onnx.reference import ReferenceEvaluator

    m = helper.make_model(graph([node("Neg", ["x"], ["y"])], ["x"], ["y"]))
    assert ReferenceEvaluator(m).run(None, {"x": f32(1)})[0].tolist() == [-1]


BIG = 1 << 16


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Expand", [f32(1), np.array([BIG, BIG])]),
        ("Tile", [f32(1, 2), np.array([1 << 31])]),
        ("ConstantOfShape", [np.array([BIG, BIG])]),
        ("Range", [np.array(0), np.array(1 << 40), np.array(3)]),
        ("OneHot", [np.arange(3), np.array(1 << 40), f32(0, 1)]),
        ("Add", [np.zeros((BIG, 1), np.float32), np.zeros((1, BIG), np.float32)]),
        ("Where", [np.zeros((BIG, 1), np.bool_), np.zeros((1, BIG), np.float32), f32(1)]),
    ],
)
def test_outputs_beyond_2_31_elements_are_refused_before_they_are_made(op: str, inputs: list[Any]) -> None:
    names = [f"i{k}" for k in range(len(inputs))]
    with pytest.raises(ShapeError, match=rf"{op} .*shape \[\d+.* elements, at most 2147483648"):
        evaluate(node(op, names, ["y"]), OPSETS, inputs)


@pytest.mark.parametrize(("op", "second"), [("Tile", np.array([2, 2])), ("Add", f32(1, 2, 3))])
def test_what_an_operator_refuses_itself_is_told_by_it(op: str, second: Any) -> None:
    with pytest.raises(WebrtError) as caught:
        evaluate(node(op, ["a", "b"], ["y"]), OPSETS, [f32(1, 2), second])
    assert "elements, at most" not in str(caught.value)
