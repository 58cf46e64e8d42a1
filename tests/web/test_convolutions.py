"""Channels-last convolutions in Chromium: Tint takes their kernels, and they give what they give natively."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import oracle
from tests.passes.harness import parse
from tests.web.driver import Player
from webrt.compiler.compile import compile_model

pytestmark = pytest.mark.xdist_group("chromium")

RNG = np.random.default_rng(3)
CHAIN = """a = Conv<pads=[1,1,1,1],strides=[2,2]>(x, first) b = Clip(a, zero, six)
c = Conv<group=16,pads=[1,1,1,1]>(b, deep) d = Conv(c, one) e = Add(d, b) f = Sigmoid(e)
g = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1],strides=[1,1]>(f) h = AveragePool<kernel_shape=[2,2]>(g)
i = ConvTranspose<strides=[2,2]>(h, spread) j = Resize<mode="nearest">(i, , scales) y = Conv<pads=[0,3,0,3]>(j, row)"""


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def test_a_chain_of_all_kinds(player: Player) -> None:
    constants = {
        "first": weights(16, 3, 3, 3), "deep": weights(16, 1, 3, 3), "one": weights(16, 16, 1, 1),
        "spread": weights(16, 1, 2, 2), "row": weights(5, 1, 2, 7), "zero": np.float32(0), "six": np.float32(6),
        "scales": np.array([1, 1, 2, 1], np.float32),
    }  # fmt: skip
    model = parse(f"agraph (float[N,3,H,W] x) => (float[o,p,q,r] y) {{ {CHAIN} }}", constants)
    plan = compile_model(model.SerializeToString())
    assert {"conv_last", "depthwise_last", "max_pool", "unfold_row"} <= {k.name for k in plan.kernels}
    session = player.load(plan)
    for n, height, width in ((1, 12, 17), (2, 9, 9)):
        x = RNG.standard_normal((n, 3, height, width)).astype(np.float32)
        got = session.run({"x": x})["y"]
        np.testing.assert_allclose(got, oracle(model, {"x": x})[0], rtol=1e-3, atol=1e-4)
    assert session.release()["buffers"] == 0


@pytest.mark.parametrize("outs", [4, 8, 24, 32])
def test_quads_of_every_form(player: Player, outs: int) -> None:
    """No kernel is refused, neither at the border of an image nor for products of pixels alone."""
    constants = {"w": weights(outs, 8, 3, 3), "v": weights(outs, outs, 1, 1), "b": weights(outs)}
    text = "t = Conv<pads=[1,1,1,1]>(x, w, b) s = Relu(t) y = Conv(s, v)"
    model = parse(f"agraph (float[1,8,18,19] x) => (float[o,p,q,r] y) {{ {text} }}", constants)
    plan = compile_model(model.SerializeToString())
    said = player.check_kernels([k for k in plan.kernels if k.name == "conv_last"])
    assert said and not [s for s in said if s["messages"]]
    session = player.load(plan)
    x = RNG.standard_normal((1, 8, 18, 19)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], oracle(model, {"x": x})[0], rtol=1e-3, atol=1e-4)
    assert not session.warned
    session.release()
