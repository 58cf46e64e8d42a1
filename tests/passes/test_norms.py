"""LayerNormalization and RMSNormalization from their pieces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.harness import check, ops, parse

ROW = np.linspace(-1, 1, 8, dtype=np.float32)
CONSTANTS = {
    "two": np.float32(2), "eps": np.float32(1e-5), "one": np.float32(1), "scale": ROW + 2, "bias": ROW,
    "axes": np.array([-1], np.int64),
}  # fmt: skip
LAYER = """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps)
s = Sqrt(e) n = Div(d, s) """
AFFINE = "k = Mul(n, scale) y = Add(k, bias)"


def norm_model(body: str, opset: int = 17, outputs: str = "float[a,b,c] y", **more: np.ndarray):
    if opset >= 18:
        body = body.replace("ReduceMean<axes=[-1]>(x)", "ReduceMean(x, axes)").replace("<axes=[-1]>(q)", "(q, axes)")
    constants = {**CONSTANTS, **more}
    used = {
        k: a
        for k, a in constants.items()
        if f"{k}" in body.replace(",", " ").replace(")", " ").replace("(", " ").split()
    }
    return parse(f"agraph (float[N,3,8] x) => ({outputs}) {{ {body} }}", used, opset)


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20])
def test_layer_normalization(opset: int) -> None:
    assert ops(check(norm_model(LAYER + AFFINE, opset))) == ["LayerNormalization"]


@pytest.mark.parametrize(
    "body",
    [
        LAYER.replace("Pow(d, two)", "Mul(d, d)") + AFFINE,
        LAYER.replace("n = Div(d, s)", "r = Reciprocal(s) n = Mul(r, d)") + AFFINE,
        LAYER.replace("n = Div(d, s)", "r = Div(one, s) n = Mul(d, r)") + AFFINE,
        LAYER.replace("Add(v, eps)", "Add(eps, v)") + "k = Mul(scale, n) y = Add(bias, k)",
        LAYER + "y = Mul(n, scale)",
        LAYER.replace("n = Div", "y = Div"),
    ],
)
def test_other_ways_to_write_it(body: str) -> None:
    assert ops(check(norm_model(body))) == ["LayerNormalization"]


def test_rms_normalization() -> None:
    body = "q = Mul(x, x) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) s = Sqrt(e) n = Div(x, s) y = Mul(n, scale)"
    assert ops(check(norm_model(body))) == ["RMSNormalization"]


def test_several_axes() -> None:
    body = (LAYER + "y = Mul(n, plane)").replace("[-1]", "[1, 2]")
    assert ops(check(norm_model(body, plane=np.stack([ROW + 2] * 3)))) == ["LayerNormalization"]


@pytest.mark.parametrize(
    "body",
    [
        LAYER.replace("[-1]", "[1]") + AFFINE.replace("scale", "column").replace("bias", "column"),
        LAYER.replace("m = ReduceMean<axes=[-1]>", "m = ReduceMean<axes=[1]>") + AFFINE,
        LAYER.replace("m = ReduceMean", "m = ReduceMax") + AFFINE,
        LAYER.replace("two", "three") + AFFINE,
        LAYER.replace("Add(v, eps)", "Sub(v, eps)") + AFFINE,
        LAYER.replace("d = Sub(x, m)", "d = Sub(m, x)") + AFFINE,
    ],
)
def test_what_only_looks_like_it(body: str) -> None:
    model = norm_model(body, three=np.float32(4), column=np.linspace(1, 2, 3, dtype=np.float32).reshape(3, 1))
    assert "LayerNormalization" not in ops(check(model))


@pytest.mark.parametrize("piece", ["d", "s", "v", "m"])
def test_pieces_that_are_outputs(piece: str) -> None:
    kept = norm_model(LAYER + AFFINE, outputs=f"float[a,b,c] y, float[d,e,f] {piece}")
    assert "LayerNormalization" not in ops(check(kept))


def test_large_factor_is_not_a_scale() -> None:
    model = norm_model(LAYER + "y = Mul(n, whole)", whole=np.stack([ROW, ROW + 1, ROW + 2]))
    assert ops(check(model)) == ["LayerNormalization", "Mul"]
