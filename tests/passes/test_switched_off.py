"""Without any one of the passes the answers are the same: a model in which most of them have something to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import webrt
from tests.kernels.harness import oracle, run_native
from tests.passes.harness import Array, compiled, feeds_of, parse
from tests.tolerance import close
from webrt.cli.main import main
from webrt.compiler.fuse import PASSES as EXTENDED
from webrt.compiler.normalize import PASSES as BASIC
from webrt.compiler.normalize import REQUIRED
from webrt.planfile import dump

RNG = np.random.default_rng(2)
SHAPES = {
    "w0": (8, 3, 3, 3), "w1": (32, 8, 3, 3), "scale": (8,), "bias": (8,), "mean": (8,), "wq": (32, 32),
    "wk": (32, 32), "wv": (32, 32), "wo": (32, 48), "bq": (32,), "bo": (48,), "gain": (32,),
}  # fmt: skip
CONSTANTS: dict[str, Array] = {
    **{n: (RNG.standard_normal(s) / 4).astype(np.float32) for n, s in SHAPES.items()},
    "variance": (RNG.random(8) + 0.5).astype(np.float32), "two": np.array(2, np.float32),
    "tiny": np.array(1e-5, np.float32), "last": np.array([-1]), "by_head": np.array([0, 0, 4, 8]),
    "pixels": np.array([0, 32, -1]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "flat": np.array([0, 0, 32]),
    "half": np.array(0.5, np.float32), "from": np.array([1]), "to": np.array([9]), "axis": np.array([1]),
}  # fmt: skip
BODY = """
  x0 = Pad(x, pads) c0 = Conv(x0, w0) n0 = BatchNormalization(c0, scale, bias, mean, variance) a0 = Relu(n0)
  c1 = Conv<pads=[1,1,1,1], strides=[2,2]>(a0, w1) a1 = HardSwish(c1)
  f = Reshape(a1, pixels) t = Transpose<perm=[0,2,1]>(f) i = Identity(t)
  m = ReduceMean<keepdims=1>(i, last) d = Sub(i, m) s = Pow(d, two) v = ReduceMean<keepdims=1>(s, last)
  e = Add(v, tiny) r = Sqrt(e) o = Div(d, r) g = Mul(o, gain) same = Mul(o, gain) l = Add(g, same)
  q0 = MatMul(l, wq) q = Add(q0, bq) k = MatMul(l, wk) u = MatMul(l, wv)
  q4 = Reshape(q, by_head) qh = Transpose<perm=[0,2,1,3]>(q4) k4 = Reshape(k, by_head)
  kh = Transpose<perm=[0,2,3,1]>(k4) u4 = Reshape(u, by_head) uh = Transpose<perm=[0,2,1,3]>(u4)
  z0 = MatMul(qh, kh) z = Mul(z0, half) p = Softmax<axis=-1>(z) y0 = MatMul(p, uh)
  y1 = Transpose<perm=[0,2,1,3]>(y0) y2 = Reshape(y1, flat) y3 = MatMul(y2, wo) y4 = Mul(y3, half) y5 = Add(y4, bo)
  y6 = Gelu(y5) y7 = Slice(y6, from, to, axis) y8 = Transpose<perm=[0,2,1]>(y7) y9 = Tanh(y8) y = Mul(y9, two)
"""


def model() -> onnx.ModelProto:
    return parse(f"agraph (float[N,3,10,10] x) => (float[N,48,8] y) {{ {BODY} }}", CONSTANTS)


WITHOUT = [*(n for n, _ in BASIC if n not in REQUIRED), *(n for n, _ in EXTENDED), "in_place", "parts"]
CHANGES = {
    "fold_constants", "remove_identities", "split_batch_norms", "fold_into_weights", "fold_padding", "merge_equal",
    "join_projections", "fuse_norms", "fuse_attention", "channels_last", "fuse_epilogues", "fuse_moves",
    "fuse_elementwise",
}  # fmt: skip


QUICK = {"join_projections", "fold_into_weights", *(n for n, _ in EXTENDED)}


def test_by_name_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = parse("agraph (float[N] x) => (float[N] y) { a = Exp(x) y = Neg(a) }")
    options = webrt.SessionOptions()
    options.add_session_config_entry("optimization.disable_specified_optimizers", "fuse_moves; fuse_elementwise")
    with webrt.InferenceSession(chain, options) as session:
        assert [p.how for p in session.get_placement()] == ["kernel", "kernel"]
    path = tmp_path / "chain.onnx"
    path.write_bytes(chain.SerializeToString())
    assert main(["inspect", str(path), "--disable", "fuse_elementwise", "--passes"]) == 0
    shown = capsys.readouterr().out
    assert "2 dispatch" in shown and "fuse_norms" in shown and "fuse_elementwise" not in shown
    assert main(["inspect", str(path), "--disable", "fuse_all"]) == 1
    assert "there is no pass 'fuse_all'; there are inline_functions" in capsys.readouterr().err


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in WITHOUT])
def test_same_answers_without(name: str) -> None:
    feeds = feeds_of(model(), free=2)
    (got,), plan = run_native(model(), feeds, disabled={name})
    close(got, oracle(model(), feeds)[0], rtol=1e-3, atol=1e-4)
    if name in CHANGES:
        assert dump(plan) != dump(compiled(model()))
