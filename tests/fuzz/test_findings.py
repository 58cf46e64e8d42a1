"""What fuzzing found, and other models that contradict themselves: each is refused by name, and soon."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz import judge
from tests.fuzz.plans import bases, packed
from tests.fuzz.seeds import GRAPHS, text_model
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import ModelError, WebrtError
from webrt.planfile import load
from webrt.validate import validate

Edit = Callable[[onnx.ModelProto], Any]


def model(graph: str) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(text_model(graph))


def one(op: str, *inputs: str, outputs: str = "y", **attributes: Any) -> onnx.ModelProto:
    """x float32[2, 4, 6] → a node → y."""
    node = helper.make_node(op, list(inputs) or ["x"], outputs.split(), name="node", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 6])
    made = [onnx.ValueInfoProto(name=o) for o in node.output]
    graph = helper.make_graph([node], "one", [x], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_tensor(made: onnx.ModelProto, array: Any, name: str = "w") -> onnx.ModelProto:
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return made


def edited(graph: str, edit: Edit) -> onnx.ModelProto:
    made = model(graph)
    edit(made)
    return made


def cycle(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[0] = "b"


def nowhere(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[0] = "nowhere"


def reversed_chain(count: int) -> onnx.ModelProto:
    """A chain of so many nodes, last one first."""
    nodes = [helper.make_node("Tanh", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes[::-1], "chain", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def nested(depth: int) -> bytes:
    """An If in an If …, written as protobuf's own bytes."""
    inner = b""
    for _ in range(depth):
        node = _field(4, b"If") + _field(5, _field(1, b"then_branch") + _field(6, inner) + b"\xa0\x01\x05")
        inner = _field(1, node) + _field(2, b"g")
    return b"\x08\x0a" + _field(7, inner) + _field(8, b"\x0a\x00\x10\x15")


def _field(number: int, data: bytes) -> bytes:
    length, size = b"", len(data)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


CHAIN = GRAPHS["chain"]


def again(items: str) -> bytes:
    """The chain with the first of its nodes, inputs or outputs listed twice."""
    made = model(CHAIN)
    listed = getattr(made.graph, items)
    listed.add().CopyFrom(listed[0])
    return bytes(made.SerializeToString())


def two_values() -> onnx.ModelProto:
    made = model(GRAPHS["shapes"])
    constant = next(n for n in made.graph.node if n.op_type == "Constant")
    constant.attribute.add().CopyFrom(constant.attribute[0])
    return made


def parts_without_end() -> onnx.ModelProto:
    """A Split of a constant."""
    made = with_tensor(one("Split", axis=2, num_outputs=2**62, outputs="y z"), np.ones((2, 4, 6), np.float32), "x")
    del made.graph.input[:]
    return made


def damaged(count: int) -> onnx.ModelProto:
    """A shape to fill with a number that has so many bytes; the shape is constant."""
    made = with_tensor(one("ConstantOfShape", "w"), np.array([2, 3]))
    value = TensorProto(name="v", data_type=TensorProto.FLOAT, dims=[1], raw_data=bytes(count))
    made.graph.node[0].attribute.append(helper.make_attribute("value", value))
    return made


def factors_of_other_sizes() -> onnx.ModelProto:
    """x · a · b where a and b do not broadcast."""
    made = with_tensor(with_tensor(one("Mul", "x", "a"), np.ones((4, 6), "f"), "a"), np.ones((4, 5), "f"), "b")
    made.graph.node[0].output[0] = "t"
    made.graph.node.append(helper.make_node("Mul", ["t", "b"], ["y"]))
    return made


def scan_of_a_number() -> onnx.ModelProto:
    """A Scan over a tensor that has no axis."""
    made = model(GRAPHS["scan"])
    del made.graph.input[1].type.tensor_type.shape.dim[:]
    return made


