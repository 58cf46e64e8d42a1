"""Matrix products in Chromium: what its adapter takes of the alternatives, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from tests.web.driver import Player
from webrt.compiler.compile import compile_model
from webrt.plan import Plan
from webrt.validate import kernel_layout

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
