"""Constant factors, summands, batch statistics and padding that move into weights and attributes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.harness import basic_ops, check, parse

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


W = {
    "Conv": ("conv = Conv<group=2>(x, w, b)", normal(6, 2, 3, 3)),
    "ConvTranspose": ("conv = ConvTranspose<group=2,strides=[2,2]>(x, w, b)", normal(4, 3, 3, 3)),
}
CHANNEL = normal(6, 1, 1) + 3
CONSTANTS = {
    "b": normal(6), "k": CHANNEL, "whole": normal(1, 6, 1, 1), "two": np.float32(2), "scale": normal(6) + 2,
    "bias": normal(6), "mean": normal(6), "var": np.abs(normal(6)) + 0.5, "column": normal(1, 1, 1, 5),
    "image": normal(2, 1, 1, 1), "five": normal(1, 1, 6, 1, 1),
}  # fmt: skip


def conv_model(op: str, rest: str, outputs: str = "float[a,c,d,e] y", inputs: str = "", **more: np.ndarray):
    text, w = W[op]
    constants = {k: a for k, a in {**CONSTANTS, **more, "w": w}.items() if k in words(text + rest)}
    return parse(f"agraph (float[2,4,5,7] x{inputs}) => ({outputs}) {{ {text} {rest} }}", constants)


def words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text).split()


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    "rest",
    [
        "y = Mul(conv, k)",
        "y = Mul(two, conv)",
        "y = Div(conv, k)",
        "y = Add(whole, conv)",
        "y = Sub(conv, k)",
        "m = Mul(conv, whole) y = Add(m, k)",
        "y = BatchNormalization<epsilon=0.01>(conv, scale, bias, mean, var)",
    ],
)
def test_into_the_weights(op: str, rest: str) -> None:
    model = conv_model(op, rest)
    check(model)
    assert basic_ops(model) == [op]


def test_bias_is_added_where_there_is_none() -> None:
    text = "conv = Conv<group=2>(x, w) y = Add(conv, k)"
    model = parse(
        f"agraph (float[N,4,5,7] x) => (float[a,c,d,e] y) {{ {text} }}", {"w": W["Conv"][1], "k": CONSTANTS["k"]}
    )
    check(model)
    assert basic_ops(model) == ["Conv"]


@pytest.mark.parametrize(
    ("rest", "left"),
    [
        ("y = Sub(k, conv)", ["Conv", "Sub"]),
        ("y = Div(k, conv)", ["Conv", "Div"]),
        ("y = Mul(conv, column)", ["Conv", "Mul"]),
        ("y = Mul(conv, image)", ["Conv", "Mul"]),
        ("y = Pow(conv, two)", ["Conv", "Pow"]),
    ],
)
def test_not_per_channel(rest: str, left: list[str]) -> None:
    model = conv_model("Conv", rest)
    check(model)
    assert basic_ops(model) == left


def test_more_axes_than_the_conv_has() -> None:
    model = conv_model("Conv", "y = Mul(conv, five)", "float[z,a,c,d,e] y")
    check(model)
    assert basic_ops(model) == ["Conv", "Mul"]


def test_second_reader_and_graph_output() -> None:
    two = "float[a,c,d,e] y, float[f,g,h,i] {}"
    model = conv_model("Conv", "y = Mul(conv, k) z = Neg(conv)", two.format("z"))
    check(model)
    assert basic_ops(model) == ["Conv", "Mul", "Neg"]
    model = conv_model("Conv", "y = Mul(conv, k)", two.format("conv"))
    check(model)
    assert basic_ops(model) == ["Conv", "Mul"]


def test_weights_that_are_fed() -> None:
    model = parse(
        "agraph (float[2,4,5,7] x, float[6,4,3,3] w) => (float[a,c,d,e] y) { v = Conv(x, w) y = Mul(v, k) }",
        {"k": CONSTANTS["k"]},
    )
    check(model)
    assert basic_ops(model) == ["Conv", "Mul"]


def test_shared_weights_keep_their_other_reader_right() -> None:
    text = "u = Conv<group=2>(x, w) v = Conv<group=2,strides=[2,2]>(x, w) y = Mul(u, k) z = Neg(v)"
    model = parse(
        f"agraph (float[2,4,5,7] x) => (float[a,c,d,e] y, float[f,g,h,i] z) {{ {text} }}",
        {"w": W["Conv"][1], "k": CONSTANTS["k"]},
    )
    check(model)
    assert basic_ops(model) == ["Conv", "Conv", "Neg"]


def test_factor_that_overflows_halves_stays() -> None:
    model = parse(
        "agraph (float16[1,2,3,3] x) => (float16[a,c,d,e] y) { v = Conv(x, w) y = Mul(v, k) }",
        {"w": np.full((2, 2, 1, 1), 1e-3, np.float16), "k": np.float16(60000)},
    )
    check(model, rtol=2e-3)
    assert basic_ops(model) == ["Conv"]
    model.graph.initializer[0].CopyFrom(_half("w", np.full((2, 2, 1, 1), 2.0)))
    assert basic_ops(model) == ["Conv", "Mul"]


def _half(name: str, array: np.ndarray):
    import onnx

    return onnx.numpy_helper.from_array(array.astype(np.float16), name)


def test_matmul_takes_factors() -> None:
    model = parse(
        "agraph (float[2,N,5] x) => (float[a,b,c] y) { m = MatMul(x, w) n = Mul(m, k) y = Add(n, k) }",
        {"w": normal(5, 6), "k": normal(6)},
    )
    check(model)
    assert basic_ops(model) == ["MatMul", "Add"]


def test_batch_norm_alone_becomes_mul_and_add() -> None:
    text = "y = BatchNormalization(x, scale, bias, mean, var)"
    model = parse(
        f"agraph (float[2,6,N] x) => (float[a,b,c] y) {{ {text} }}",
        {k: CONSTANTS[k] for k in ("scale", "bias", "mean", "var")},
    )
    check(model)
    assert basic_ops(model) == ["Mul", "Add"]


def test_batch_norm_that_is_fed_or_trains_stays() -> None:
    text = "y = BatchNormalization(x, scale, bias, mean, var)"
    model = parse(
        f"agraph (float[2,6,3] x, float[6] scale) => (float[a,b,c] y) {{ {text} }}",
        {k: CONSTANTS[k] for k in ("bias", "mean", "var")},
    )
    assert basic_ops(model) == ["BatchNormalization"]
    text = text.replace("y =", "y, m, v =").replace("ion(", "ion<training_mode=1>(")
    model = parse(
        f"agraph (float[2,6,3] x) => (float[a,b,c] y, float[6] m, float[6] v) {{ {text} }}",
        {k: CONSTANTS[k] for k in ("scale", "bias", "mean", "var")},
    )
    assert basic_ops(model) == ["BatchNormalization"]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = Mul(x, k) y = Mul(a, two)", ["Mul"]),
        ("a = Add(k, x) y = Add(two, a)", ["Add"]),
        ("a = Mul(x, k) y = Add(a, two)", ["Mul", "Add"]),
        ("a = Sub(x, k) y = Sub(a, two)", ["Sub", "Sub"]),
        ("a = Mul(x, row) y = Mul(a, side)", ["Mul", "Mul"]),
    ],
)
def test_chains_of_constants(body: str, left: list[str]) -> None:
    constants = {"k": normal(6, 1), "two": np.float32(1.5), "row": normal(4), "side": normal(6, 1)}
    used = {k: a for k, a in constants.items() if k in words(body)}
    model = parse(f"agraph (float[6,4] x) => (float[6,4] y) {{ {body} }}", used)
    check(model)
    assert basic_ops(model) == left


PADS = np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("p = Pad(x, pads) y = Conv<pads=[1,1,1,1]>(p, w)", ["Conv"]),
        ("p = Pad(x, pads) y = AveragePool<kernel_shape=[2,3]>(p)", ["AveragePool"]),
        ("p = Pad(x, pads) y = AveragePool<kernel_shape=[2,2]>(p)", ["Pad", "AveragePool"]),
        ("p = Pad(x, pads) y = AveragePool<kernel_shape=[2,2],pads=[1,1,1,1]>(p)", ["Pad", "AveragePool"]),
        ("p = Pad(x, pads) y = MaxPool<kernel_shape=[2,2]>(p)", ["Pad", "MaxPool"]),
        ("p = Pad(x, pads, one) y = Conv(p, w)", ["Pad", "Conv"]),
        ('p = Pad<mode="edge">(x, pads) y = Conv(p, w)', ["Pad", "Conv"]),
        ("p = Pad(x, deep) y = Conv(p, wide)", ["Pad", "Conv"]),
        ("p = Pad(x, crop) y = Conv(p, w)", ["Pad", "Conv"]),
        ('p = Pad(x, pads) y = Conv<auto_pad="SAME_UPPER">(p, w)', ["Pad", "Conv"]),
    ],
)
def test_padding(body: str, left: list[str]) -> None:
    constants = {
        "pads": PADS, "one": np.float32(1), "w": normal(2, 3, 2, 2), "wide": normal(2, 4, 2, 2),
        "deep": np.array([0, 1, 0, 0, 0, 0, 0, 0], np.int64), "crop": np.array([0, 0, 1, -1, 0, 0, 0, 0], np.int64),
    }  # fmt: skip
    used = {k: a for k, a in constants.items() if k in words(body)}
    model = parse(f"agraph (float[1,3,5,6] x) => (float[a,b,c,d] y) {{ {body} }}", used)
    check(model)
    assert basic_ops(model) == left
