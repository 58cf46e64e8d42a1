"""Depthwise convolutions of channels-last images against ONNX Runtime: all kinds of windows, strips that end early."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from tests.kernels.harness import Array, device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.ops import depthwise_last as L
from webrt.ops.product_variants import subgroups
from webrt.runtime.session import Session


def floats(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(x: str, channels: int, kernel: tuple[int, int], attrs: str, after: str = "c = Identity(b)") -> ModelProto:
    w, bias = floats(channels, 1, *kernel, seed=4), floats(channels, seed=5)
    body = f"t = Transpose<perm=[0,3,1,2]>(x) b = Conv<group={channels}, {attrs}>(t, w, bias) {after}"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({x} x) => (float[n,h,v,{channels}] y)'
    model = parser.parse_model(f"{text} {{ {body} y = Transpose<perm=[0,2,3,1]>(c) }}")
    model.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")])
    return model


def _check(model: ModelProto, *inputs: Array, swept: bool | None = None) -> None:
    plan = compile_model(model, CompileOptions(target=device().target))
    assert "depthwise_last" in {k.name for k in plan.kernels}
    assert swept is None or swept == ("let turns" in plan.kernels[0].wgsl)
    known = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with Session(plan, device()) as session:
        for x in inputs:
            (want,), (got,) = known.run(None, {"x": x}), session.run(None, {"x": x})
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


CASES: list[tuple[tuple[int, ...], tuple[int, int], str]] = [
    ((1, 35, 9, 8), (3, 3), "pads=[1,1,1,1]"),
    ((2, 18, 7, 4), (3, 3), "pads=[0,0,1,1], strides=[2,2]"),
    ((1, 20, 11, 8), (5, 5), "pads=[2,2,2,2]"),
    ((1, 37, 11, 4), (5, 3), "pads=[2,1,2,1], strides=[2,1]"),
    ((1, 21, 13, 8), (3, 3), "pads=[2,3,2,3], dilations=[2,3]"),
    ((1, 21, 13, 4), (3, 2), "pads=[4,0,4,0], dilations=[4,1], strides=[3,2]"),
    ((1, 19, 9, 4), (2, 2), "strides=[3,3]"),
    ((1, 40, 9, 4), (1, 7), "pads=[0,3,0,3]"),
    ((1, 20, 4, 4), (9, 1), "pads=[4,0,4,0]"),
    ((1, 20, 21, 4), (7, 7), "pads=[3,3,3,3], strides=[2,1], dilations=[1,2]"),
    ((3, 2, 2, 4), (3, 3), "pads=[1,1,1,1]"),
    ((1, 19, 12, 8), (3, 3), "pads=[1,1,1,1]"),
    ((2, 17, 15, 4), (3, 3), "pads=[1,1,1,1], strides=[2,2]"),
    ((1, 18, 10, 4), (5, 5), "pads=[2,3,2,3]"),
    ((1, 18, 10, 4), (3, 3), "pads=[0,0,0,0]"),
]


@pytest.mark.parametrize(("x", "kernel", "attrs"), CASES, ids=str)
def test_windows(x: tuple[int, ...], kernel: tuple[int, int], attrs: str) -> None:
    _check(_model(f"float[{','.join(map(str, x))}]", x[-1], kernel, attrs), floats(*x))


SWEPT: list[tuple[tuple[int, ...], tuple[int, int], str, str]] = [
    ((1, 35, 9, 8), (3, 3), "pads=[1,1,1,1]", "c = Relu(b)"),
    ((2, 18, 17, 4), (3, 3), "pads=[0,0,1,1], strides=[2,2]", "c = Identity(b)"),
    ((1, 17, 15, 4), (5, 5), "pads=[2,2,2,2], strides=[2,2]", "c = HardSwish(b)"),
    ((1, 20, 4, 8), (5, 5), "pads=[2,2,2,2]", "c = Identity(b)"),
    ((1, 21, 13, 8), (3, 3), "pads=[2,3,2,3], dilations=[2,3]", "c = Identity(b)"),
    ((1, 21, 29, 4), (3, 2), "pads=[4,0,4,0], dilations=[4,1], strides=[3,2]", "c = Identity(b)"),
    ((1, 19, 23, 4), (2, 2), "strides=[3,3]", "c = Identity(b)"),
    ((1, 40, 11, 4), (1, 7), "pads=[0,3,0,3]", "c = Identity(b)"),
    ((2, 18, 3, 4), (3, 3), "pads=[1,1,1,1]", "c = Relu(b)"),
    ((2, 18, 2, 4), (3, 5), "pads=[1,2,1,2]", "c = Relu(b)"),
]


@pytest.mark.parametrize(("x", "kernel", "attrs", "after"), SWEPT, ids=str)
def test_sweeps(
    x: tuple[int, ...], kernel: tuple[int, int], attrs: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form for SwiftShader is right on every adapter, where strips overlap too."""
    monkeypatch.setattr(L, "REQUIRES", subgroups(device().target.subgroup_sizes[0], {}))
    _check(_model(f"float[{','.join(map(str, x))}]", x[-1], kernel, attrs, after), floats(*x), swept=True)


@pytest.mark.parametrize("strides", ["1,1", "2,2"])
def test_sweeps_of_free_sizes(strides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are shorter than a strip, too."""
    monkeypatch.setattr(L, "REQUIRES", subgroups(device().target.subgroup_sizes[0], {}))
    model = _model("float[n,h,v,8]", 8, (3, 3), f"pads=[1,1,1,1], strides=[{strides}]", "c = Relu(b)")
    sizes = ((1, 4, 5), (2, 33, 3), (1, 17, 1), (1, 20, 17), (2, 5, 14))
    _check(model, *(floats(n, h, v, 8) for n, h, v in sizes), swept=True)


@pytest.mark.parametrize("after", ["c = Relu(b)", "d = Sigmoid(b) e = Mul(b, d) f = Softplus(e) c = Softplus(f)"])
def test_an_epilogue_of_free_sizes(after: str) -> None:
    model = _model("float[n,h,v,12]", 12, (3, 3), "pads=[1,1,1,1]", after)
    _check(model, *(floats(n, h, v, 12) for n, h, v in ((1, 4, 5), (2, 33, 3), (1, 17, 2), (1, 4, 5))))


def test_values_that_are_no_numbers_stay_where_they_are() -> None:
    """Neither what a strip reads above its first row nor what lies outside the image takes part."""
    x = floats(1, 36, 6, 8)
    x[0, 0, 0], x[0, 14, 3], x[0, 35, 5] = np.inf, np.nan, -np.inf
    _check(_model("float[1,36,6,8]", 8, (3, 3), "pads=[1,1,1,1]"), x)
