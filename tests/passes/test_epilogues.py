"""What follows a pool or a reduction, computed where its result is stored: where it must be, and where not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.harness import check, compiled, dispatches, ops, parse

DRAW = np.random.default_rng(3)
POOLS = {
    "MaxPool": "MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
    "AveragePool": "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
    "LpPool": "LpPool<kernel_shape=[2,2]>(x)",
    **{op: f"{op}(x)" for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")},
}
FOLDS = ("Sum", "L1", "SumSquare", "Prod", "Mean", "Max", "Min", "L2", "LogSum", "LogSumExp")
HEADS = POOLS | {f"Reduce{name}": f"Reduce{name}<keepdims=1>(x, planes)" for name in FOLDS}
IMAGE, OUT = "float[2,4,6,6] x", "float[a,b,c,d] y"


def model(body: str, inputs: str = IMAGE, outputs: str = OUT, **more: np.ndarray):
    constants = {
        "planes": np.array([2, 3]), "channel": DRAW.standard_normal((4, 1, 1)).astype(np.float32),
        "half": np.float32(0.5), "one": np.float32(1), **more,
    }  # fmt: skip
    words = body.translate(str.maketrans("(),", "   ")).split()
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {body} }}", {k: v for k, v in constants.items() if k in words})


@pytest.mark.parametrize("op", HEADS)
def test_one_kernel(op: str) -> None:
    plan = check(
        model(f"a = Softmax(x) m = {HEADS[op].replace('(x', '(a')} b = Mul(m, channel) c = Sigmoid(b) y = Add(c, one)")
    )
    assert ops(plan) == ["Softmax", "Add"]
    assert dispatches(plan) == 2 + (op == "ReduceLogSumExp")


@pytest.mark.parametrize("op", ["MaxPool", "GlobalAveragePool", "ReduceMean"])
def test_a_residual_is_an_operand(op: str) -> None:
    residual = "float[2,4,3,3] r" if op == "MaxPool" else "float[2,4,1,1] r"
    assert dispatches(check(model(f"m = {HEADS[op]} a = Add(r, m) y = Relu(a)", f"{IMAGE}, {residual}"))) == 1


@pytest.mark.parametrize("channels", [8, 6], ids=["fours", "odd"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "GlobalAveragePool"])
def test_channels_last(op: str, channels: int) -> None:
    weights = {k: DRAW.standard_normal((channels, channels, 3, 3)).astype(np.float32) / 8 for k in "uv"}
    body = f"p = Conv(x, u) q = Conv(p, v) m = {HEADS[op].replace('(x', '(q')} a = Mul(m, channel) y = HardSwish(a)"
    scale = DRAW.standard_normal((channels, 1, 1)).astype(np.float32)
    plan = check(model(body, f"float[1,{channels},12,12] x", channel=scale, **weights))
    assert "HardSwish" in ops(plan) and op not in ops(plan)


def test_a_flattened_result_too() -> None:
    assert (
        dispatches(check(model("m = GlobalAveragePool(x) f = Flatten(m) y = HardSwish(f)", outputs="float[a,b] y")))
        == 1
    )


def test_free_and_long_rows() -> None:
    for shape in ("n,4,h,w", "1,2,100,100"):
        plan = check(model("m = GlobalAveragePool(x) a = Mul(m, half) y = Sigmoid(a)", f"float[{shape}] x"))
        assert ops(plan) == ["Sigmoid"]


@pytest.mark.parametrize(
    ("dtype", "body"),
    [
        ("float16", "m = MaxPool<kernel_shape=[2,2]>(x) y = Sigmoid(m)"),
        ("float16", "m = GlobalAveragePool(x) y = Tanh(m)"),
        ("int64", "m = ReduceSum<keepdims=1>(x, planes) y = Neg(m)"),
        ("uint8", "m = MaxPool<kernel_shape=[3,3]>(x) y = Max(m, m)"),
    ],
)
def test_other_types(dtype: str, body: str) -> None:
    code = {"float16": 10, "int64": 7, "uint8": 2}[dtype]
    body = f"s = Mul(x, x) t = Cast<to={code}>(s) {body.replace('(x', '(t')}"
    plan = check(model(body, outputs=f"{dtype}[a,b,c,d] y"), **({"atol": 2e-2} if dtype == "float16" else {}))
    assert dispatches(plan) == 2 - ("Reduce" in body)


@pytest.mark.parametrize(
    ("body", "outputs", "left"),
    [
        ("y = Relu(m) z = Softmax(m)", f"{OUT}, float[e,f,g,h] z", "{} Relu Softmax"),
        ("y = Relu(m)", f"{OUT}, float[e,f,g,h] m", "{} Relu"),
        ("y = Greater(m, half)", "bool[a,b,c,d] y", "{} Greater"),
        ("y = Mul(m, x2)", OUT, "{} Mul"),
        ("y = Softmax(m)", OUT, "{} Softmax"),
    ],
    ids=["second-consumer", "an-output", "other-type", "other-shape", "no-formula"],
)
@pytest.mark.parametrize("op", ["MaxPool", "GlobalMaxPool", "ReduceMax"])
def test_apart(op: str, body: str, outputs: str, left: str) -> None:
    inputs = f"{IMAGE}, float[5,1,4,3,3] x2" if "x2" in body else IMAGE
    outputs = outputs.replace("a,b,c,d", "a,b,c,d,e") if "x2" in body else outputs
    assert ops(check(model(f"m = {HEADS[op]} {body}", inputs, outputs))) == left.format(op).split()


def test_indices_keep_a_pool_apart() -> None:
    body = "m, i = MaxPool<kernel_shape=[2,2]>(x) y = Neg(m)"
    assert ops(check(model(body, outputs=f"{OUT}, int64[e,f,g,h] i"))) == ["MaxPool", "Neg"]


def test_switched_off() -> None:
    made = model("m = GlobalAveragePool(x) y = Sigmoid(m)")
    assert ops(compiled(made, disabled={"fuse_epilogues"})) == ["GlobalAveragePool", "Sigmoid"]
