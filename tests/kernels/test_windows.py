"""Tensors larger than one binding: bound by windows where a lowering can, else declined with both numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.kernels.harness import Array, device, node_model, oracle
from tests.tolerance import close
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import TargetError
from webrt.host import CpuProvider
from webrt.plan import Dispatch, Plan
from webrt.planfile import dump, load
from webrt.runtime.session import Session
from webrt.schemas import MS_DOMAIN
from webrt.target import BASE

RNG = np.random.default_rng(11)
LOW = BASE.with_limits(maxStorageBufferBindingSize=1 << 20)


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def low_plan(op: str, inputs: list[Array], attrs: dict[str, Any], constants: tuple[int, ...] = ()) -> Plan:
    """The node's plan for 1 MiB bindings, as its file gives it back; no dispatch of it binds more."""
    model, _ = node_model(op, inputs, attrs, constants=constants)
    plan = load(dump(compile_model(model, CompileOptions(target=LOW))))
    for step in plan.steps:
        for place, _, _, size in step.bindings if isinstance(step, Dispatch) else ():
            whole = plan.slots[place[1]].size if place[0] == "s" else plan.constants[place[1]].nbytes
            assert isinstance(whole, int)
            assert (size or whole) <= 1 << 20
    return plan


def check(op: str, inputs: list[Array], attrs: dict[str, Any], constants: tuple[int, ...] = ()) -> Plan:
    plan = low_plan(op, inputs, attrs, constants)
    assert not plan.host_steps, [p.reason for p in plan.placement]
    model, feeds = node_model(op, inputs, attrs, constants=constants)
    with Session(plan, device()) as session:
        close(session.run(None, feeds)[0], oracle(model, feeds)[0], atol=1e-3)
    return plan


def windows(plan: Plan) -> int:
    return sum(b[3] > 0 for s in plan.steps if isinstance(s, Dispatch) for b in s.bindings)


@pytest.mark.parametrize("constants", [(), (1, 2)], ids=["fed", "constant"])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1024, 512), (5, 1024, 512), (3, 515, 1023), (2, 1023, 514)])
def test_gemm_of_2_mib_of_weights(m: int, k: int, n: int, turned: int, constants: tuple[int, ...]) -> None:
    weights = floats(n, k) if turned else floats(k, n)
    inputs = [floats(m, k), weights, floats(n)]
    plan = check("Gemm", inputs, {"transB": turned, "alpha": 0.5, "beta": 2.0}, constants)
    assert windows(plan) >= 2


@pytest.mark.parametrize("constants", [(), (1,)], ids=["fed", "constant"])
def test_matmul_of_a_batch_and_large_weights(constants: tuple[int, ...]) -> None:
    assert windows(check("MatMul", [floats(3, 2, 600), floats(600, 500)], {}, constants)) == 2


def test_gemm_of_half_floats() -> None:
    inputs = [floats(*s, dtype=np.float16) for s in ((2, 1500), (514, 1500))]
    exact = (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64).T).astype(np.float16)
    plan = low_plan("Gemm", inputs, {"transB": 1})
    assert windows(plan) == 2
    with Session(plan, device()) as session:
        close(session.run(None, {"x0": inputs[0], "x1": inputs[1]})[0], exact, rtol=5e-3, atol=5e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_fill(dtype: type) -> None:
    count = 3 * (1 << 20) // np.dtype(dtype).itemsize - 3
    value = numpy_helper.from_array(np.array([7], dtype))
    plan = check("ConstantOfShape", [np.array([count])], {"value": value}, (0,))
    assert windows(plan) == 3


def test_range_and_expand() -> None:
    step = [np.array(x, np.int64) for x in (5, 5 + 3 * 400_001, 3)]
    assert windows(check("Range", step, {}, (0, 1, 2))) == 4
    assert windows(check("Expand", [floats(1, 1001), np.array([700, 1001])], {}, (1,))) == 3


def table(dtype: type, *shape: int) -> Array:
    return RNG.integers(-100, 100, shape).astype(dtype)


def places(size: int, *shape: int, dtype: type = np.int64) -> Array:
    """Indices into an axis, negative ones too, the first and the last among them."""
    found: Array = RNG.integers(-size, size, shape).astype(dtype)
    found.flat[:4] = (-size, size - 1, -1, 0)[: found.size]
    return found


@pytest.mark.parametrize("constants", [(), (0,)], ids=["fed", "constant"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.float32, (700, 512)), (np.float32, (701, 513)), (np.float16, (1500, 512)), (np.float16, (1501, 511)),
     (np.int64, (300, 601)), (np.uint8, (2500, 511)), (np.int32, (3, 100_003))],
)  # fmt: skip
def test_gather_of_a_table(dtype: type, shape: tuple[int, int], constants: tuple[int, ...]) -> None:
    wide = shape[0] == 3
    indices = places(shape[0], *((2,) if wide else (2, 5)), dtype=np.int32 if wide else np.int64)
    assert windows(check("Gather", [table(dtype, *shape), indices], {}, constants)) == 2


