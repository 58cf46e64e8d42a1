"""Functions and subgraphs that contradict themselves, or that would grow without end: each is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InvalidModel

Nodes = Sequence[onnx.NodeProto]
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


def whole(nodes: Nodes, functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    """Of x float32[N] and c bool → y."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "whole", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10, functions=functions)


def body(nodes: Nodes, output: str) -> onnx.GraphProto:
    made = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, "body", [], [made])


def branches(then: Nodes, output: str = "t") -> onnx.ModelProto:
    """An If with these nodes in one of its branches."""
    other = body([helper.make_node("Neg", ["x"], ["e"])], "e")
    node = helper.make_node("If", ["c"], ["y"], then_branch=body(then, output), else_branch=other)
    return whole([helper.make_node("Abs", ["x"], ["outer"]), node])


def calling(count: int, nodes: Callable[[str], list[onnx.NodeProto]]) -> onnx.ModelProto:
    """`count` functions, each of them calling the next as `nodes` has it; the last is Relu."""
    functions = []
    for i in range(count):
        inner = [helper.make_node("Relu", ["a"], ["b"])] if i == count - 1 else nodes(f"F{i + 1}")
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], inner, OPSETS))
    return whole([helper.make_node("F0", ["x"], ["y"], domain="own")], functions)


def twice(callee: str) -> list[onnx.NodeProto]:
    return [helper.make_node(callee, [a], [b], domain="own") for a, b in (("a", "t"), ("t", "b"))]


def in_branches(callee: str) -> list[onnx.NodeProto]:
    """A call within eight branches."""
    inner = [helper.make_node(callee, ["a"], ["q"], domain="own")]
    name = "q"
    for depth in range(8):
        other = body([helper.make_node("Neg", ["a"], [f"e{depth}"])], f"e{depth}")
        node = helper.make_node("If", ["k"], [f"q{depth}"], then_branch=body(inner, name), else_branch=other)
        inner, name = [node], f"q{depth}"
    known = helper.make_node("Constant", [], ["k"], value=helper.make_tensor("k", TensorProto.BOOL, [], [True]))
    return [known, *inner, helper.make_node("Identity", [name], ["b"])]


def in_memory(depth: int) -> onnx.ModelProto:
    """Subgraphs in subgraphs that never were bytes, which protobuf would refuse to read."""
    made = whole([helper.make_node("Relu", ["x"], ["y"])])
    graph = made.graph
    for _ in range(depth):
        graph = graph.node.add(op_type="If", input=["c"], output=["y"]).attribute.add(name="then_branch", type=5).g
    return made


def relu(a: str, b: str) -> onnx.NodeProto:
    return helper.make_node("Relu", [a], [b])


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "a cycle in a branch": (lambda: branches([relu("u", "t"), relu("t", "u")]), "'u'"),
    "a name that nothing makes": (lambda: branches([relu("nowhere", "t")]), "nowhere"),
    "a value of a branch made twice": (lambda: branches([relu("x", "t"), relu("x", "t")]), "'t'"),
    "an output of a branch that nothing makes": (lambda: branches([relu("x", "u")]), "'t'"),
    "a name of the graph around": (lambda: branches([relu("x", "outer"), relu("outer", "t")]), "'outer'"),
    "a function that calls itself": (lambda: calling(2, lambda _: twice("F0")), "F0 -> own::F0"),
    "functions that double 40 times": (lambda: calling(41, twice), "'F0'.*549755813888|'F0'.*1099511627776"),
    "functions in branches in functions": (lambda: calling(12, in_branches), "nested 88 deep"),
    "10 000 functions": (lambda: calling(10_000, lambda f: [*twice(f)[:1], relu("t", "b")]), "depth exceeds"),
    "100 000 subgraphs in memory": (lambda: in_memory(100_000), "nested more than 64 deep"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    make, expected = REFUSED[name]
    with pytest.raises(InvalidModel, match=expected):
        compile_model(make(), CompileOptions(seconds=60))


@pytest.mark.parametrize("make", [lambda: calling(8, twice), lambda: calling(3, in_branches)])
def test_what_fits_compiles(make: Callable[[], onnx.ModelProto]) -> None:
    assert compile_model(make()).steps


def test_branches_may_use_one_name_for_two_things() -> None:
    """The output of a branch may have the name of what the If makes, and of one in the other branch."""
    parts = {k: body([helper.make_node(op, ["x"], ["y"])], "y") for k, op in (("then", "Relu"), ("else", "Neg"))}
    model = whole([helper.make_node("If", ["c"], ["y"], then_branch=parts["then"], else_branch=parts["else"])])
    for known, op in ((True, "Relu"), (False, "Neg")):
        plan = compile_model(model, CompileOptions(known_inputs={"c": np.array(known)}))
        assert [p.op for p in plan.placement] == [op]
