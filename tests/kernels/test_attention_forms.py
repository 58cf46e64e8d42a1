"""Every form of attention that this adapter can run: edges, masks, spans of keys, halves, what is not finite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import parser

from tests.kernels import test_attention as grouped
from tests.kernels.harness import Array, device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.ops import attend_online as A
from webrt.ops.product_variants import subgroups
from webrt.plan import Plan
from webrt.runtime.session import Session

RNG = np.random.default_rng(23)


def _here(form: A.Form) -> A.Form:
    """The form for this adapter and any sizes: with its subgroup size, other requirements dropped."""
    lanes = device().target.subgroup_sizes[0] if form.lanes else 0
    return replace(form, lanes=lanes, requires=subgroups(lanes, {}) if lanes else {}, least=0, most=0, worth=0)


@pytest.fixture(params=A.FORMS, ids=[f"{f.body or f.rows}-{f.lanes}-{f.loader}-{f.group}" for f in A.FORMS])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> A.Form:
    made = _here(request.param)
    monkeypatch.setattr(A, "FORMS", (made,))
    return made


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """float64; a row without a key that is seen is NaN."""
    logits = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)
    logits = logits if mask is None else logits + mask
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return np.asarray((weights / weights.sum(-1, keepdims=True)) @ v.astype(np.float64))


def compiled(q: Array, k: Array, v: Array, mask: Array | None = None, free: str = "") -> Plan:
    """`free`: the name of the number of keys, which is then known at a run only."""
    kind = "float16" if q.dtype == np.float16 else "float"
    arrays = {"q": q, "k": k, "v": v, **({} if mask is None else {"mask": mask})}
    shapes = {n: [*map(str, a.shape)] for n, a in arrays.items()}
    if free:
        shapes["k"][2] = shapes["v"][2] = free
        if mask is not None:
            shapes["mask"][-1] = free
    inputs = ", ".join(f"{kind}[{','.join(s)}] {n}" for n, s in shapes.items())
    logits = "s = MatMul(q, kt)" if mask is None else "s0 = MatMul(q, kt) s = Add(s0, mask)"
    body = f"kt = Transpose<perm=[0,1,3,2]>(k) {logits} w = Softmax<axis=-1>(s) y = MatMul(w, v)"
    out = ",".join(map(str, (*q.shape[:3], v.shape[3])))
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({kind}[{out}] y) {{ {body} }}'
    plan = compile_model(parser.parse_model(text), CompileOptions(target=device().target))
    assert {plan.kernels[k].name for k in range(len(plan.kernels))} <= {
        "attention",
        "attention_merge",
        "attention_pack",
    }
    return plan


def run(q: Array, k: Array, v: Array, mask: Array | None = None, free: str = "") -> Array:
    feeds = {"q": q, "k": k, "v": v, **({} if mask is None else {"mask": mask})}
    with Session(compiled(q, k, v, mask, free), device()) as session:
        return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "head", "width", "free"),
    [(3, 1, 200, 8, 12, "T"), (2, 67, 70, 12, 8, ""), (2, 2, 1, 4, 4, "T")],
)
def test_edges(form: A.Form, heads: int, rows: int, keys: int, head: int, width: int, free: str) -> None:
    q, k, v = floats(2, heads, rows, head), floats(2, heads, keys, head), floats(2, heads, keys, width)
    np.testing.assert_allclose(run(q, k, v, free=free), attention(q, k, v), rtol=1e-4, atol=1e-5)


def test_masks_and_rows_without_a_key(form: A.Form) -> None:
    q, k, v = floats(1, 2, 9, 8), floats(1, 2, 150, 8), floats(1, 2, 150, 8)
    mask = np.where(RNG.random((1, 1, 9, 150)) < 0.4, -np.inf, floats(1, 1, 9, 150)).astype(np.float32)
    mask[:, :, 3] = -np.inf
    mask[:, :, 4, :140] = -np.inf
    got = run(q, k, v, mask)
    np.testing.assert_allclose(got, attention(q, k, v, mask), rtol=1e-4, atol=1e-5)
    assert np.isnan(got[:, :, 3]).all()


def test_what_is_not_finite_stays_in_its_row_or_column(form: A.Form) -> None:
    q, k, v = floats(1, 1, 6, 8), floats(1, 1, 7, 8), floats(1, 1, 7, 8)
    q[0, 0, 2, 3] = np.nan
    v[0, 0, 6, 5] = np.inf
    mask = np.zeros((1, 1, 6, 7), np.float32)
    mask[0, 0, 4, 5] = np.inf
    want = attention(q, k, v, mask)
    assert np.isnan(want[0, 0, [2, 4]]).all() and np.isinf(want[0, 0, 0, 5])
    np.testing.assert_allclose(run(q, k, v, mask), want, rtol=1e-4, atol=1e-5)


def test_halves(form: A.Form) -> None:
    q, k, v = (floats(1, 2, n, 8, dtype=np.float16) for n in (10, 75, 75))
    np.testing.assert_allclose(run(q, k, v), attention(q, k, v), rtol=1e-3, atol=2.5e-3)


@pytest.mark.long
def test_shared_key_heads_window_and_cap(form: A.Form) -> None:
    grouped.check(3, 6, [8, 5], {"softcap": 2.0, "local_window_size": 3}, bias=True)
