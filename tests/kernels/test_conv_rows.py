"""Convolutions to few output channels by runs of a row: edges, strides, dilations, groups, bands, epilogues."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from tests.kernels.harness import Array, device, plain_device
from tests.kernels.test_conv_shared import LONG, _first_choices, _model, floats
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.ops import conv_rows as R
from webrt.ops.product_variants import subgroups
from webrt.ops.windows import Axis
from webrt.runtime.session import Session


@pytest.fixture(autouse=True)
def _shared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quads are a part of all subgroups."""
    requires = subgroups(device().target.subgroup_sizes[0], {})
    monkeypatch.setattr(R, "_SHARED", tuple((lanes, loader, requires) for lanes, loader, _ in R._SHARED))


def _check(model: ModelProto, *feeds: dict[str, Array]) -> None:
    plan = compile_model(model, CompileOptions(target=device().target))
    assert any("const APART" in text for text in _first_choices(plan))
    known = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with Session(plan, device()) as session:
        for fed in feeds:
            (want,), (got,) = known.run(None, fed), session.run(None, fed)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((1, 5, 16, 8), (1, 8, 3, 5), "pads=[1,2,1,2]"),
    ((2, 3, 13, 12), (1, 12, 3, 3), "pads=[1,1,1,1]"),
    ((1, 4, 19, 5), (1, 5, 2, 4), "pads=[0,3,1,0], strides=[2,1]"),
    ((1, 6, 21, 8), (2, 8, 3, 3), "pads=[1,1,1,1], strides=[1,2]"),
    ((1, 9, 30, 4), (2, 4, 3, 4), "dilations=[2,3], pads=[2,3,2,3]"),
    ((1, 9, 40, 4), (1, 4, 1, 6), "dilations=[1,4], strides=[1,6]"),
    ((1, 7, 50, 4), (1, 4, 3, 7), "dilations=[1,6], strides=[1,4]"),
    ((3, 3, 3, 8), (1, 8, 3, 3), "pads=[1,1,1,1]"),
    ((2, 5, 7, 20), (1, 20, 1, 1), "pads=[0,0,0,0]"),
    ((1, 3, 17, 4), (1, 4, 1, 11), "pads=[0,5,0,5]"),
    ((1, 5, 24, 8), (4, 8, 3, 3), "pads=[1,1,1,1]"),
    ((2, 6, 23, 4), (3, 4, 2, 5), "pads=[1,2,0,2]"),
    ((1, 4, 50, 4), (4, 4, 3, 4), "dilations=[1,2], pads=[1,1,1,2]"),
    ((1, 5, 12, 8), (8, 8, 3, 3), "pads=[1,1,1,1]"),
    ((1, 7, 11, 4), (6, 4, 3, 5), "pads=[1,2,1,2], strides=[2,1]"),
    ((2, 5, 24, 8), (16, 4, 3, 3), "group=2, pads=[1,1,1,1], strides=[1,2]"),
    ((1, 4, 20, 12), (12, 4, 1, 3), "group=3, pads=[0,1,0,1]"),
]


@pytest.mark.parametrize(("x", "w", "attrs"), CASES, ids=str)
def test_edges(x: tuple[int, ...], w: tuple[int, ...], attrs: str) -> None:
    model = _model(f"float[{','.join(map(str, x))}]", floats(*w, seed=4), attrs)
    _check(model, {"x": floats(*x)})


@pytest.mark.parametrize("outs", [1, 2, 4, 8])
@pytest.mark.parametrize("after", ["c = Sigmoid(b)", LONG], ids=["few formulas", "many"])
def test_epilogues(outs: int, after: str) -> None:
    model = _model("float[1,6,20,8]", floats(outs, 8, 3, 3, seed=4), "pads=[1,1,1,1]", after=after)
    _check(model, {"x": floats(1, 6, 20, 8)})


