"""Islands of WebGPU among nodes on the CPU: those that cost less there are moved, all others stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.kernels.harness import oracle, run_native
from tests.passes.harness import compiled, feeds_of, parse
from tests.tolerance import close
from webrt.errors import PlacementError
from webrt.planfile import dump

NODES = "a = Exp(x) b = Neg(a) c = Abs(b) y = Tanh(c)"
ENDS = {"a": "cpu", "y": "cpu"}


def net(body: str = NODES, size: int | str = 10) -> onnx.ModelProto:
    """Nodes have the names of their outputs."""
    model = parse(f"agraph (float[{size}] x) => (float[{size}] y) {{ {body} }}")
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def moved(model: onnx.ModelProto, places: dict[str, str] = ENDS, **options: Any) -> list[str]:
    """The names of the nodes that were moved."""
    plan = compiled(model, places=places, **options)
    return [p.node for p in plan.placement if p.reason.startswith("moved to the CPU provider")]


def test_a_small_one_between_two_nodes_is_moved() -> None:
    model = net()
    feeds = feeds_of(model)
    (got,), plan = run_native(model, feeds, places=ENDS)
    close(got, oracle(model, feeds)[0])
    assert {p.how for p in plan.placement} == {"host"}
    (reason,) = {p.reason for p in plan.placement if p.node in ("b", "c")}
    assert reason.endswith("on WebGPU about 280 (1 dispatch, 2 transfers of 80 bytes, 1 wait)")
    assert dump(compiled(model, places=ENDS)) == dump(compiled(model, places=ENDS))


def test_free_sizes_need_a_bound() -> None:
    model = net(size="N")
    assert moved(model) == []
    assert moved(model, free_dims={"N": (1, 64)}) == ["b", "c"]
    assert moved(model, free_dims={"N": (1, 1 << 20)}) == []
    assert moved(model, free_dims={"N": 10}) == ["b", "c"]


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (NODES, {}),
        (NODES, {"a": "cpu"}),
        (NODES, {"y": "cpu"}),
        (NODES, {**ENDS, "b": "webgpu"}),
        ("a = Exp(x) b = MatMul(a, a) c = Add(b, a) y = Tanh(c)", ENDS),
        ("a = Exp(x) b = RandomUniformLike(a) y = Tanh(b)", ENDS),
        ("a = Exp(x) n = NonZero(a) f = Cast<to=1>(n) m = ReduceMax<keepdims=0>(f) y = Add(x, m)", ENDS),
    ],
)  # fmt: skip
def test_what_stays(body: str, places: dict[str, str]) -> None:
    assert moved(net(body), places) == []


@pytest.mark.parametrize("options", [{"disabled": ("move_islands",)}, {"level": "basic"}, {"level": "disabled"}])
def test_switched_off(options: dict[str, Any]) -> None:
    assert moved(net(), **options) == []


def test_a_large_one_stays() -> None:
    assert moved(net(size=1 << 16)) == []


def test_strict_moves_nothing() -> None:
    with pytest.raises(PlacementError, match=r"^2 nodes would run on the CPU, which the session forbids: Exp 'a'.*'y'"):
        compiled(net(), places=ENDS, strict=True)


def test_a_wait_is_saved_by_all_that_it_is_for() -> None:
    both = "a = Exp(x) b = Neg(a) c = Abs(a) y = Add(b, c)"
    assert moved(net(both)) == ["b", "c"]
    assert moved(net("a = Exp(x) b = Neg(a) m = MatMul(a, a) c = Abs(m) y = Add(b, c)")) == []


def test_an_optimised_model_is_placed_as_its_source_was(tmp_path: Path) -> None:
    plan = compiled(net(), places=ENDS, optimized_path=tmp_path / "out.onnx")
    again = compiled(onnx.load(tmp_path / "out.onnx"), places=ENDS, level="disabled")
    assert [(p.node, p.reason) for p in again.placement] == [(p.node, p.reason) for p in plan.placement]


APART = "a = MatMul(x, x) b = Exp(a) c = MatMul(x, a) d = Abs(c) e = MatMul(b, d) y = Neg(e)"


def square(body: str) -> onnx.ModelProto:
    model = parse(f"agraph (float[4,4] x) => (float[4,4] y) {{ {body} }}")
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def test_nodes_on_the_cpu_stand_together_where_that_saves_a_wait() -> None:
    model, places = square(APART), {"b": "cpu", "d": "cpu"}
    feeds = feeds_of(model)
    (got,), plan = run_native(model, feeds, places=places)
    close(got, oracle(model, feeds)[0])
    assert [p.node for p in plan.placement] == ["a", "c", "b", "d", "e", "y"]
    as_given = compiled(model, places=places, disabled=("join_segments",))
    assert [p.node for p in as_given.placement] == list("abcdey")


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (APART, {}),
        (APART, {"b": "cpu"}),
        ("a = MatMul(x, x) b = Exp(a) c = MatMul(b, a) d = Abs(c) y = MatMul(b, d)", {"b": "cpu", "d": "cpu"}),
        ("b = Exp(x) c = MatMul(x, x) d = Abs(x) e = MatMul(b, d) y = Add(e, c)", {"b": "cpu", "d": "cpu"}),
    ],
)  # fmt: skip
def test_where_no_wait_is_saved_the_order_stays(body: str, places: dict[str, str]) -> None:
    model = square(body)
    plan = compiled(model, places=places)
    assert [p.node for p in plan.placement] == [n.name for n in model.graph.node]
