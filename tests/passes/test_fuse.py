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


@pytest.mark.parametrize(
    "rest",
    [
        "y = Relu(conv)",
        "s = Sigmoid(conv) y = Mul(conv, s)",
        "h = HardSigmoid(conv) y = Mul(conv, h)",
        "s = Softplus(conv) t = Tanh(s) y = Mul(conv, t)",
        "a = Div(conv, root) e = Erf(a) p = Add(e, one) m = Mul(conv, p) y = Mul(m, half)",
        "a = Add(conv, three) k = Clip(a, zero, six) m = Mul(conv, k) y = Div(m, six)",
        "a = Mul(conv, scale) b = Add(a, shift) y = LeakyRelu<alpha=0.1>(b)",
    ],
)
def test_conv_ends_with_what_follows(rest: str) -> None:
    numbers = {"root": 2**0.5, "one": 1, "half": 0.5, "three": 3, "zero": 0, "six": 6}
    constants = {k: np.array(v, np.float32) for k, v in numbers.items()}
    per_channel = {k: np.linspace(0.5, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1) for k in ("scale", "shift")}
    plan = check(conv_model(rest, **constants, **per_channel))
    assert dispatches(plan) == 1
    assert {p.how for p in plan.placement} == {"kernel", "fused"}


def test_residual_is_an_operand() -> None:
    plan = check(conv_model("a = Add(r, conv) y = Relu(a)", f"{IMAGE}, float[2,4,5,6] r"))
    assert dispatches(plan) == 1


def test_second_reader_keeps_conv_apart() -> None:
    plan = check(
        conv_model("y = Relu(conv) z = Transpose<perm=[0,2,3,1]>(conv)", outputs="float[a,b,c,d] y, float[e,f,g,h] z")
    )
    assert ops(plan) == ["Conv", "Relu", "Transpose"]


def test_graph_output_in_the_middle_is_stored() -> None:
    plan = check(conv_model("r = Relu(conv) y = Sigmoid(r)", outputs="float[a,b,c,d] y, float[e,f,g,h] conv"))
    assert ops(plan) == ["Conv", "Sigmoid"]
    plan = check(conv_model("r = Relu(conv) y = Sigmoid(r)", outputs="float[a,b,c,d] y, float[e,f,g,h] r"))
    assert ops(plan) == ["Relu", "Sigmoid"]


def test_larger_result_is_not_an_epilogue() -> None:
    wide = conv_model("y = Add(conv, r)", f"{IMAGE}, float[2,2,4,5,6] r", "float[a,b,c,d,e] y")
    assert ops(check(wide)) == ["Conv", "Add"]


def test_other_type_is_not_an_epilogue() -> None:
    plan = check(conv_model("y = Greater(conv, zero)", outputs="bool[a,b,c,d] y", zero=np.float32(0)))
    assert ops(plan) == ["Conv", "Greater"]


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize(("x", "w", "b"), [("3,8", "8,12", "12"), ("N,K", "K,M", "1")])
def test_matrices_with_bias_and_diamond(op: str, x: str, w: str, b: str) -> None:
    body = f"m = {op}(x, w) s = Add(m, b) r = Mul(s, m) y = Tanh(r)"
    plan = check(parse(f"agraph (float[{x}] x, float[{w}] w, float[{b}] b) => (float[a,c] y) {{ {body} }}"))
    assert dispatches(plan) == 1


def test_stacks_of_matrices() -> None:
    body = "m = MatMul(x, w) y = Add(m, r)"
    plan = check(parse(f"agraph (float[2,N,5] x, float[2,5,7] w, float[2,N,7] r) => (float[2,N,7] y) {{ {body} }}"))
    assert ops(plan) == ["Add"]


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


def test_gemm_keeps_its_own_sum() -> None:
    body = "g = Gemm<alpha=0.5,beta=2.0,transB=1>(x, w, c) y = Relu(g)"
    plan = check(parse(f"agraph (float[3,5] x, float[4,5] w, float[4] c) => (float[3,4] y) {{ {body} }}"))
    assert ops(plan) == ["Relu"]


def test_chain_and_diamond_in_one_kernel() -> None:
    body = "a = Exp(x) b = Neg(a) c = Mul(a, b) d = Add(c, x) e = Abs(d) f = Sqrt(e) y = Where(g, f, d)"
    model = parse(f"agraph (float[N,7] x, float[7] z) => (float[N,7] y) {{ g = Greater(x, z) {body} }}")
    plan = check(model)
    assert dispatches(plan) == 1
    assert len(plan.placement) == 8


def test_long_chain_is_cut() -> None:
    body = " ".join(f"x{i + 1} = Neg(x{i})" for i in range(75))
    plan = check(parse(f"agraph (float[9] x0) => (float[9] x75) {{ {body} }}"))
    assert dispatches(plan) == 3


def test_no_more_operands_than_a_shader_may_bind() -> None:
    names = [f"x{i}" for i in range(12)]
    body = "s0 = Add(x0, x1) " + " ".join(f"s{i} = Add(s{i - 1}, x{i + 1})" for i in range(1, 11))
    model = parse(f"agraph ({', '.join(f'float[5] {n}' for n in names)}) => (float[5] s10) {{ {body} }}")
    check(model)
    plan = compiled(model, target=BASE)
    assert dispatches(plan) == 2
    assert all(len(s.bindings) <= 8 for s in plan.steps if isinstance(s, P.Dispatch))


def test_smaller_values_are_computed_once() -> None:
    plan = check(parse("agraph (float[4] x, float[3,4] z) => (float[3,4] y) { e = Exp(x) y = Add(e, z) }"))
    assert ops(plan) == ["Exp", "Add"]


def test_narrow_integers_wrap_before_they_are_read() -> None:
    body = "c = Cast<to=2>(x) d = Add(c, c) y = Cast<to=1>(d)"
    model = parse(
        f"agraph (float[9] x) => (float[9] y) {{ s = Mul(x, k) a = Abs(s) {body.replace('(x)', '(a)')} }}",
        {"k": np.float32(50)},
    )
    assert ops(check(model)) == ["Cast", "Add", "Cast"]


def test_cast_to_half_rounds() -> None:
    model = parse("agraph (float[64] x) => (float[64] y) { h = Cast<to=10>(x) y = Cast<to=1>(h) }")
    plan = check(model, atol=0.0, rtol=0.0)
    assert ops(plan) == ["Cast", "Cast"]


def test_halves_share_a_kernel() -> None:
    plan = check(parse("agraph (float16[5,7] x) => (float16[5,7] y) { a = Mul(x, x) b = Add(a, x) y = Tanh(b) }"))
    assert ops(plan) == ["Tanh"]


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


def test_quantized_between_floats_in_one_kernel() -> None:
    body = "a = Relu(conv) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) y = Mul(d, d)"
    plan = check(conv_model(body, s=np.float32(0.05), z=np.uint8(3)))
    assert ops(plan) == ["Mul"]


def test_quantized_output_is_stored_once() -> None:
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Abs(d)"
    constants = {"s": np.float32(0.05), "z": np.int8(-3)}
    plan = check(parse(f"agraph (float[3,5] x) => (float[3,5] y, int8[3,5] q) {{ {body} }}", constants))
    assert ops(plan) == ["QuantizeLinear", "Abs"]


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
    texts = [k.wgsl for k in plan.kernels if "fn epilogue4" in k.wgsl and "f32_div" in k.wgsl]
    assert texts
    for text in texts:
        assert text.count("epilogue4(") == text.count("f32_div(") == 2
        assert text.count("epilogue_lane(") + len(re.findall(r"\bepilogue\(", text)) == 2