@pytest.mark.parametrize("outs", [1, 2, 4, 8])
def test_an_epilogue_of_free_sizes(outs: int) -> None:
    more, after = f", float[n,{outs},h,v] r", "d = Add(b, r) e = Sigmoid(d) c = Mul(d, e)"
    model = _model("float[n,h,v,12]", floats(outs, 12, 3, 3, seed=4), "pads=[1,1,1,1]", more, after)
    sizes = ((1, 4, 5), (2, 3, 8), (1, 17, 2), (1, 4, 33))
    _check(model, *({"x": floats(n, h, v, 12), "r": floats(n, outs, h, v, seed=5)} for n, h, v in sizes))


@pytest.mark.parametrize("outs", [1, 2, 8])
def test_an_image_is_taken_in_bands(outs: int) -> None:
    more, after = f", float[1,{outs},120,160] r", "c = Add(b, r)"
    model = _model("float[1,120,160,8]", floats(outs, 8, 3, 3, seed=4), "pads=[1,1,1,1]", more, after)
    _check(model, {"x": floats(1, 120, 160, 8), "r": floats(1, outs, 120, 160, seed=5)})


def test_a_signal_is_taken_in_bands() -> None:
    """One row, whose taps become channels: windows of every second pixel overlap."""
    model = _model("float[1,1,40001,1]", floats(1, 1, 1, 64, seed=4), "strides=[1,2]")
    _check(model, {"x": floats(1, 1, 40001, 1)})


@pytest.mark.parametrize("outs", [1, 4, 8])
def test_values_that_are_no_numbers_stay_where_they_are(outs: int) -> None:
    """Nothing outside the image or the window takes part, not even times zero."""
    model = _model("float[1,4,24,8]", np.ones((outs, 8, 3, 3), np.float32), "pads=[1,1,1,1]")
    x = floats(1, 4, 24, 8)
    x[0, 1, 11, 3] = np.inf
    plan = compile_model(model, CompileOptions(target=device().target))
    with Session(plan, device()) as session:
        (y,) = session.run(None, {"x": x})
    assert np.isfinite(y[0, :, :10]).all() and np.isfinite(y[0, :, 13:]).all() and np.isfinite(y[0, 3]).all()
    assert np.isinf(y[0, :3, 10:13]).all()


def test_runs_are_for_windows_that_overlap_in_rows_that_they_fill() -> None:
    width = Axis(264, 39, 1, 1, 19, 19, 264)
    assert R.run_of(8, 264, width) == R.Run(4, 2, 3)
    assert R.run_of(1, 3, width) == R.Run(2, 0, 3, 1)
    assert R.run_of(8, 5, width) is None
    assert R.run_of(9, 264, width) is None
    assert R.run_of(4, 264, Axis(264, 3, 3, 1, 0, 0, 88)) is None


@pytest.mark.parametrize("outs", [1, 2])
def test_other_adapters_read_the_same_weights(outs: int) -> None:
    model = _model("float[1,5,13,8]", floats(outs, 8, 3, 3, seed=4), "pads=[1,1,1,1]", after="c = Sigmoid(b)")
    x = floats(1, 5, 13, 8)
    (want,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with plain_device() as plain, Session(compile_model(model, CompileOptions(target=plain.target)), plain) as session:
        (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(1, 1), (1, 2)])
def test_a_transposed_convolution_to_one_or_two_numbers(kernel: tuple[int, int]) -> None:
    strides = f"strides=[{kernel[0]},{kernel[1]}]"
    body = f"t = Transpose<perm=[0,3,1,2]>(x) c = ConvTranspose<{strides}>(t, w) y = Transpose<perm=[0,2,3,1]>(c)"
    head = f"float[1,4,6,8] x, float[8,1,{kernel[0]},{kernel[1]}] w"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({head}) => (float[1,4,v,1] y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(floats(8, 1, *kernel, seed=4), "w"))
    del model.graph.input[-1:]
    x = floats(1, 4, 6, 8)
    (want,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with Session(compile_model(model, CompileOptions(target=device().target)), device()) as session:
        (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
