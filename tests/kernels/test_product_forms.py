"""Every form of a matrix product that this adapter can run, against numpy: ragged edges, batches, epilogues, halves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.kernels.harness import Array, device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.kernel_layout import kernel_layout
from webrt.ops import panels
from webrt.ops import product_variants as V
from webrt.plan import Dispatch, Plan
from webrt.runtime.session import Session
from webrt.target import BASE, Target

WIDE = [f for f in V.FORMS if f.rows > 1]
"""A form of one row computes no more of several."""


def _here(form: V.Form) -> V.Form:
    """The form for this adapter, however few rows there are: with its subgroup size, other requirements dropped."""
    shares = bool(form.lanes) and not form.body
    lanes = device().target.subgroup_sizes[0] if shares else form.lanes
    requires = V.subgroups(lanes, {}) if shares else {}
    return replace(form, lanes=lanes, requires=requires, least=0, most=0, worth=min(form.worth, 1))


@pytest.fixture(params=WIDE, ids=[f"{f.body or f.rows}-{f.lanes}-{f.loader}" for f in WIDE])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> V.Form:
    made = _here(request.param)
    monkeypatch.setattr(V, "FORMS", (made,))
    return made


def compiled(
    a: str, b: str, y: str, body: str = "y = MatMul(a, b)", more: str = "", target: Target | None = None
) -> Plan:
    opsets = '["" : 17, "com.microsoft" : 1]'
    text = f"<ir_version: 8, opset_import: {opsets}> g ({a} a, {b} b{more}) => ({y} y) {{ {body} }}"
    return compile_model(parser.parse_model(text), CompileOptions(target=target or device().target))


def run(plan: Plan, **feeds: Array) -> Array:
    with Session(plan, device()) as session:
        (y,) = session.run(None, feeds)
        return np.asarray(y)


def floats(*shape: int, dtype: Any = np.float32, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (17, 12, 40), (70, 33, 6), (65, 7, 129)])
def test_edges(form: V.Form, m: int, k: int, n: int) -> None:
    plan = compiled(f"float[{m}, {k}]", f"float[{k}, {n}]", f"float[{m}, {n}]")
    a, b = floats(m, k), floats(k, n, seed=4)
    np.testing.assert_allclose(run(plan, a=a, b=b), a @ b, rtol=1e-4, atol=1e-5)
    layout = kernel_layout(plan.kernels[_first(plan)].wgsl).access
    assert layout == {"buffer": "rrw", "sampled": "ffw", "storage": "FFw"}[form.loader]


def _first(plan: Plan) -> int:
    return next(s for s in plan.steps if isinstance(s, Dispatch)).alternatives[0][0]


def test_batches_and_an_epilogue_of_free_sizes(form: V.Form) -> None:
    body, more = "c = MatMul(a, b)  d = Add(c, r)  y = Relu(d)", ", float[z, m, n] r"
    plan = compiled("float[z, m, k]", "float[z, k, n]", "float[z, m, n]", body, more)
    with Session(plan, device()) as session:
        for z, m, k, n in ((2, 5, 8, 12), (3, 18, 6, 13), (1, 1, 4, 4), (2, 5, 8, 12)):
            a, b, r = floats(z, m, k), floats(z, k, n, seed=5), floats(z, m, n, seed=6)
            (y,) = session.run(None, {"a": a, "b": b, "r": r})
            np.testing.assert_allclose(y, np.maximum(a @ b + r, 0), rtol=1e-4, atol=1e-5)


def test_halves(form: V.Form) -> None:
    plan = compiled("float16[9, 20]", "float16[20, 24]", "float16[9, 24]")
    a, b = floats(9, 20, dtype=np.float16), floats(20, 24, dtype=np.float16, seed=4)
    want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(run(plan, a=a, b=b).astype(np.float32), want, rtol=2e-3, atol=5e-3)


FUSED = "com.microsoft.FusedMatMul<transA = 1, transB = 1, alpha = 0.5>(a, b)"
SIZES = ((17, 12, 40), (20, 33, 16), (65, 7, 29), (1, 8, 5), (3, 4, 1), (16, 16, 16))
"""(m, k, n)."""


@pytest.mark.parametrize("turned", ["a", "b"])
def test_operands_that_lie_the_other_way(form: V.Form, turned: str) -> None:
    check_turned(turned)


def test_both_operands_lie_the_other_way() -> None:
    """Of few rows too, which have forms of their own."""
    check_turned("ab")


def check_turned(turned: str) -> None:
    """A product of transposed operands and an epilogue, in one dispatch for all sizes."""
    lying = {"a": "m, k", "b": "k, n"}
    nodes = []
    for x in "ab":
        nodes.append(f"t{x} = {'Transpose<perm = [1, 0]>' if x in turned else 'Identity'}({x})")
        lying[x] = ", ".join(lying[x].split(", ")[:: -1 if x in turned else 1])
    body = f"{' '.join(nodes)} c = MatMul(ta, tb) y = Add(c, r)"
    plan = compiled(f"float[{lying['a']}]", f"float[{lying['b']}]", "float[m, n]", body, ", float[m, n] r")
    assert sum(isinstance(s, Dispatch) for s in plan.steps) == 1
    with Session(plan, device()) as session:
        for m, k, n in SIZES:
            a, b, r = floats(m, k), floats(k, n, seed=4), floats(m, n, seed=5)
            feeds = {x: v.T.copy() if x in turned else v for x, v in (("a", a), ("b", b))}
            np.testing.assert_allclose(session.run(None, {**feeds, "r": r})[0], a @ b + r, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("node", ["Gemm<transA = 1, transB = 1, alpha = 0.5>(a, b, c)", FUSED])
def test_attributes_that_transpose(node: str) -> None:
    """What is computed is not transposed beforehand."""
    plan = compiled("float[k, m]", "float[n, k]", "float[m, n]", f"y = {node}", ", float[n] c")
    assert sum(isinstance(s, Dispatch) for s in plan.steps) == 1
    with Session(plan, device()) as session:
        for m, k, n in SIZES:
            a, b, c = floats(k, m), floats(n, k, seed=4), floats(n, seed=5)
            want = a.T @ b.T / 2 + (c if "Gemm" in node else 0)
            (y,) = session.run(None, {"a": a, "b": b, "c": c})
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("head", [8, 6])
def test_heads_where_they_lie(form: V.Form, dtype: Any, head: int) -> None:
    """Rows that are apart, and columns of a stack; one head of keys for all of queries."""
    kind = "float" if dtype == np.float32 else "float16"
    plan = compiled(
        f"{kind}[2, 9, 3, {head}]", f"{kind}[2, 13, 1, {head}]", f"{kind}[2, 3, 9, 13]",
        "q = Transpose<perm = [0, 2, 1, 3]>(a) k = Transpose<perm = [0, 2, 3, 1]>(b) y = MatMul(q, k)",
    )  # fmt: skip
    names = [plan.kernels[s.alternatives[0][0]].name for s in plan.steps if isinstance(s, Dispatch)]
    assert [name for name in names if name != "matmul_pack"] == ["matmul"]
    a, b = floats(2, 9, 3, head, dtype=dtype), floats(2, 13, 1, head, dtype=dtype, seed=4)
    want = np.einsum("nqhd,nkd->nhqk", a.astype(np.float32), b[:, :, 0].astype(np.float32))
    rtol, atol = (1e-4, 1e-5) if dtype == np.float32 else (2e-3, 5e-3)
    np.testing.assert_allclose(run(plan, a=a, b=b).astype(np.float32), want, rtol=rtol, atol=atol)


def test_few_rows_of_columns(form: V.Form) -> None:
    """A stack whose rows are apart and that is one row each."""
    body = "q = Transpose<perm = [2, 1, 0]>(a) y = MatMul(q, b)"
    plan = compiled("float[5, 1, 3]", "float[3, 5, 4]", "float[3, 1, 4]", body)
    a, b = floats(5, 1, 3), floats(3, 5, 4, seed=4)
    assert sum(isinstance(s, Dispatch) for s in plan.steps) == 1
    np.testing.assert_allclose(run(plan, a=a, b=b), a.transpose(2, 1, 0) @ b, rtol=1e-4, atol=1e-5)


def test_infinities_past_the_end_do_not_leak(form: V.Form) -> None:
    plan = compiled("float[2, 5, 5]", "float[2, 5, 5]", "float[2, 5, 5]")
    a, b = floats(2, 5, 5), floats(2, 5, 5, seed=4)
    a[1, 0, 0] = b[1] = np.inf
    np.testing.assert_allclose(run(plan, a=a, b=b)[0], a[0] @ b[0], rtol=1e-4, atol=1e-5)


def test_a_portable_plan_has_a_form_for_each_kind_of_adapter() -> None:
    plan = compiled("float[m, 64]", "float[64, 64]", "float[m, 64]", target=BASE)
    (step,) = [s for s in plan.steps if isinstance(s, Dispatch)]
    requires = [plan.kernels[a[0]].requires for a in step.alternatives]
    assert requires[-1] == {}
    assert {"kinds": ["gpu"]} in requires
    assert any(r.get("subgroup_size") == 4 for r in requires) and any(r.get("subgroup_size") == 8 for r in requires)
    with Session(plan, device()) as session:
        used = []
        for m in (1, 20, 600):
            a = floats(m, 64)
            (y,) = session.run(None, {"a": a, "b": np.eye(64, dtype=np.float32)})
            np.testing.assert_allclose(y, a, rtol=1e-6)
            used.append(session.scope.frame((("m", m),), []).kernel_of(0))
    assert len(set(used)) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_long_sums_of_few_outputs_are_split(form: V.Form, dtype: Any) -> None:
    """Where the plan may run on a GPU."""
    kind = "float" if dtype == np.float32 else "float16"
    a, b, c = (floats(*s, dtype=dtype, seed=i) for i, s in enumerate([(3, 3072), (3072, 10), (10,)]))
    plan = compiled(
        f"{kind}[3, 3072]", f"{kind}[3072, 10]", f"{kind}[3, 10]", "t = MatMul(a, b) s = Add(t, c) y = Relu(s)",
        f", {kind}[10] c", target=replace(device().target, kind="any"),
    )  # fmt: skip
    assert [plan.kernels[s.alternatives[0][0]].name for s in plan.steps if isinstance(s, Dispatch)][1] == "gemm_sum"
    want = np.maximum(a.astype(np.float64) @ b + c, 0)
    rtol, atol = (1e-4, 1e-4) if dtype == np.float32 else (1e-3, 2.5e-2)
    np.testing.assert_allclose(run(plan, a=a, b=b, c=c), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 20), (9, 8, 40), (17, 33, 72), (2, 3, 25), (5, 12, 64)])
def test_columns_of_a_constant_in_panels(form: V.Form, monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int) -> None:
    """What is read of large constants, the last panel being narrower."""
    monkeypatch.setattr(panels, "LEAST", 0)
    b = floats(k, n, seed=4)
    text = f"<ir_version: 8, opset_import: ['' : 17]> g (float[2, {m}, {k}] a) => (float[2, {m}, {n}] y) "
    model = parser.parse_model(
        f"{text} {{ c = MatMul(a, b) d = Relu(a) e = MatMul(d, b) y = Add(c, e) }}".replace("'", '"')
    )
    model.graph.initializer.append(numpy_helper.from_array(b, "b"))
    plan = compile_model(model, CompileOptions(target=replace(device().target, kind="software")))
    assert len({c.name for c in plan.constants}) == 1
    a = floats(2, m, k)
    np.testing.assert_allclose(run(plan, a=a), a @ b + np.maximum(a, 0) @ b, rtol=1e-4, atol=1e-5)
