"""Which fills are folded: those that stay small, or that make no more than twice what they are given."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from webrt.compiler.compile import compile_model
from webrt.plan import Plan


def plan_of(op: str, *inputs: np.ndarray[tuple[int, ...], np.dtype[np.generic]], rank: int) -> Plan:
    """Adds x to a node of constants."""
    names = [f"c{i}" for i in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["fill"]), helper.make_node("Add", ["x", "fill"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1] * rank)],
        [helper.make_tensor_value_info("y", 1, ["n"] * rank)],
        [numpy_helper.from_array(a, n) for n, a in zip(names, inputs)],
    )
    return compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def carried(plan: Plan) -> int:
    return sum(c.nbytes for c in plan.constants)


@pytest.mark.parametrize(("side", "folded"), [(512, True), (513, False)])
def test_constant_of_shape(side: int, folded: bool) -> None:
    plan = plan_of("ConstantOfShape", np.array([side, side]), rank=2)
    assert (len(plan.steps), carried(plan)) == ((1, 4 * side * side) if folded else (2, 0))


def test_expand_of_little() -> None:
    little = np.ones((1, 700), np.float32)
    plan = plan_of("Expand", little, np.array([700, 700]), rank=2)
    assert (len(plan.steps), carried(plan)) == (1, little.nbytes)


def test_expand_that_makes_nothing_new() -> None:
    much = np.ones((700, 700), np.float32)
    plan = plan_of("Expand", much, np.array([700, 700]), rank=2)
    assert (len(plan.steps), carried(plan)) == (1, much.nbytes)
