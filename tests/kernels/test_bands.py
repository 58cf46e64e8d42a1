"""Large operands that kernels take a band at a time: the values of the whole, and no texture of more than a band."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from tests.kernels.harness import Array, device, plain_device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.ops import bands
from webrt.plan import Dispatch, Plan
from webrt.runtime.footprint import footprint
from webrt.runtime.session import Session
from webrt.target import BASE

SMALL = 4096


@pytest.fixture(autouse=True)
def _small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "BAND", SMALL)


def floats(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _conv(x: tuple[int, ...], w: tuple[int, ...], attrs: str, after: str = "c = Relu(b)") -> ModelProto:
    """A convolution between transpositions, so that its image is channels-last; `after` may read r, of its shape."""
    body = f"t = Transpose<perm=[0,3,1,2]>(x) b = Conv<{attrs}>(t, w, bias) {after}"
    shape = ",".join(map(str, x))
    head = f"g (float[{shape}] x, float[n,h,v,{w[0]}] r) => (float[n,h,v,{w[0]}] y)"
    body = f"q = Transpose<perm=[0,3,1,2]>(r) {body} y = Transpose<perm=[0,2,3,1]>(c)"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {head} {{ {body} }}')
    model.graph.initializer.extend(
        [numpy_helper.from_array(floats(*w, seed=4), "w"), numpy_helper.from_array(floats(w[0], seed=5), "bias")]
    )
    return model


def _plan(model: ModelProto, **dims: int) -> Plan:
    return compile_model(model, CompileOptions(target=device().target, free_dims=dims))


def _large_dispatches(plan: Plan) -> int:
    """The dispatches that belong to a node with several of one kernel."""
    steps = [s for s in plan.steps if isinstance(s, Dispatch)]
    return sum(a.node == b.node and a.alternatives[0][0] == b.alternatives[0][0] for a, b in pairwise(steps))


def _check(model: ModelProto, feeds: dict[str, Array]) -> int:
    """Agrees with ONNX Runtime, in several dispatches. The bytes of their textures."""
    known = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = known.run(None, feeds)
    plan = _plan(model, **dict(zip("nhv", want.shape)) if want.ndim == 4 else {})
    assert _large_dispatches(plan)
    held = footprint(plan, device().target)
    assert held is not None
    with Session(plan, device()) as session:
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, feeds)[0], want, rtol=1e-4, atol=1e-4)
    return held.textures


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((1, 33, 17, 8), (16, 8, 3, 3), "pads=[1,1,1,1]"),
    ((1, 40, 20, 8), (32, 8, 3, 2), "pads=[1,0,1,1], strides=[2,1]"),
    ((3, 21, 19, 8), (5, 8, 3, 3), "pads=[2,1,2,1], dilations=[2,1]"),
    ((9, 6, 6, 8), (16, 8, 3, 3), "pads=[1,1,1,1]"),
    ((1, 1, 700, 8), (24, 8, 1, 5), "pads=[0,2,0,2]"),
    ((2, 1, 300, 8), (8, 8, 1, 3), "pads=[0,1,0,1], strides=[1,2]"),
    ((1, 31, 23, 12), (20, 12, 1, 1), "pads=[0,0,0,0]"),
    ((1, 30, 30, 8), (8, 8, 1, 1), "strides=[2,2]"),
    ((1, 33, 17, 8), (16, 4, 3, 3), "group=2, pads=[1,1,1,1]"),
    ((1, 40, 11, 8), (8, 1, 3, 3), "group=8, pads=[1,1,1,1]"),
    ((2, 41, 11, 8), (8, 1, 5, 3), "group=8, pads=[2,1,2,1], strides=[2,1]"),
    ((5, 10, 11, 8), (8, 1, 3, 3), "group=8, pads=[1,1,1,1], strides=[2,2]"),
    ((1, 1, 500, 8), (8, 1, 1, 3), "group=8, pads=[0,1,0,1]"),
    ((1, 40, 21, 4), (4, 1, 7, 7), "group=4, pads=[3,3,3,3], strides=[2,1], dilations=[1,2]"),
]


@pytest.mark.parametrize(("x", "w", "attrs"), CONVS, ids=str)
@pytest.mark.parametrize("after", ["c = Relu(b)", "c = Add(b, q)"])
def test_convolutions(x: tuple[int, ...], w: tuple[int, ...], attrs: str, after: str) -> None:
    model = _conv(x, w, attrs, after)
    known = ort.InferenceSession(_conv(x, w, attrs).SerializeToString(), providers=["CPUExecutionProvider"])
    shape = known.run(None, {"x": floats(*x), "r": floats(1, 1, 1, w[0])})[0].shape
    feeds = {"x": floats(*x), "r": floats(*shape, seed=8)}
    _check(model, feeds)


@pytest.mark.parametrize("w", [(8, 8, 3, 3), (8, 1, 3, 3)], ids=str)
def test_textures_hold_a_band(monkeypatch: pytest.MonkeyPatch, w: tuple[int, ...]) -> None:
    """And as much of what is added to it, where the copy of x would have 8 times as much."""
    monkeypatch.setattr(bands, "BAND", 1 << 16)
    x = (1, 256, 64, 8)
    model = _conv(x, w, f"group={8 // w[1]}, pads=[1,1,1,1]", "c = Add(b, q)")
    assert _check(model, {"x": floats(*x), "r": floats(*x, seed=8)}) <= 2 << 16


def test_a_convolution_that_spreads_pixels() -> None:
    model = _conv((1, 24, 16, 16), (16, 16, 1, 1), "pads=[0,0,0,0]", "c = ConvTranspose<strides=[2,2]>(b, spread)")
    model.graph.initializer.append(numpy_helper.from_array(floats(16, 16, 2, 2, seed=6), "spread"))
    _check(model, {"x": floats(1, 24, 16, 16), "r": floats(1, 48, 32, 16)})


def _product(m: int, k: int, n: int, after: str) -> ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{m},{k}] x, float[{m},{n}] r) => (float[{m},{n}] y)'
    model = parser.parse_model(f"{text} {{ c = MatMul(x, w) {after} }}")
    model.graph.initializer.append(numpy_helper.from_array(floats(k, n, seed=4), "w"))
    return model


@pytest.mark.parametrize(("m", "k", "n"), [(301, 32, 64), (130, 37, 40), (77, 60, 33)])
@pytest.mark.parametrize("after", ["y = Relu(c)", "y = Add(c, r)", "d = Mul(c, s) y = Add(d, r)"])
def test_products(m: int, k: int, n: int, after: str) -> None:
    model = _product(m, k, n, after)
    model.graph.initializer.append(numpy_helper.from_array(floats(n, seed=6), "s"))
    _check(model, {"x": floats(m, k), "r": floats(m, n, seed=8)})


def test_what_is_not_split() -> None:
    """Small operands, free sizes, other adapters and plans for any of them."""
    model = _conv((1, 33, 17, 8), (16, 8, 3, 3), "pads=[1,1,1,1]")
    sizes = {"n": 1, "h": 33, "v": 17}
    with plain_device() as other:
        for target in (other.target, BASE):
            assert not _large_dispatches(compile_model(model, CompileOptions(target=target, free_dims=sizes)))
    assert not _large_dispatches(_plan(_conv((1, 7, 7, 8), (16, 8, 3, 3), "pads=[1,1,1,1]"), n=1, h=7, v=7))
    free = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[m,32] x) => (float[m,64] y) { y = MatMul(x, w) }'
    )
    free.graph.initializer.append(numpy_helper.from_array(floats(32, 64), "w"))
    assert not _large_dispatches(_plan(free))