def test_gather_along_another_axis_and_of_one_row() -> None:
    """A row that starts and ends at words is copied; of one that does not there are launches."""
    assert windows(check("Gather", [table(np.float32, 2, 700, 300), places(700, 9)], {"axis": 1})) == 2
    assert windows(check("Gather", [table(np.float16, 600, 1001), np.array(-3)], {}, (1,))) == 2
    assert windows(check("Gather", [table(np.float16, 600, 1002), np.array(-3)], {}, (1,))) == 0


def test_gather_of_as_many_indices_as_a_run_brings() -> None:
    model, feeds = node_model("Gather", [table(np.float32, 700, 512), places(700, 2, 3)], symbolic={1}, constants=(0,))
    plan = load(dump(compile_model(model, CompileOptions(target=LOW))))
    assert not plan.host_steps and windows(plan) == 2
    with Session(plan, device()) as session:
        for indices in (feeds["x1"], places(700, 1, 17), places(700, 7, 1), np.zeros((0, 4), np.int64)):
            feeds["x1"] = indices
            np.testing.assert_array_equal(session.run(None, feeds)[0], oracle(model, feeds)[0])


def test_gather_of_indices_out_of_range_reads_the_last_row() -> None:
    x, indices = table(np.float32, 700, 512), np.array([700, -701, 5, 1 << 40])
    with Session(low_plan("Gather", [x, indices], {}, (0,)), device()) as session:
        np.testing.assert_array_equal(session.run(None, {"x1": indices})[0], x[[699, 699, 5, 699]])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gather_to_a_result_larger_than_a_binding(dtype: type) -> None:
    assert windows(check("Gather", [table(dtype, 1001, 601), places(1001, 1300)], {}, (0,))) >= 4


def test_gather_nd_and_gather_elements() -> None:
    pairs = np.stack([places(600, 40), places(5, 40)], 1)
    assert windows(check("GatherND", [table(np.float32, 600, 5, 101), pairs], {})) == 2
    assert windows(check("GatherElements", [table(np.float16, 900, 701), places(900, 6, 701)], {})) == 2
    assert windows(check("GatherElements", [table(np.int64, 300, 600), places(600, 300, 3)], {"axis": 1})) == 2


