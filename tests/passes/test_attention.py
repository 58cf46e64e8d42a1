"""Attention from its pieces: where two kernels must stand for them, and where the pieces must stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes.harness import check, compiled, dispatches, ops, parse

QKV = "float[2,S,24] q, float[2,T,24] k, float[2,T,24] v"
BEFORE = """
  q4 = Reshape(q, by_head) qh = Transpose<perm=[0,2,1,3]>(q4)
  k4 = Reshape(k, by_head) kh = Transpose<perm=[0,2,3,1]>(k4)
  v4 = Reshape(v, by_head) vh = Transpose<perm=[0,2,1,3]>(v4)
"""
AFTER = "r = MatMul(w, vh) rt = Transpose<perm=[0,2,1,3]>(r) y = Reshape(rt, flat)"
CONSTANTS = {
    "by_head": np.array([0, 0, 3, 8]), "flat": np.array([0, 0, 24]), "scale": np.float32(8**-0.5),
    "zero": np.float32(0), "hidden": np.float32(-np.inf), "one": np.float32(1),
}  # fmt: skip


def model(middle: str, inputs: str = QKV, outputs: str = "float[2,S,24] y", before: str = BEFORE, after: str = AFTER):
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {before} {middle} {after} }}", CONSTANTS)


PLAIN = "s = MatMul(qh, kh) w = Softmax<axis=-1>(s)"
MASKED = "s0 = MatMul(qh, kh) s1 = Mul(s0, scale) s = Add(s1, mask) w = Softmax<axis=-1>(s)"
CLEARED = f"{MASKED.replace('w =', 'w0 =')} nan = IsNaN(w0) w = Where(nan, zero, w0)"


def test_rows_without_a_visible_key() -> None:
    """NaN where nothing clears them, else 0."""
    hide = "never = Less(mask, mask) bias = Where(never, zero, hidden)"
    for middle in (MASKED, CLEARED):
        body = f"{hide} {middle.replace('mask)', 'bias)')}"
        plan = check(model(body, f"{QKV}, float[S,T] mask"))
        assert "Attention" in ops(plan)


def test_keys_and_values_of_a_cache_that_is_an_output() -> None:
    before = f"{BEFORE} kc = Concat<axis=2>(past, kn) kt = Transpose<perm=[0,1,3,2]>(kc)"
    before = before.replace("kh = Transpose<perm=[0,2,3,1]>(k4)", "kn = Transpose<perm=[0,2,1,3]>(k4)")
    before = before.replace("vh = ", "vn = ") + " vh = Concat<axis=2>(past, vn)"
    plan = check(
        model(
            PLAIN.replace("kh", "kt"),
            f"{QKV}, float[2,3,P,8] past",
            "float[2,S,24] y, float[2,3,U,8] kc",
            before,
        )
    )
    assert "Attention" in ops(plan)


def test_packed_projections_are_read_where_they_are() -> None:
    before = "q, k, v = Split<axis=2, num_outputs=3>(qkv)" + BEFORE
    plan = check(model(PLAIN, "float[2,S,72] qkv", before=before))
    assert dispatches(plan) == 1


def test_stacks_of_one_head() -> None:
    body = "kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt) w = Softmax(s) y = MatMul(w, v)"
    inputs = "float[3,5,7] q, float[3,6,7] k, float[3,6,5] v"
    plan = check(parse(f"agraph ({inputs}) => (float[3,5,5] y) {{ {body} }}"))
    assert dispatches(plan) == 2


@pytest.mark.parametrize("opset", [12, 20])
def test_halves(opset: int) -> None:
    inputs = "float16[2,4,16] q, float16[2,6,16] k, float16[2,6,16] v"
    body = "kt = Transpose<perm=[0,2,1]>(k) s = MatMul(q, kt) w = Softmax<axis=2>(s) y = MatMul(w, v)"
    text = f"agraph ({inputs}) => (float16[2,4,16] y) {{ {body} }}"
    assert "Attention" in ops(check(parse(text, opset=opset), atol=5e-3, rtol=5e-3))


def test_result_that_is_read_twice_is_stored_before_its_transpose() -> None:
    plan = check(model(PLAIN, outputs="float[2,S,24] y, float[2,3,S,8] r"))
    assert [o for o in ops(plan) if o in ("Attention", "Transpose")] == ["Attention", "Transpose"]


def test_pass_can_be_switched_off() -> None:
    assert "Attention" not in ops(compiled(model(PLAIN), disabled={"fuse_attention"}))


REPEATED = """
  q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
  q4 = Reshape(q, by_query) qh = Transpose<perm=[0,2,1,3]>(q4)
  k4 = Reshape(k, by_head) k5 = Transpose<perm=[0,2,1,3]>(k4)
  v4 = Reshape(v, by_head) v5 = Transpose<perm=[0,2,1,3]>(v4)
  rows = Shape<start=2, end=3>(k5) to = Concat<axis=0>(many, rows, eight)
  ku = Unsqueeze(k5, deep) ke = Expand(ku, to) kr = Reshape(ke, heads) kh = Transpose<perm=[0,1,3,2]>(kr)
  vu = Unsqueeze(v5, deep) ve = Expand(vu, to) vh = Reshape(ve, heads)
  s = MatMul(qh, kh) w = Softmax<axis=-1>(s) r = MatMul(w, vh) rt = Transpose<perm=[0,2,1,3]>(r) y = Reshape(rt, flat)
"""


@pytest.mark.parametrize("rows", [3, "S"])
@pytest.mark.parametrize("keys", [1, 2, 4])
def test_projections_of_fewer_keys_and_values_are_one_product(rows: int | str, keys: int) -> None:
    def made(more: str = "", outputs: str = "") -> onnx.ModelProto:
        constants: dict[str, np.ndarray] = {
            "by_query": np.array([0, 0, 4, 8]), "by_head": np.array([0, 0, keys, 8]), "deep": np.array([2]),
            "many": np.array([2, keys, 4 // keys]), "eight": np.array([8]), "heads": np.array([2, 4, -1, 8]),
            "flat": np.array([0, 0, 32]),
        }  # fmt: skip
        rng = np.random.default_rng(1)
        for name, columns in (("wq", 32), ("wk", 8 * keys), ("wv", 8 * keys)):
            constants[name] = rng.standard_normal((16, columns)).astype(np.float32) / 4
        text = f"agraph (float[2,{rows},16] x) => (float[2,{rows},32] y{outputs}) {{ {REPEATED} {more} }}"
        return parse(text, constants)

    assert ops(check(made())) == ["MatMul", "Attention"]
    kept = ops(check(made("z = Neg(ke)", ", float[a,b,c,d,e] z")))
    assert kept.count("MatMul") > 1
