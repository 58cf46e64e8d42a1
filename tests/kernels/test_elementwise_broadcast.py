"""Broadcasting: every form, known and free sizes, and what the kernels' text depends on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.elementwise_values import Array
from tests.kernels.harness import check_node, device, node_model, run_native
from tests.tolerance import close
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InputError, ShapeError
from webrt.host import CpuProvider
from webrt.runtime.session import Session
from webrt.target import BASE

Shape = tuple[int, ...]
FORMS: list[tuple[Shape, Shape]] = [
    ((), ()), ((5,), ()), ((), (3, 4)), ((1,), (1, 1, 1)), ((1, 1, 1), (7,)), ((2, 3, 4, 8), (2, 3, 4, 8)),
    ((2, 3, 8), (8,)), ((2, 3, 5), (5,)), ((2, 3, 8), (3, 1)), ((2, 3, 5), (1, 3, 1)), ((2, 1, 8), (1, 3, 1)),
    ((2, 3, 8), (2, 1, 8)), ((2, 3, 4, 8), (1, 3, 1, 8)), ((4, 1, 3, 1, 2), (1, 5, 1, 6, 2)),
    ((2, 1, 2, 1, 2, 1, 4), (1, 3, 1, 2, 1, 3, 1)), ((0, 3), (3,)), ((0, 3), (1, 1)), ((3, 0, 2), (3, 1, 2)),
]  # fmt: skip


def random(shape: Shape) -> Array:
    """float32 numbers from −30 to 30, the same for each shape."""
    return np.asarray(np.random.default_rng([7, *shape]).uniform(-30, 30, shape), np.float32)


@pytest.mark.parametrize(("a", "b"), FORMS)
def test_two_operands(a: Shape, b: Shape) -> None:
    for constants in ((), (0,), (1,)):
        check_node("Sub", [random(a), random(b)], constants=constants)
        check_node("Sub", [random(b), random(a)], constants=constants)


@pytest.mark.parametrize("dtype", ["float16", "int64", "uint8", "int16"])
@pytest.mark.parametrize(("a", "b"), FORMS)
def test_packed_and_wide_types(dtype: str, a: Shape, b: Shape) -> None:
    x, y = np.abs(random(a)).astype(dtype), np.abs(random(b)).astype(dtype)
    check_node("Sub", [x, y], expected=[x - y])
    check_node("Less", [x, y], expected=[x < y])


@pytest.mark.parametrize(("a", "b"), FORMS[::2])
@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float16", "float32", "int32", "uint16", "bfloat16"])
def test_where(dtype: str, a: Shape, b: Shape) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    condition, x, y = random(a) > 0, np.abs(random(b)).astype(kind), np.abs(random(b[-1:])).astype(kind)
    check_node("Where", [condition, x, y], expected=[np.where(condition, x, y)])


@pytest.mark.parametrize("name", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 20])
def test_variadic(name: str, count: int) -> None:
    """Also on a device of 8 storage buffers."""
    shapes: list[Shape] = [(3, 4), (4,), (3, 1), ()]
    inputs = [random(shapes[i % 4]) + np.float32(i) for i in range(count)]
    plan = check_node(name, inputs)
    check_node(name, [x.astype(np.float16) for x in inputs], symbolic=False)
    if name in ("Max", "Min"):
        check_node(name, [x.astype(np.int64) for x in inputs], symbolic=False)
    model, feeds = node_model(name, inputs)
    low = compile_model(model, CompileOptions(target=BASE))
    assert len(low.steps) >= len(plan.steps)
    assert all(len(getattr(s, "bindings", ())) <= 8 for s in low.steps)
    with Session(low, device(), CpuProvider()) as session:
        close(np.asarray(session.run(None, feeds)[0]), run_native(model, feeds)[0][0])


def test_kernel_text_does_not_depend_on_sizes() -> None:
    def texts(a: Shape, b: Shape, free: bool) -> list[str]:
        model, _ = node_model("Add", [random(a), random(b)], symbolic=free)
        return [k.wgsl for k in compile_model(model, CompileOptions(target=BASE)).kernels]

    assert texts((2, 3, 5), (3, 1), False) == texts((7, 9, 11), (9, 1), False)
    assert texts((5,), (5,), False) == texts((2, 3, 4), (2, 3, 4), False)
    assert texts((2, 5), (3, 1, 5), True) == texts((1, 5), (1, 1, 1), True)


@pytest.mark.parametrize(
    ("a", "b", "fours"),
    [
        ((5,), (5,), True), ((3, 5), (), True), ((3, 8), (8,), True), ((3, 8), (3, 1), True), ((3, 7), (7,), False),
        ((2, 3, 4), (3, 1), True),
    ],
)  # fmt: skip
def test_vectors_where_rows_allow(a: Shape, b: Shape, fours: bool) -> None:
    plan = check_node("Mul", [random(a), random(b)], symbolic=False)
    assert ("element4" in plan.kernels[0].wgsl) is fours


def test_sizes_that_do_not_broadcast() -> None:
    model, feeds = node_model("Add", [random((3, 4)), random((3, 1))], symbolic=True)
    plan = compile_model(model, CompileOptions(target=BASE))
    with Session(plan, device(), CpuProvider()) as session:
        with pytest.raises(InputError, match="do not broadcast"):
            session.run(None, {"x0": random((3, 4)), "x1": random((2, 4))})
        close(np.asarray(session.run(None, feeds)[0]), feeds["x0"] + feeds["x1"])
    with pytest.raises(ShapeError):
        compile_model(node_model("PRelu", [random((3, 1)), random((3, 4))])[0], CompileOptions(target=BASE))
