"""Matrix products in Chromium: what its adapter takes of the alternatives, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from tests.kernels.harness import node_model
from tests.web.driver import Player
from webrt.compiler.compile import compile_model
from webrt.kernel_layout import kernel_layout
from webrt.plan import Plan

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture(scope="module")
def plan() -> Plan:
    """y = max(a·b + r, 0) with free sizes."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[z, m, k] a, float[k, n] b, float[z, m, n] r) => '
        "(float[z, m, n] y) { c = MatMul(a, b)  d = Add(c, r)  y = Relu(d) }"
    )
    return compile_model(model.SerializeToString())


def test_products_of_free_sizes(player: Player, plan: Plan) -> None:
    layouts = {kernel_layout(k.wgsl).access for k in plan.kernels}
    assert (
        any("f" in a for a in layouts) and any("F" in a for a in layouts) and any(set(a) <= set("rw") for a in layouts)
    )
    session = player.load(plan)
    rng = np.random.default_rng(5)
    for z, m, k, n in ((1, 1, 7, 9), (1, 1, 64, 32), (2, 9, 16, 12), (1, 70, 33, 65), (3, 5, 8, 1)):
        a, b, r = (rng.standard_normal(s).astype(np.float32) for s in ((z, m, k), (k, n), (z, m, n)))
        got = session.run({"a": a, "b": b, "r": r})["y"]
        np.testing.assert_allclose(got, np.maximum(a @ b + r, 0), rtol=1e-4, atol=1e-4)
    assert session.release()["buffers"] == 0


def test_operands_that_lie_the_other_way(player: Player) -> None:
    """Tint takes each form, and what runs here reads columns."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[k, m] a, float[n, k] b) => (float[m, n] y) '
        "{ c = Transpose<perm = [1, 0]>(a) d = Transpose<perm = [1, 0]>(b) y = MatMul(c, d) }"
    )
    plan = compile_model(model.SerializeToString())
    assert len(plan.steps) == 1
    assert not [s for s in player.check_kernels(plan.kernels) if s["messages"]]
    session = player.load(plan)
    rng = np.random.default_rng(5)
    for m, k, n in ((1, 7, 9), (1, 64, 32), (16, 16, 12), (70, 33, 65), (8, 256, 256)):
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((k, m), (n, k)))
        np.testing.assert_allclose(session.run({"a": a, "b": b})["y"], a.T @ b.T, rtol=1e-4, atol=1e-4)
    assert session.release()["buffers"] == 0


def test_packed_weights_for_any_number_of_rows(player: Player) -> None:
    """MatMulNBits: Tint takes each of its forms, and what runs here is as onnxruntime's definition says."""
    rng = np.random.default_rng(6)
    k, n, block = 64, 72, 32
    packed = rng.integers(0, 256, (n, k // block, block // 2), np.uint8)
    scales = rng.uniform(0.01, 0.1, (n, k // block)).astype(np.float32)
    a = rng.standard_normal((9, k)).astype(np.float32)
    attrs = {"K": k, "N": n, "bits": 4, "block_size": block}
    model, _ = node_model(
        "MatMulNBits", [a, packed, scales], attrs, domain="com.microsoft", constants=(1, 2), symbolic=[0]
    )
    plan = compile_model(model.SerializeToString())
    assert not [s for s in player.check_kernels(plan.kernels) if s["messages"]]
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(n, k).astype(np.float32) - 8
    weights = numbers * np.repeat(scales, block, axis=1)
    session = player.load(plan)
    for rows in (1, 3, 9):
        (got,) = session.run({"x0": a[:rows]}).values()
        np.testing.assert_allclose(got, a[:rows] @ weights.T, rtol=1e-4, atol=1e-4)
    assert session.release()["buffers"] == 0
