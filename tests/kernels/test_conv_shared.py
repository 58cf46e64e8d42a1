"""Every form of a convolution whose subgroups share pixels that this adapter can run: edges, groups, epilogues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from tests.kernels.harness import Array, device
from webrt import launches
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.ops import conv_quads as Q
from webrt.ops import conv_shared as S
from webrt.ops.product_variants import subgroups
from webrt.plan import Dispatch, Plan
from webrt.runtime.session import Session


def _here(form: S.Form) -> S.Form:
    """The form for this adapter: with its subgroup size, other requirements dropped."""
    lanes = device().target.subgroup_sizes[0]
    return replace(form, lanes=lanes, requires=subgroups(lanes, {}))


def _named(form: S.Form | Q.Quad) -> str:
    return f"{form.pixels}x{form.vectors}" + (f"-{form.across}" if isinstance(form, Q.Quad) else "")


@pytest.fixture(params=[*S.FORMS, *Q.QUADS], ids=_named)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S.Form | Q.Quad:
    """The only form that there is; quads are a part of all subgroups."""
    made: S.Form | Q.Quad = request.param
    if isinstance(made, Q.Quad):
        monkeypatch.setattr(S, "FORMS", ())
        monkeypatch.setattr(Q, "QUADS", (made,))
        monkeypatch.setattr(Q, "REQUIRES", subgroups(device().target.subgroup_sizes[0], {}))
        return made
    monkeypatch.setattr(S, "FORMS", (_here(made),))
    monkeypatch.setattr(S.Form, "fits", lambda form, outs: True)
    return made


def _model(x: str, w: Array, attrs: str, more: str = "", after: str = "c = Identity(b)") -> ModelProto:
    """A convolution between transpositions, so that its image is channels-last."""
    bias = np.random.default_rng(9).standard_normal(w.shape[0]).astype(np.float32)
    body = f"t = Transpose<perm=[0,3,1,2]>(x) b = Conv<{attrs}>(t, w, bias) {after} y = Transpose<perm=[0,2,3,1]>(c)"
    shapes = f"float[{','.join(map(str, w.shape))}] w, float[{w.shape[0]}] bias"
    y = f"float[n,h,v,{w.shape[0]}]"
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({x} x{more}, {shapes}) => ({y} y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")])
    del model.graph.input[-2:]
    return model


def _check(model: ModelProto, *feeds: dict[str, Array]) -> None:
    plan = compile_model(model, CompileOptions(target=device().target))
    assert any("subgroup_invocation_id" in text for text in _first_choices(plan))
    known = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with Session(plan, device()) as session:
        for fed in feeds:
            (want,), (got,) = known.run(None, fed), session.run(None, fed)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


LONG = """d = Constant<value_float=3.0>() e = Add(b, d) z = Constant<value_float=0.0>() s = Constant<value_float=6.0>()
  f = Clip(e, z, s) k = Mul(b, f) q = Div(k, s) r = Sigmoid(q) m = Mul(r, q) u = Tanh(m) c = Add(u, q)"""


def _first_choices(plan: Plan) -> set[str]:
    return {plan.kernels[s.alternatives[0][0]].wgsl for s in plan.steps if isinstance(s, Dispatch) and s.alternatives}


def floats(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CASES: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((1, 5, 7, 8), (16, 8, 3, 3), "pads=[1,1,1,1]"),
    ((2, 9, 6, 8), (44, 8, 2, 3), "pads=[0,1,2,0], strides=[2,1]"),
    ((1, 11, 13, 4), (48, 4, 3, 2), "dilations=[2,3], pads=[2,3,2,3], strides=[1,2]"),
    ((3, 4, 5, 16), (64, 8, 3, 3), "group=2, pads=[1,1,1,1]"),
    ((1, 6, 6, 24), (42, 24, 1, 3), "pads=[0,1,0,1]"),
    ((1, 2, 3, 20), (16, 20, 3, 3), "pads=[1,1,1,1]"),
    ((1, 10, 10, 3), (32, 3, 3, 3), "strides=[2,2], pads=[0,0,1,1]"),
]
POINTS: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((3, 9, 7, 12), (40, 12, 1, 1), "pads=[0,0,0,0]"),
    ((1, 6, 6, 16), (48, 8, 1, 1), "group=2"),
    ((2, 3, 3, 7), (5, 7, 1, 1), "pads=[0,0,0,0]"),
    ((1, 7, 9, 8), (24, 8, 1, 1), "strides=[2,3]"),
]


@pytest.mark.parametrize(("x", "w", "attrs"), CASES, ids=str)
def test_edges(form: S.Form, x: tuple[int, ...], w: tuple[int, ...], attrs: str) -> None:
    model = _model(f"float[{','.join(map(str, x))}]", floats(*w, seed=4), attrs)
    _check(model, {"x": floats(*x)})


@pytest.mark.parametrize(("x", "w", "attrs"), POINTS, ids=str)
@pytest.mark.parametrize("after", ["c = Relu(b)", LONG], ids=["few formulas", "many"])
def test_single_pixels(form: S.Form | Q.Quad, x: tuple[int, ...], w: tuple[int, ...], attrs: str, after: str) -> None:
    """Forms of larger subgroups are for windows alone."""
    if isinstance(form, Q.Quad):
        _check(_model(f"float[{','.join(map(str, x))}]", floats(*w, seed=4), attrs, after=after), {"x": floats(*x)})


@pytest.mark.parametrize(("outs", "after"), [(12, "c = Relu(b)"), (16, LONG), (3, "c = Identity(b)")], ids=str)
def test_pixels_that_become_several(form: S.Form | Q.Quad, outs: int, after: str) -> None:
    """Transposed convolutions whose windows lie side by side, after another convolution."""
    if isinstance(form, Q.Quad):
        after = after.replace("(b", "(several")
        after = f"several = ConvTranspose<strides=[2,3]>(b, spread) {after}"
        model = _model("float[2,5,7,8]", floats(8, 8, 1, 1, seed=4), "pads=[0,0,0,0]", after=after)
        model.graph.initializer.append(numpy_helper.from_array(floats(8, outs, 2, 3, seed=6), "spread"))
        model.graph.output[0].type.tensor_type.shape.dim[3].dim_value = outs
        _check(model, {"x": floats(2, 5, 7, 8)})


def test_more_workgroups_than_a_dimension_has(form: S.Form | Q.Quad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "MAX_GROUPS", 5)
    model = _model("float[1,40,23,8]", floats(16, 8, 3, 3, seed=4), "pads=[1,1,1,1]")
    _check(model, {"x": floats(1, 40, 23, 8)})


def test_an_epilogue_of_free_sizes(form: S.Form) -> None:
    more, after = ", float[n,32,h,v] r", "d = Add(b, r) e = Sigmoid(d) c = Mul(d, e)"
    model = _model("float[n,h,v,12]", floats(32, 12, 3, 3, seed=4), "pads=[1,1,1,1]", more, after)
    sizes = ((1, 4, 5), (2, 3, 3), (1, 17, 2), (1, 4, 5))
    _check(model, *({"x": floats(n, h, v, 12), "r": floats(n, 32, h, v, seed=5)} for n, h, v in sizes))


def test_values_that_are_no_numbers_stay_where_they_are(form: S.Form) -> None:
    """Nothing outside the image takes part, not even times zero."""
    x: Any = floats(1, 6, 6, 8)
    x[0, 0, 0], x[0, 5, 5] = np.inf, np.nan
    _check(_model("float[1,6,6,8]", floats(16, 8, 3, 3, seed=4), "pads=[1,1,1,1]"), {"x": x})


@pytest.mark.parametrize(("outs", "fitting"), [(16, ""), (48, ""), (64, "16x2 16x1"), (90, "16x1")])
def test_a_form_fits_where_it_wastes_little(outs: int, fitting: str) -> None:
    assert " ".join(f"{f.pixels}x{f.vectors}" for f in S.FORMS if f.fits(outs)) == fitting


@pytest.mark.parametrize(
    ("pixels", "outs", "span"), [(10_000, 96, 16), (10_000, 24, 24), (10_000, 8, 8), (10_000, 1, 4), (42, 320, 16)]
)
def test_a_quad_has_the_output_channels_that_there_are(pixels: int, outs: int, span: int) -> None:
    assert Q.quad(pixels, outs).span == span


@pytest.mark.parametrize("form", Q.QUADS, ids=_named)
def test_a_quad_computes_each_pixel_and_channel_once(form: Q.Quad) -> None:
    assert sum(size for _, size in form.parts) == form.vectors
    assert form.pixels % form.across == 0
    assert form.tile * form.span == Q.LANES * form.pixels * 4 * form.vectors
