"""Models that are small and would become large: refused by what is predicted of them, before anything grows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import webrt
from tests.fuzz.seeds import GRAPHS, text_model
from webrt.bounds import Bounds, told
from webrt.compiler import unroll
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InputError, InvalidModel, ModelError, PlanError, ShapeError, WebrtError

F, I64 = TensorProto.FLOAT, TensorProto.INT64
info, node = helper.make_tensor_value_info, helper.make_node
MOST = 1 << 20


def model(
    nodes: Sequence[onnx.NodeProto], ins: Sequence[Any], outs: Sequence[Any], more: Sequence[Any] = (), **extra: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(ins), list(outs), list(more))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("l", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **extra)


def array(value: Any, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def functions(depth: int) -> onnx.ModelProto:
    """Each function calls the one before it twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("l", 1)]
    made = [helper.make_function("l", "f0", ["a"], ["b"], [node("Abs", ["a"], ["b"])], opsets)]
    for i in range(1, depth):
        calls = [node(f"f{i - 1}", [a], [b], domain="l") for a, b in (("a", "t"), ("t", "b"))]
        made.append(helper.make_function("l", f"f{i}", ["a"], ["b"], calls, opsets))
    call = node(f"f{depth - 1}", ["x"], ["y"], domain="l")
    return model([call], [info("x", F, [2])], [info("y", F, [2])], functions=made)


def arithmetic(step: Callable[[int], Sequence[onnx.NodeProto]], count: int) -> onnx.ModelProto:
    """s0 = Shape(x), steps from s{i} to s{i+1}, a tensor of that shape."""
    nodes = [node("Shape", ["x"], ["s0"]), *(n for i in range(count) for n in step(i))]
    nodes.append(node("ConstantOfShape", [f"s{count}"], ["y"]))
    numbers = [array([k], f"c{k}") for k in (3, 5)]
    return model(nodes, [info("x", F, ["n"])], [info("y", F, ["m"])], numbers)


def doubled(i: int) -> list[onnx.NodeProto]:
    """s/3 + s/5: written out it is twice as long as s."""
    parts = [node("Div", [f"s{i}", f"c{k}"], [f"{i}.{k}"]) for k in (3, 5)]
    return [*parts, node("Add", [f"{i}.3", f"{i}.5"], [f"s{i + 1}"])]


def squared(i: int) -> list[onnx.NodeProto]:
    return [node("Add", [f"s{i}", "c3"], [f"a{i}"]), node("Mul", [f"a{i}", f"s{i}"], [f"s{i + 1}"])]


def divided(i: int) -> list[onnx.NodeProto]:
    return [node("Add", [f"s{i}", "c3"], [f"a{i}"]), node("Div", [f"a{i}", "c5"], [f"s{i + 1}"])]


def powers() -> onnx.ModelProto:
    """A number squared again and again."""
    made = arithmetic(lambda i: [node("Mul", [f"s{i}", f"s{i}"], [f"s{i + 1}"])], 60)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    return made


def loops(depth: int) -> onnx.ModelProto:
    """A loop of 64 iterations in a loop of 64 iterations …"""

    def body(d: int) -> onnx.GraphProto:
        inner = (
            node("Loop", ["trips", "go", f"a{d}"], [f"b{d}"], body=body(d - 1))
            if d
            else node("Sin", [f"a{d}"], [f"b{d}"])
        )
        ins = [info(f"i{d}", I64, []), info(f"on{d}", TensorProto.BOOL, []), info(f"a{d}", F, [2])]
        outs = [info(f"m{d}", TensorProto.BOOL, []), info(f"b{d}", F, [2])]
        return helper.make_graph([node("Identity", [f"on{d}"], [f"m{d}"]), inner], f"b{d}", ins, outs)

    outer = node("Loop", ["trips", "go", "x"], ["y"], body=body(depth - 1))
    numbers = [array(np.int64(64), "trips"), array(np.True_, "go")]
    return model([outer], [info("x", F, [2])], [info("y", F, [2])], numbers)


def slow_condition() -> onnx.ModelProto:
    """A loop's condition that takes 2**30 evaluations, were each done as often as it is read."""
    nodes = [node("Not", ["on"], ["c0"]), *(node("And", [f"c{i}", f"c{i}"], [f"c{i + 1}"]) for i in range(30))]
    nodes.append(node("Sin", ["a"], ["b"]))
    ins = [info("i", I64, []), info("on", TensorProto.BOOL, []), info("a", F, [2])]
    outs = [info("c30", TensorProto.BOOL, []), info("b", F, [2])]
    loop = node("Loop", ["", "go", "x"], ["y"], body=helper.make_graph(nodes, "b", ins, outs))
    return model([loop], [info("x", F, [2])], [info("y", F, [2])], [array(np.True_, "go")])


def heavy_body() -> onnx.ModelProto:
    """A loop of 64 iterations, each with a tensor of 4 MB of its own."""
    nodes = [node("Identity", ["on"], ["m"]), node("Add", ["a", "w"], ["b"])]
    ins = [info("i", I64, []), info("on", TensorProto.BOOL, []), info("a", F, [1 << 20])]
    outs = [info("m", TensorProto.BOOL, []), info("b", F, [1 << 20])]
    body = helper.make_graph(nodes, "b", ins, outs, [array(np.ones(1 << 20, np.float32), "w")])
    loop = node("Loop", ["trips", "go", "x"], ["y"], body=body)
    numbers = [array(np.int64(64), "trips"), array(np.True_, "go")]
    return model([loop], [info("x", F, [1 << 20])], [info("y", F, [1 << 20])], numbers)