@pytest.mark.parametrize(("bits", "rows"), [(4, 4200), (8, 2100)])
def test_gather_of_a_table_in_blocks(bits: int, rows: int) -> None:
    data = RNG.integers(0, 256, (rows, 512 * bits // 8)).astype(np.uint8)
    scales, indices = floats(rows, 16), places(rows, 3, 4)
    attrs = {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    inputs = [data, indices, scales]
    model, feeds = node_model("GatherBlockQuantized", inputs, attrs, domain=MS_DOMAIN, constants=(0, 2))
    plan = compile_model(model, CompileOptions(target=LOW))
    assert not plan.host_steps and windows(plan) == 2
    numbers = data if bits == 8 else np.stack([data & 15, data >> 4], -1).reshape(rows, 512)
    wide = (numbers.astype(np.float32) - (1 << (bits - 1))) * scales.repeat(32, 1)
    with Session(plan, device()) as session:
        close(session.run(None, feeds)[0], wide[indices])


def test_a_gathered_row_and_what_is_computed_of_it() -> None:
    """Formulas after a lookup in windows stay kernels of their own: none takes the lookup in."""
    nodes = [helper.make_node("Gather", ["w", "i"], ["a"]), helper.make_node("Add", ["a", "a"], ["y"])]
    w, i = table(np.float32, 700, 512), places(700, 6)
    infos = [helper.make_tensor_value_info("i", 7, [6])], [helper.make_tensor_value_info("y", 1, [6, 512])]
    graph = helper.make_graph(nodes, "g", *infos, [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    plan = compile_model(model, CompileOptions(target=LOW))
    assert not plan.host_steps and windows(plan) == 2
    with Session(plan, device()) as session:
        np.testing.assert_array_equal(session.run(None, {"i": i})[0], 2 * w[i])


@pytest.mark.parametrize(
    ("weights", "spatial"),
    [((260, 120, 3, 3), (5, 6)), ((1100, 300, 1, 1), (3, 4)), ((1100, 300, 1, 1), (1, 1)), ((130, 1000, 3), (9,)),
     ((1001, 3, 11, 11), (8, 7))],
)  # fmt: skip
def test_convolutions_of_large_weights(weights: tuple[int, ...], spatial: tuple[int, ...]) -> None:
    inputs = [floats(2, weights[1], *spatial), floats(*weights) / 16, floats(weights[0])]
    pads = [(k - 1) // 2 for k in weights[2:]] * 2
    assert windows(check("Conv", inputs, {"pads": pads}, (1, 2))) == 2


def test_a_convolution_of_large_weights_and_what_is_added_to_it() -> None:
    """Each window's launch reads the operand of the formula that it takes in at the places of its own channels."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "r"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    feeds = {"x": floats(2, 120, 5, 6), "r": floats(2, 260, 5, 6)}
    infos = [helper.make_tensor_value_info(k, 1, v.shape) for k, v in feeds.items()]
    w = numpy_helper.from_array(floats(260, 120, 3, 3) / 16, "w")
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", 1, [2, 260, 5, 6])], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    plan = compile_model(model, CompileOptions(target=LOW))
    assert not plan.host_steps and windows(plan) == len(plan.steps) == 2
    with Session(plan, device()) as session:
        close(session.run(None, feeds)[0], oracle(model, feeds)[0], atol=1e-3)


def test_transposed_convolution_of_large_weights() -> None:
    inputs = [floats(1, 200, 4, 5), floats(200, 170, 3, 3) / 16]
    assert windows(check("ConvTranspose", inputs, {"strides": [2, 2]}, (1,))) == 2


def test_other_nodes_are_declined_with_both_numbers() -> None:
    x = floats(600, 600)
    model, feeds = node_model("Transpose", [x])
    plan = compile_model(model, CompileOptions(target=LOW))
    assert [p.provider for p in plan.placement] == ["cpu"]
    assert "1440000 bytes, the target has maxStorageBufferBindingSize 1048576" in plan.placement[0].reason
    with Session(plan, device(), CpuProvider()) as session:
        np.testing.assert_array_equal(session.run(None, feeds)[0], x.T)


def test_small_tensors_share_no_slot_with_large_ones() -> None:
    """The large one is free before the small ones are made: a slot of its size would not fit their whole bindings."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("ConstantOfShape", ["s"], ["w"], value=numpy_helper.from_array(np.array([0.5], np.float32))),
    ]
    graph = helper.make_graph(
        nodes[3:] + nodes[:3], "g", [helper.make_tensor_value_info("x", 1, [2, 1024])],
        [helper.make_tensor_value_info("y", 1, [2, 512])], [numpy_helper.from_array(np.array([512, 1024]), "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    plan = compile_model(model, CompileOptions(target=LOW))
    x = np.abs(floats(2, 1024))
    with Session(plan, device()) as session:
        close(session.run(None, {"x": x})[0], np.tile(-0.5 * x.sum(1, keepdims=True), (1, 512)), rtol=1e-3)


def test_sizes_known_at_the_run_keep_to_the_plans_limits() -> None:
    """A plan for less than WebGPU guarantees runs as on so small a device, whatever the device is."""
    model, _ = node_model("Relu", [floats(4, 4)], symbolic=True)
    plan = compile_model(model, CompileOptions(target=LOW))
    with Session(plan, device()) as session:
        assert session.run(None, {"x0": floats(512, 512)})[0].shape == (512, 512)
        with pytest.raises(TargetError, match="needs 1050624 bytes.*maxStorageBufferBindingSize 1048576"):
            session.run(None, {"x0": floats(513, 512)})


def test_a_tensor_larger_than_a_buffer_is_refused_before_anything_is_submitted() -> None:
    small = BASE.with_limits(maxStorageBufferBindingSize=1 << 20, maxBufferSize=3 << 20)
    value = numpy_helper.from_array(np.array([7], np.float32))
    model, _ = node_model("ConstantOfShape", [np.array([1 << 20])], {"value": value}, constants=(0,))
    plan = compile_model(model, CompileOptions(target=small))
    before = device().counters.submits, device().counters.created
    with pytest.raises(TargetError, match="needs 4194304 bytes.*maxBufferSize 3145728"):
        Session(plan, device())
    assert (device().counters.submits, device().counters.created) == before
