"""The least that a device may have, forced: every model is right there, or told by node and numbers before any work."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

import webrt
from tests.faults.models import HEAD, Array, Providers, model, nothing_left, own_device
from tests.tolerance import close
from webrt.errors import TargetError
from webrt.options import CPU

LOW = {
    "maxStorageBufferBindingSize": 1 << 20,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxComputeWorkgroupStorageSize": 16384,
}

NETWORK = (
    HEAD
    + """(float[N, 8, H, W] x, float[16, 8, 3, 3] w, float[16] b, float[16, 10] f) => (float[N, 10] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w, b)  r = Relu(c)  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    g = GlobalAveragePool(p)  v = Flatten(g)  m = MatMul(v, f)  y = Softmax(m) }"""
)
ATTENTION = (
    HEAD
    + """(float[B, S, 32] x, float[32, 32] q, float[32, 32] k) => (float[B, S, 32] y) {
    a = MatMul(x, q)  b = MatMul(x, k)  t = Transpose<perm = [0, 2, 1]>(b)  s = MatMul(a, t)
    e = Softmax<axis = 2>(s)  y = MatMul(e, x) }"""
)
_TWELVE = [f"x{i}" for i in range(12)]
MANY = (
    HEAD
    + f"""({", ".join(f"float[N] {x}" for x in _TWELVE)}) => (float[M] y, float[N] z)
    {{ y = Concat<axis = 0>({", ".join(_TWELVE)})  z = Sum({", ".join(_TWELVE)}) }}"""
)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def network(n: int, side: int) -> tuple[str, dict[str, Array]]:
    return NETWORK, {"x": draw(n, 8, side, side), "w": draw(16, 8, 3, 3), "b": draw(16), "f": draw(16, 10)}


def attention(batch: int, length: int) -> tuple[str, dict[str, Array]]:
    return ATTENTION, {"x": draw(batch, length, 32), "q": draw(32, 32), "k": draw(32, 32)}


def many(n: int) -> tuple[str, dict[str, Array]]:
    return MANY, {f"x{i}": draw(n) + i for i in range(12)}


def limited() -> Providers:
    return own_device(**LOW)


def low(text: str) -> webrt.InferenceSession:
    return webrt.InferenceSession(model(text), None, limited())


@pytest.mark.parametrize(
    ("text", "feeds"),
    [network(1, 8), network(2, 24), attention(2, 40), attention(1, 200), attention(4, 400), many(1000)],
)
def test_right_within_the_least_limits(text: str, feeds: dict[str, Array]) -> None:
    with low(text) as session, webrt.InferenceSession(model(text), None, [CPU]) as oracle:
        for got, want in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
            close(got, want)
        assert session.device.target.limit("maxStorageBufferBindingSize") == 1 << 20
        assert session.last_run.dispatches + session.last_run.copies > 0


@pytest.mark.parametrize(
    ("text", "feeds", "node"),
    [
        (*network(8, 96), "(Conv|MaxPool|Relu)"),
        (*attention(8, 1200), "(MatMul|Softmax|Attention)"),
        (*many(300_000), "(Sum|Concat)"),
    ],
)
def test_told_by_node_and_numbers_before_any_work(text: str, feeds: dict[str, Array], node: str) -> None:
    """Where a tensor is beyond a binding: the node, both numbers, no submit, nothing left; smaller feeds run."""
    with low(text) as session:
        counters = session.device.counters
        beyond = rf"{node} '.*': the tensor .* needs \d{{7,}} bytes .*maxStorageBufferBindingSize 1048576"
        with nothing_left(session.device), pytest.raises(TargetError, match=beyond):
            session.run(None, feeds)
        assert counters.submits == counters.dispatches == counters.copies == 0
        x = feeds.get("x")
        small = {"x": x[:1, :8, :8, :8] if text is NETWORK else x[:1, :8]} if x is not None else {}
        rest = {k: v[:100] for k, v in feeds.items() if text is MANY}
        session.run(None, {**feeds, **rest, **small})


def test_a_constant_that_is_beyond_the_least_limits() -> None:
    """It is read in windows, its node goes to the CPU provider, or it is told with both numbers."""
    big, x = draw(600, 600), draw(3, 600)
    graph = parser.parse_graph("g (float[N, 600] x) => (float[N, 600] y) { y = MatMul(x, w) }")
    graph.initializer.append(numpy_helper.from_array(big, "w"))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    try:
        with webrt.InferenceSession(made, None, limited()) as session:
            (y,) = session.run(None, {"x": x})
            np.testing.assert_allclose(y, x @ big, rtol=1e-3, atol=1e-3)
    except TargetError as e:
        assert "MatMul" in str(e) and "1440000 bytes" in str(e) and "1048576" in str(e)


def test_the_least_limits_are_named_in_the_plan() -> None:
    with low(NETWORK) as session:
        assert session.plan.target["limits"].items() >= LOW.items()