def shared_data(count: int) -> onnx.ModelProto:
    """So many tensors whose external data is the same."""
    tensors = []
    for i in range(count):
        t = TensorProto(name=f"w{i}", data_type=F, dims=[MOST // 16], data_location=TensorProto.EXTERNAL)
        t.external_data.add(key="location", value="w")
        tensors.append(t)
    total = node("Sum", [t.name for t in tensors], ["y"])
    return model([total], [], [info("y", F, [MOST // 16])], tensors)


def sparse(count: int) -> onnx.ModelProto:
    made = model([node("Sum", [f"s{i}" for i in range(count)], ["y"])], [], [info("y", F, [1 << 26])])
    for i in range(count):
        values, indices = helper.make_tensor(f"s{i}", F, [1], [1.0]), helper.make_tensor(f"i{i}", I64, [1], [0])
        made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 26]))
    return made


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], type[WebrtError], str]] = {
    "functions": (lambda: functions(25), InvalidModel, "16777216 nodes"),
    "a size of high powers": (lambda: arithmetic(squared, 20), ShapeError, "too long an expression|overflows"),
    "a number of high powers": (powers, ShapeError, "overflows"),
    "a size nested 1000 deep": (lambda: arithmetic(divided, 1000), ShapeError, "too long an expression"),
    "data that is named often": (lambda: shared_data(20), ModelError, "'w4' needs 262144 bytes.* of 1048576"),
    "sparse tensors": (lambda: sparse(20), ModelError, "sparse tensor 's0' needs 268435456 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_it_grows(name: str) -> None:
    make, error, expected = REFUSED[name]
    made = make().SerializeToString()
    tracemalloc.start()
    try:
        with pytest.raises(error, match=expected):
            compile_model(made, CompileOptions(memory=MOST, external_data={"w": bytes(MOST // 4)}))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_sizes_that_double_when_written_out() -> None:
    plan = compile_model(arithmetic(doubled, 60), CompileOptions(memory=MOST))
    assert len(plan.dims) < 300 and len(str(plan.meta)) < 10_000


def test_functions_that_call_one_another_a_few_times() -> None:
    assert len(compile_model(functions(6)).placement) == 32


def test_loops_within_loops_are_unrolled_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unroll, "MAX_UNROLLED", 200)
    placed = compile_model(loops(2)).placement
    assert len(placed) < 64 * 4 and any(p.how == "loop" for p in placed)


def test_a_condition_is_worked_out_once() -> None:
    assert compile_model(slow_condition()).placement


def test_a_body_with_much_data_stays_a_loop() -> None:
    assert len(compile_model(heavy_body()).placement) < 10


def test_a_file_larger_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(MOST + 1)
    with pytest.raises(InvalidModel, match="has 1048577 bytes, 1048576 may be taken"):
        compile_model(path, CompileOptions(memory=MOST))


def test_a_session_sets_the_limits() -> None:
    options = webrt.SessionOptions()
    options.add_session_config_entry("session.compile_memory", "1000000")
    with pytest.raises(ModelError, match="of 1000000; raise the limit"):
        webrt.InferenceSession(sparse(2).SerializeToString(), options, providers=["CPUExecutionProvider"])
    options.add_session_config_entry("session.compile_memory", "-5")
    with pytest.raises(InputError, match="number of bytes above 0"):
        webrt.InferenceSession(text_model(GRAPHS["chain"]), options, providers=["CPUExecutionProvider"])


def test_folds_stay_within_the_limit() -> None:
    """What does not fit is left to the run."""
    made = model(
        [node("Mul", ["a", "b"], ["c"]), node("Add", ["c", "x"], ["y"])], [info("x", F, [1])], [info("y", F, None)],
        [array(np.ones((600, 1), np.float32), "a"), array(np.ones((1, 600), np.float32), "b")],
    )  # fmt: skip
    assert [p.op for p in compile_model(made).placement] == ["Add"]
    assert [p.op for p in compile_model(made, CompileOptions(memory=MOST)).placement] == ["Mul", "Add"]


def folded(op: str, *arrays: Any, dtype: int = F, **attributes: Any) -> onnx.ModelProto:
    """A node of constants alone."""
    names = [f"a{k}" for k in range(len(arrays))]
    more = [array(a, n) for a, n in zip(arrays, names, strict=True)]
    return model([node(op, names, ["y"], **attributes)], [], [info("y", dtype, None)], more)


SLOW: dict[str, Callable[[], onnx.ModelProto]] = {
    "a product of integers": lambda: folded("MatMul", *[np.ones((1500, 1500), np.int64)] * 2, dtype=I64),
    "wide windows": lambda: folded(
        "MaxPool", np.ones((1, 1, 256, 256), np.float32), kernel_shape=[256, 256], pads=[255] * 4
    ),
    "a long sequence": lambda: folded(
        "RNN", np.ones((9000, 1, 1), np.float32), *[np.ones((1, 2, n), np.float32) for n in (1, 2)], hidden_size=2
    ),
    "a pattern that backtracks": lambda: folded(
        "RegexFullMatch", np.array(["a" * 40], object), dtype=TensorProto.BOOL, pattern="(a|a)*b"
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_folds_that_take_long_are_left_to_the_run(name: str) -> None:
    made = SLOW[name]()
    assert made.graph.node[0].op_type in [p.op for p in compile_model(made).placement]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(MemoryError(), "out of memory: X needs"), (RecursionError(), "X is nested"), (OverflowError("1"), "too large")],
)
def test_what_python_runs_out_of_is_told(raised: Exception, expected: str) -> None:
    with pytest.raises(PlanError, match=expected), told(PlanError, "X"):
        raise raised


def test_bounds_count() -> None:
    bounds = Bounds.of(None, 100)
    bounds.take(60, "a")
    assert bounds.left == 40
    with pytest.raises(ModelError, match="b needs 41 bytes, and compiling has taken 60 of 100"):
        bounds.take(41, "b")
