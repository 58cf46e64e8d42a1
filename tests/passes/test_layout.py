"""Channels-last images: which operators work on them, and where transposes are left."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.passes.harness import check, compiled, dispatches, ops, parse
from webrt.plan import Dispatch, Plan

RNG = np.random.default_rng(5)
IMAGES = ("float[2,8,9,11] x", "float[N,8,H,W] x")


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


CONSTANTS = {
    "w": weights(12, 8, 3, 3), "v": weights(12, 12, 3, 3), "d": weights(12, 1, 3, 3), "one": weights(5, 12, 1, 1),
    "spread": weights(12, 8, 2, 3), "narrow": weights(12, 3, 2, 2),
    "channel": weights(12, 1, 1), "columns": weights(3), "six": np.float32(6), "zero": np.float32(0),
    "scales": np.array([1, 1, 2, 2], np.float32), "flat": np.array([0, 0, -1]), "axes": np.array([2, 3]),
}  # fmt: skip
CONV = "a = Conv<pads=[1,1,1,1]>(x, w)"


def run(body: str, image: str = IMAGES[0], result: str = "float[o,p,q,r] y", more: str = "") -> Plan:
    text = f"{CONV} {body}"
    words = re.findall(r"\w+", text)
    used = {k: v for k, v in CONSTANTS.items() if k in words}
    return check(parse(f"agraph ({image}{more}) => ({result}) {{ {text} }}", used))


def kernels(plan: Plan) -> list[str]:
    return [k.name for k in plan.kernels]


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    ("body", "inside"),
    [
        ("b = Clip(a, zero, six) y = Conv<pads=[1,1,1,1]>(b, v)", ["Clip", "Conv"]),
        ("b = Conv<group=12,pads=[1,1,1,1],strides=[2,1]>(a, d) y = Conv<pads=[1,1,1,1]>(b, v)", ["Conv"] * 3),
        ("y = MaxPool<kernel_shape=[3,2],strides=[2,1],pads=[1,0,1,1],ceil_mode=1>(a)", ["Conv", "MaxPool"]),
        ("y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1],count_include_pad=1>(a)", ["Conv", "AveragePool"]),
        ("y = AveragePool<kernel_shape=[2,3],pads=[1,1,0,1]>(a)", ["Conv", "AveragePool"]),
        ('y = Resize<mode="nearest">(a, , scales)', ["Conv", "Resize"]),
        ('y = Resize<mode="linear">(a, , scales)', ["Conv", "Resize"]),
        ("b = Conv<pads=[1,1,1,1]>(a, v) y = Concat<axis=1>(a, b, a)", ["Conv", "Conv"]),
        ("b = Conv<pads=[1,1,1,1]>(a, v) y = Concat<axis=2>(a, b)", ["Conv", "Conv"]),
        ("y = ConvTranspose<strides=[2,3]>(a, spread)", ["Conv", "ConvTranspose"]),
        ("b = ConvTranspose<strides=[2,2]>(a, narrow) c = Add(b, b) y = Sigmoid(c)", ["Conv", "Sigmoid"]),
        ("b = Mul(a, channel) c = Add(b, a) y = Relu(c)", ["Relu"]),
    ],
)  # fmt: skip
def test_one_transpose_at_each_edge(image: str, body: str, inside: list[str]) -> None:
    """A Concat may be a kernel of its own or a part of the last one (tests/passes/test_moves.py)."""
    assert [o for o in ops(run(body, image)) if o != "Concat"] == ["Transpose", *inside, "Transpose"]


def test_transposes_of_the_model_are_gone() -> None:
    assert ops(run("y = Transpose<perm=[0,2,3,1]>(a)")) == ["Transpose", "Conv"]
    plan = run("b = Reshape(a, flat) y = Transpose<perm=[0,2,1]>(b)", result="float[o,p,q] y")
    assert ops(plan) == ["Transpose", "Conv"]
    body = f"t = Transpose<perm=[0,3,1,2]>(x) {CONV.replace('(x', '(t')} y = Transpose<perm=[0,2,3,1]>(a)"
    plan = check(parse(f"agraph (float[2,9,11,8] x) => (float[o,p,q,r] y) {{ {body} }}", {"w": CONSTANTS["w"]}))
    assert ops(plan) == ["Conv"]


def test_transposes_around_axes_of_one_are_gone() -> None:
    body = "s = Slice(x, from, end, axis) t = Transpose<perm=[0,2,1,3]>(s) y = Conv<pads=[2,0,2,0]>(t, k)"
    places = {"from": np.array([0]), "end": np.array([10**9]), "axis": np.array([0])}
    model = parse(
        f"agraph (float[N,90,80,1] x) => (float[o,p,q,r] y) {{ {body} }}", {"k": weights(12, 80, 5, 1), **places}
    )
    assert ops(check(model)) == ["Conv", "Transpose"]


@pytest.mark.parametrize("channels", [3, 2, 1])
def test_few_channels_after_what_moves_them(channels: int) -> None:
    kernel = weights(12, channels, 5, 5)
    body = "s = Slice(x, one, many, two) t = Transpose<perm=[0,3,1,2]>(s) a = Conv<pads=[2,2,2,2]>(t, k) y = Relu(a)"
    places = {"one": np.array([1]), "many": np.array([9]), "two": np.array([2])}
    check(parse(f"agraph (float[2,9,11,{channels}] x) => (float[o,p,q,r] y) {{ {body} }}", {"k": kernel, **places}))
    body = "t = Transpose<perm=[0,3,2,1]>(x) s = Relu(t) y = Conv<pads=[2,2,2,2]>(s, k)"
    check(parse(f"agraph (float[2,9,11,{channels}] x) => (float[o,p,q,r] y) {{ {body} }}", {"k": kernel}))


def test_reshapes_of_the_spatial_axes_keep_the_layout() -> None:
    line = {"k": weights(12, 8, 1, 5), "third": np.array([2]), "one": weights(5, 12, 3)}
    body = "a = Conv<pads=[0,2,0,2]>(x, k) b = Squeeze(a, third) c = Relu(b) y = Conv(c, one)"
    plan = check(parse(f"agraph (float[2,8,1,21] x) => (float[o,p,q] y) {{ {body} }}", line))
    assert ops(plan).count("Transpose") == 2
    body = "a = Conv<pads=[0,2,0,2]>(x, k) b = Squeeze(a, third) c = Softmax<axis=1>(b) y = Unsqueeze(c, third)"
    check(parse(f"agraph (float[2,8,1,21] x) => (float[o,p,q,r] y) {{ {body} }}", line))


def test_other_transposes_are_composed() -> None:
    assert ops(run("y = Transpose<perm=[3,1,0,2]>(a)")) == ["Transpose", "Conv", "Transpose"]


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("y = GlobalAveragePool(a)", "float[o,p,q,r] y"),
        ("y = GlobalMaxPool(a)", "float[o,p,q,r] y"),
        ("y = ReduceMean<keepdims=0>(a, axes)", "float[o,p] y"),
        ("b = GlobalAveragePool(a) c = Sigmoid(b) d2 = Mul(a, c) y = GlobalAveragePool(d2)", "float[o,p,q,r] y"),
    ],
)
def test_one_pixel_needs_no_transpose(body: str, result: str) -> None:
    assert ops(run(body, result=result)).count("Transpose") == 1


def test_other_readers_get_their_own_copy() -> None:
    plan = run("y = Relu(a) z = Softmax<axis=1>(a)", result="float[o,p,q,r] y, float[s,t,u,v2] z")
    assert ops(plan).count("Transpose") == 3
    assert "softmax_rows" in kernels(plan) or "Softmax" in ops(plan)


def test_outputs_of_any_number_of_channels() -> None:
    assert ops(run("b = Conv(a, one) y = Sigmoid(b)"))[-1] == "Transpose"


def test_operand_along_the_last_axis() -> None:
    plan = run("b = Conv<strides=[3,4]>(a, v) y = Add(b, columns)")
    assert "conv_last" in kernels(plan)


def test_operands_whose_sizes_may_differ() -> None:
    body = f"{CONV} b = Conv<pads=[1,1,1,1]>(z, w) c = Add(a, b) y = Relu(c)"
    images = "float[1,8,H,W] x, float[1,8,K,L] z"
    plan = check(parse(f"agraph ({images}) => (float[o,p,q,r] y) {{ {body} }}", {"w": CONSTANTS["w"]}))
    assert ops(plan).count("Transpose") == 3


def test_operand_from_elsewhere() -> None:
    plan = run("y = Add(a, r)", more=", float[2,12,9,11] r")
    assert "conv_last" in kernels(plan)
    plan = run("y = Add(a, r)", more=", float[11] r")
    assert "conv_last" in kernels(plan)


def test_overlapping_transposed_convolutions_stay() -> None:
    plan = run("y = ConvTranspose<strides=[1,2]>(a, spread)")
    assert ops(plan) == ["Transpose", "Conv", "Transpose", "ConvTranspose"]


def test_few_products_and_fed_weights_stay() -> None:
    few = parse("agraph (float[1,3,9,9] x) => (float[a,b,c,d] y) { y = Conv(x, w) }", {"w": weights(4, 3, 2, 2)})
    assert ops(compiled(few)) == ["Conv"]
    fed = parse("agraph (float[1,8,9,9] x, float[4,8,3,3] w) => (float[a,b,c,d] y) { y = Conv(x, w) }")
    assert dispatches(compiled(fed)) == 2
    assert "conv_last" not in kernels(compiled(fed))


def test_only_at_the_highest_level_and_by_name() -> None:
    model = parse(f"agraph ({IMAGES[0]}) => (float[o,p,q,r] a) {{ {CONV} }}", {"w": CONSTANTS["w"]})
    assert "conv_last" in kernels(compiled(model))
    assert "conv_last" not in kernels(compiled(model, level="extended"))
    assert "conv_last" not in kernels(compiled(model, disabled={"channels_last"}))


def test_rank_3() -> None:
    body = "a = Conv<pads=[2,2],dilations=[2]>(x, w) b = Relu(a) y = MaxPool<kernel_shape=[2],strides=[2]>(b)"
    plan = check(parse(f"agraph (float[2,8,21] x) => (float[a1,b1,c1] y) {{ {body} }}", {"w": weights(12, 8, 5)}))
    assert ops(plan) == ["Transpose", "Relu", "MaxPool", "Transpose"]


WEIGHTS = {
    "w": RNG.standard_normal((6, 4)).astype(np.float32), "codes": RNG.integers(-99, 99, (6, 4, 3, 3)).astype(np.int8),
    "scales": np.full(6, 0.01, np.float32), "zeros": np.full(6, 3, np.int8), "s": np.float32(0.05),
    "z": np.uint8(120),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "quantum"),
    [
        ('float[N,5,4] x) => (float[N,5,6] y) { y = Einsum<equation="bij,kj->bik">(x, w) }', 0.0),
        (
            """float[N,4,6,6] x) => (float[N,6,4,4] y) { q = QuantizeLinear(x, s, z)
            r = QLinearConv(q, s, z, codes, scales, zeros, s, z) y = DequantizeLinear(r, s, z) }""",
            0.05,
        ),
    ],
)
def test_no_run_moves_weights(body: str, quantum: float) -> None:
    given = {k: v for k, v in WEIGHTS.items() if re.search(rf"\b{k}\b", body.split("{")[1])}
    plan = check(parse(f"agraph ({body}", given), atol=quantum + 1e-5)
    for step in plan.steps:
        assert isinstance(step, Dispatch)
        assert any(kind == "r" and place[0] != "c" for place, kind, _, _ in step.bindings)