def of_rank(before: int, more: int) -> onnx.ModelProto:
    """An input of so many axes, which gets `more` others."""
    made = with_tensor(one("Unsqueeze", "x", "w"), np.arange(more))
    shape = made.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for _ in range(before):
        shape.dim.add().dim_value = 1
    return made


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a cycle": (lambda: edited(CHAIN, cycle), "cycle"),
    "a name that nothing makes": (lambda: edited(CHAIN, nowhere), "nowhere"),
    "two nodes with one output": (lambda: again("node"), "'?a'?"),
    "two outputs with one name": (lambda: again("output"), "twice|y"),
    "two inputs with one name": (lambda: again("input"), "x"),
    "10 000 subgraphs, one in the other": (lambda: nested(10_000), "no ONNX model"),
    "80 subgraphs, one in the other": (lambda: nested(80), "nested|no ONNX model"),
    "a name that is no UTF-8": (lambda: text_model(CHAIN).replace(b"Softmax", b"Soft\xffax"), "no UTF-8"),
    "a Constant with two values": (two_values, "Constant|value_ints"),
    "a value of too many bytes": (lambda: damaged(12), "damaged|do not fit together|reshape"),
    "a value of half a number": (lambda: damaged(5), "damaged|do not fit together|multiple"),
    "factors that do not broadcast": (factors_of_other_sizes, "broadcast|6 and 5"),
    "an input of 65 axes": (lambda: of_rank(65, 1), "input 'x' has rank 65"),
    "an output of 65 axes": (lambda: of_rank(64, 1), "its output has rank 65"),
    "a scan over a number": (scan_of_a_number, "Scan"),
    "axes that are complex numbers": (
        lambda: with_tensor(one("ReduceMin", "x", "w"), np.ones(1, np.complex64)),
        "'w' are complex64; real numbers",
    ),
    "axes that are texts": (
        lambda: with_tensor(one("ReduceMin", "x", "w"), np.array(["1"], object)),
        "'w' are string; real numbers",
    ),
    "a negative batch_dims": (lambda: with_tensor(one("GatherND", "x", "w", batch_dims=-3), [[0]]), "batch_dims"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    make, expected = REFUSED[name]
    with pytest.raises(WebrtError, match=expected):
        compile_model(make())


@pytest.mark.parametrize("text", ["²", "9" * 5000, "-1", "1" * 30])
def test_offsets_of_external_data_that_are_no_numbers(text: str) -> None:
    made = model(CHAIN)
    tensor = made.graph.initializer[0]
    del tensor.float_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w")
    tensor.external_data.add(key="offset", value=text)
    with pytest.raises(ModelError, match="no number"):
        compile_model(made, CompileOptions(external_data={"w": bytes(16)}))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"free_dims": {"nothing": 3}}, "no input has a dim named 'nothing'"),
        ({"known_inputs": {"x": np.ones((2, 5), np.float32)}}, "input 'x' is .*, \\[2, 5\\] was given"),
        ({"known_inputs": {"x": np.ones(4, np.float32)}}, "input 'x' is .*, \\[4\\] was given"),
        ({"known_inputs": {"x": np.array([True])}}, "input 'x' is float32, bool was given"),
        ({"seconds": -1.0}, "may take a number of seconds, not -1.0"),
        ({"seconds": 1e-9}, "out of time"),
    ],
)
def test_options_that_contradict_the_model(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(WebrtError, match=expected):
        compile_model(text_model(CHAIN), CompileOptions(**options))


def test_texts_are_not_given_as_booleans() -> None:
    with pytest.raises(WebrtError, match="is string, bool was given"):
        compile_model(text_model(GRAPHS["strings"]), CompileOptions(known_inputs={"x": np.array([True])}))


def test_time_within_the_limit() -> None:
    assert compile_model(text_model(CHAIN), CompileOptions(seconds=600)).steps


SHADOWS = (
    "agraph (float[n] x, bool c) => (float[n] y) { a = Abs(x)  y = If (c)"
    " <then_branch = p () => (float[n] a) { a = Neg(x) }, else_branch = q () => (float[n] a) { a = Exp(x) }> }"
)


def test_names_of_a_subgraph_that_shadow() -> None:
    verdict = judge.compile_verdict(text_model(SHADOWS), {"known_inputs": {"c": np.array(True)}})
    assert verdict == "plan" or "a" in verdict


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_nodes_in_reverse(count: int) -> None:
    assert len(compile_model(reversed_chain(count)).placement) == count


HUGE: dict[str, Callable[[], onnx.ModelProto]] = {
    "Split": parts_without_end,
    "Tile": lambda: with_tensor(one("Tile", "x", "w"), [2**20, 2**20, 1]),
    "Expand": lambda: with_tensor(one("Expand", "x", "w"), [2**20, 2, 4, 6]),
    "Upsample": lambda: with_tensor(one("Resize", "x", "", "w"), np.array([1, 2**31, 2], np.float32)),
    "ConstantOfShape": lambda: with_tensor(one("ConstantOfShape", "w"), [2**31, 2**31]),
    "ConvTranspose": lambda: with_tensor(one("ConvTranspose", "x", "w", strides=[2**40]), np.ones((4, 4, 2), "f")),
    "Pad": lambda: with_tensor(one("Pad", "x", "w"), [0, 0, 2**50, 0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_results_that_no_machine_holds(name: str) -> None:
    """Refused, or left to a run that will refuse; never attempted here, nor cut into endless windows."""
    verdict = judge.compile_verdict(HUGE[name]().SerializeToString(), {})
    assert verdict == "plan" or ":" in verdict


def test_sparse_tensors_of_any_declared_size() -> None:
    made = model(CHAIN)
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**40]))
    with pytest.raises(WebrtError, match="sparse tensor 's'"):
        compile_model(made)


@pytest.mark.parametrize(
    "edit",
    [
        lambda p: p["constants"][0].update(shape="ab"),
        lambda p: p["constants"][0].update(shape=[None]),
        lambda p: p["constants"][0].update(dtype=[]),
        lambda p: p["slots"][0].update(extra=1),
        lambda p: p["target"].update(limits={"maxBufferSize": True}),
        lambda p: p["target"].update(features="f16"),
        lambda p: p["target"].update(subgroup_sizes=[4]),
        lambda p: p["inputs"][0].update(dtype={}),
    ],
)
def test_plans_of_the_wrong_form(edit: Callable[[dict[str, Any]], None]) -> None:
    base, data = bases()[0]
    plan = copy.deepcopy(base)
    validate(load(packed(plan, data)))
    edit(plan)
    with pytest.raises(WebrtError):
        validate(load(packed(plan, data)))


def test_whole_numbers_may_be_written_with_a_point() -> None:
    """JavaScript cannot tell 16.0 from 16, so neither side may."""
    plan, data = bases()[0]
    assert type(plan["params_size"]) is int
    validate(load(packed({**plan, "params_size": float(plan["params_size"])}, data)))


def test_seeds_are_models() -> None:
    """All but those whose inputs decide their kernels give plans."""
    for seed in judge.model_seeds("")[:15]:
        verdict = judge.compile_verdict(seed, {"external_data": {"weights": bytes(16)}})
        assert verdict == "plan" or verdict.startswith("NotConstant"), verdict
