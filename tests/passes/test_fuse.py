"""Elementwise chains and epilogues: where they must fuse, and where they must not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.passes.harness import check, compiled, dispatches, ops, parse
from webrt import plan as P
from webrt import planfile
from webrt.target import BASE

W = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
CONV = "conv = Conv<pads=[1,1,1,1]>(x, w)"
IMAGE = "float[2,3,5,6] x"


def conv_model(rest: str, inputs: str = IMAGE, outputs: str = "float[a,b,c,d] y", **more: np.ndarray):
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {CONV} {rest} }}", {"w": W, **more})


def test_product_seen_in_another_shape() -> None:
    body = "g = Gemm(x, w, c) r = Reshape(g, shape) y = Add(r, more)"
    inputs = "float[6,5] x, float[5,4] w, float[4] c, float[2,3,4] more"
    shape = {"shape": np.array([2, 3, 4])}
    plan = check(parse(f"agraph ({inputs}) => (float[2,3,4] y) {{ {body} }}", shape))
    assert dispatches(plan) == 1
    plan = check(parse(f"agraph ({inputs}) => (float[2,3,4] y, float[2,3,4] r) {{ {body} }}", shape))
    assert ops(plan) == ["Gemm", "Add"]
    body += " z = Neg(g)"
    plan = check(parse(f"agraph ({inputs}) => (float[2,3,4] y, float[6,4] z) {{ {body} }}", shape))
    assert ops(plan) == ["Gemm", "Add", "Neg"]


def test_no_more_operands_than_a_shader_may_bind() -> None:
    names = [f"x{i}" for i in range(12)]
    body = "s0 = Add(x0, x1) " + " ".join(f"s{i} = Add(s{i - 1}, x{i + 1})" for i in range(1, 11))
    model = parse(f"agraph ({', '.join(f'float[5] {n}' for n in names)}) => (float[5] s10) {{ {body} }}")
    check(model)
    plan = compiled(model, target=BASE)
    assert dispatches(plan) == 2
    assert all(len(s.bindings) <= 8 for s in plan.steps if isinstance(s, P.Dispatch))


def test_passes_can_be_switched_off_and_levels_count() -> None:
    model = conv_model("a = Relu(conv) y = Sigmoid(a)")
    assert dispatches(compiled(model, disabled={"fuse_epilogues"})) == 2
    assert dispatches(compiled(model, disabled={"fuse_epilogues", "fuse_elementwise"})) == 3
    assert [dispatches(compiled(model, level=level)) for level in ("disabled", "basic", "extended", "all")] == [
        3,
        3,
        1,
        1,
    ]


def test_same_bytes_twice() -> None:
    model = conv_model("a = Relu(conv) b = Add(a, r) y = Sigmoid(b)", f"{IMAGE}, float[2,4,5,6] r")
    assert planfile.dump(compiled(model)) == planfile.dump(compiled(model))


def test_report_says_where_a_node_went() -> None:
    plan = compiled(parse("agraph (float[4] x) => (float[4] y) { [one] a = Exp(x) [two] y = Neg(a) }"))
    first, second = plan.placement
    assert (first.op, first.how, first.reason) == ("Exp", "fused", "computed by Neg 'two'")
    assert (second.op, second.how, second.reason) == ("Neg", "kernel", "with Exp 'one'")


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        ("a = Conv<pads=[1,1,1,1]>(x, w)", (16, 16, 3, 3)),
        ("m = Conv<pads=[1,1,1,1]>(x, v) a = Conv<pads=[1,1,1,1], group=16>(m, w)", (16, 1, 3, 3)),
        ("a = MatMul(x, w)", (16, 16)),
    ],
)
def test_the_formulas_after_a_kernel_stand_in_its_text_once(node: str, weights: tuple[int, ...]) -> None:
    v, w = (np.random.default_rng(2).standard_normal(s).astype(np.float32) for s in ((16, 16, 3, 3), weights))
    body = f"{node} b = Sigmoid(a) c = Mul(a, b) q = QuantizeLinear(c, s, z) y = DequantizeLinear(q, s, z)"
    constants = {"v": v, "w": w, "s": np.float32(0.5), "z": np.uint8(7)}
    model = parse(f"agraph (float[1,16,16,16] x) => (float[a,b,c,d] y) {{ {body} }}", constants)
    plan = check(model)
    texts = [k.wgsl for k in plan.kernels if "fn epilogue4" in k.wgsl and "floor(" in k.wgsl]
    assert texts
    for text in texts:
        assert (text.count("epilogue4("), text.count("floor(")) == (2, 1)
        assert text.count("epilogue_lane(") + len(re.findall(r"\bepilogue\(", text)) == 2
