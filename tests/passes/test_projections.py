"""Projections that one attention reads as one product: where, and where not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.harness import Array, check, compiled, dispatches, ops, parse
from webrt.target import PRESETS

RNG = np.random.default_rng(5)
SMALL: dict[str, Array] = {
    "by_head": np.array([0, 0, 3, 8]), "flat": np.array([0, 0, 24]), "scale": np.array(8**-0.5, np.float32),
}  # fmt: skip


def constants(names: str, dtype: str = "float32") -> dict[str, Array]:
    """A matrix [16, 24] for each name with a w, a vector [24] for each other."""
    shapes = {n: (16, 24) if n.startswith("w") else (24,) for n in names.split()}
    return {n: (RNG.standard_normal(s) / 4).astype(dtype) for n, s in shapes.items()}


HEADS = """
  q4 = Reshape(q, by_head) q5 = Transpose<perm=[0,2,1,3]>(q4) qh = Mul(q5, scale)
  k4 = Reshape(k, by_head) kh = Transpose<perm=[0,2,3,1]>(k4)
  v4 = Reshape(v, by_head) vh = Transpose<perm=[0,2,1,3]>(v4)
  s = MatMul(qh, kh) w = Softmax<axis=-1>(s) r = MatMul(w, vh)
  rt = Transpose<perm=[0,2,1,3]>(r) y = Reshape(rt, flat)
"""
PROJECTED = """
  q0 = MatMul(x, wq) q = Add(q0, bq) k = MatMul(x, wk) v0 = MatMul(x, wv) v = Add(bv, v0)
"""
NAMES = "wq wk wv bq bv"


def model(body: str = PROJECTED + HEADS, inputs: str = "float[2,S,16] x", outputs: str = "float[2,S,24] y",
          more: dict[str, Array] | None = None, opset: int = 20) -> onnx.ModelProto:  # fmt: skip
    held = {**constants(NAMES), **SMALL, **(more or {})}
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {body} }}", held, opset)


@pytest.mark.parametrize("opset", [12, 13, 20])
def test_one_product_that_the_attention_reads_in_parts(opset: int) -> None:
    made = model(opset=opset)
    plan = check(made)
    assert dispatches(plan) == 2
    assert "Split" not in ops(plan)
    assert dispatches(compiled(made, disabled={"join_projections"})) == 4


def test_by_gemm() -> None:
    rows = """x2 = Reshape(x, rows) q2 = Gemm<transB=1>(x2, tq, bq) k2 = Gemm(x2, wk) v2 = Gemm(x2, wv, bv)
              q = Reshape(q2, back) k = Reshape(k2, back) v = Reshape(v2, back)"""
    more = {"rows": np.array([-1, 16]), "back": np.array([2, 5, 24]), "tq": constants("wq")["wq"].T.copy()}
    plan = check(model(rows + HEADS, "float[2,5,16] x", "float[2,5,24] y", more))
    assert dispatches(plan) == 2


def test_keys_and_values_of_another_input() -> None:
    body = PROJECTED.replace("(x, wk)", "(z, wk)").replace("(x, wv)", "(z, wv)")
    plan = check(model(body + HEADS, "float[2,S,16] x, float[2,T,16] z"))
    assert dispatches(plan) == 4


@pytest.mark.parametrize("what", ["no attention", "odd columns", "other sizes"])
def test_stay_apart(what: str) -> None:
    more: dict[str, Array] = {}
    body, outputs = PROJECTED + HEADS, "float[2,S,24] y"
    if what == "no attention":
        body, outputs = PROJECTED + "y = Sum(q, k, v)", "float[2,S,24] y"
    elif what == "odd columns":
        more = {n: a[..., :18].copy() for n, a in constants(NAMES).items()}
        more |= {"by_head": np.array([0, 0, 3, 6]), "flat": np.array([0, 0, 18])}
        outputs = "float[2,S,18] y"
    else:
        more = {"by_head": np.array([0, 3, -1, 8])}
        body = body.replace("perm=[0,2,1,3]", "perm=[0,1,2,3]").replace("perm=[0,2,3,1]", "perm=[0,1,3,2]")
    made = model(body, outputs=outputs, more=more)
    assert dispatches(compiled(made)) == dispatches(compiled(made, disabled={"join_projections"}))


def test_large_queries_stay_apart_on_software_adapters() -> None:
    large = model(inputs="float[16,128,16] x", outputs="float[16,128,24] y")
    small = model(inputs="float[2,128,16] x", outputs="float[2,128,24] y")
    check(large)
    counts = [dispatches(compiled(m, target=PRESETS[name])) for m in (large, small) for name in ("lavapipe", "webgpu")]
    assert counts == [3, 2, 2, 2]


def test_only_where_attention_is_fused() -> None:
    for options in ({"level": "basic"}, {"disabled": {"fuse_attention"}}):
        assert "Split" not in [p.op for p in compiled(model(), **options).placement]


def test_halves() -> None:
    half = {n: a.astype(np.float16) for n, a in {**constants(NAMES), "scale": SMALL["scale"]}.items()}
    made = model(inputs="float16[2,S,16] x", outputs="float16[2,S,24] y", more=half)
    assert dispatches(check(made, rtol=2e-2, atol=5e-3)) <= 4
