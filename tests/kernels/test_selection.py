"""Outputs whose size only the data tell: NonZero, Compress, Unique, NonMaxSuppression, and nodes that use them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from tests.kernels.harness import check_node, device, node_model
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.host import run_model
from webrt.plan import Read
from webrt.runtime.session import Session

rng = np.random.default_rng(5)
SHAPES = [(3, 4, 5), (7,), (5000, 3), (3, 0), (1, 1, 2, 1, 3)]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "int8", "float16"])
def test_non_zero(dtype: str) -> None:
    for shape in SHAPES:
        plan = check_node("NonZero", [rng.integers(0, 2, shape).astype(dtype)], opset=13, expected=None)
        assert any(isinstance(s, Read) for s in plan.steps)
        (line,) = plan.placement
        assert (line.how, line.bytes, line.reason) == ("kernel", 4, "reads back the size of its output")
    check_node("NonZero", [np.zeros((4, 2), dtype)])
    x = np.array([0.0, -0.0, np.nan, np.inf, -1e-30], np.float32)
    check_node("NonZero", [x], expected=[np.array([[2, 3, 4]])])


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
def test_compress(dtype: str) -> None:
    x, two = rng.integers(-9, 9, (3, 5, 4)).astype(dtype), np.array([True, True])
    for axis, wanted in ((None, rng.integers(0, 2, 50) > 0), (0, two), (-2, rng.integers(0, 2, 5) > 0), (2, two[:1])):
        check_node("Compress", [x, wanted], {} if axis is None else {"axis": axis}, opset=11)
    check_node("Compress", [x, np.zeros(3, bool)], {"axis": 0}, opset=11)


@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(ordered: int) -> None:
    for dtype in ("float32", "int64", "int8"):
        x = rng.integers(0, 9, 700).astype(dtype)
        check_node("Unique", [x], {"sorted": ordered}, outputs=4, opset=11)
    for wanted in ([True, False, False, True], [True, False, True, False]):
        check_node("Unique", [x], {"sorted": ordered}, outputs=wanted, opset=11)
    for axis in (0, 1, -1):
        x = rng.integers(0, 2, (5, 3, 2)).astype(np.float32)
        check_node("Unique", [x], {"sorted": ordered, "axis": axis}, outputs=4, opset=11, symbolic=False)
    odd = np.array([1, np.nan, 2, np.nan, -0.0, 0.0, np.inf, -np.inf], np.float32)
    model, feeds = node_model("Unique", [odd], {"sorted": ordered}, outputs=4, opset=11)
    want = list(run_model(model, feeds).values())
    check_node("Unique", [odd], {"sorted": ordered}, outputs=4, opset=11, expected=want)
    check_node("Unique", [np.zeros(0, np.float32)], {"sorted": ordered}, outputs=4, opset=11)


def test_unique_of_microsoft() -> None:
    check_node("Unique", [rng.integers(0, 9, 40).astype(np.float32)], outputs=3, domain="com.microsoft")


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 1, 6), (2, 3, 40), (1, 2, 300)], ids=str)
def test_non_max_suppression(sizes: tuple[int, int, int], centred: int) -> None:
    batches, classes, count = sizes
    boxes = rng.uniform(0, 1, (batches, count, 4)).astype(np.float32)
    boxes[..., 2:] *= 0.4 if centred else 1
    scores = rng.uniform(0, 1, (batches, classes, count)).astype(np.float32).round(2)
    numbers = [np.array([20], np.int64), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    attrs = {"center_point_box": centred}
    for given in (5, 4, 3):
        check_node("NonMaxSuppression", [boxes, scores, *numbers[: given - 2]], attrs, opset=11, constants=[2])
    check_node("NonMaxSuppression", [boxes, scores, *numbers], attrs, opset=11, symbolic=(0, 1))
    check_node("NonMaxSuppression", [boxes, scores], attrs, opset=11)


def test_sizes_are_read_back_and_runs_settle() -> None:
    """What follows has exact sizes; the second run of equal feeds makes nothing, and other feeds give other sizes."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> m (float[n] x, float limit) => (float[k] y, float total, int64[1] c) '
        "{ big = Greater (x, limit) kept = Compress (x, big) two = Add (kept, kept) y = Relu (two) "
        "total = ReduceSum <keepdims = 0> (kept) c = Shape (kept) }"
    )
    plan = compile_model(model, CompileOptions(target=device().target))
    assert not plan.host_steps and sum(isinstance(s, Read) for s in plan.steps) == 1
    with Session(plan, device()) as session:
        for seed, limit in ((0, 0.0), (1, 0.5), (1, 9.0), (0, 0.0)):
            x = np.random.default_rng(seed).normal(size=300).astype(np.float32)
            for again in (False, True):
                y, total, count = session.run(None, {"x": x, "limit": np.array(limit, np.float32)})
                kept = x[x > limit]
                np.testing.assert_allclose(y, np.maximum(kept + kept, 0), rtol=1e-6)
                np.testing.assert_allclose(total, kept.sum(), rtol=1e-4, atol=1e-4)
                assert count == [len(kept)]
                stats = session.last_run
                assert not again or (stats.buffers, stats.pipelines, stats.submits) == (0, 0, 2)
