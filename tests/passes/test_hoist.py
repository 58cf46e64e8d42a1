"""Elementwise nodes that change places with nodes which only move."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.passes.harness import basic_ops, check, dispatches, parse

CONSTANTS = {
    "c": np.float32(0.25),
    "shape": np.array([4, 3, 2], np.int64),
    "row": np.linspace(1, 2, 6, dtype=np.float32),
}
PRODUCT = "m = MatMul(x, w)"


def model_of(body: str, outputs: str = "float[a,b] y"):
    words = "".join(ch if ch.isalnum() else " " for ch in body).split()
    used = {k: a for k, a in CONSTANTS.items() if k in words}
    return parse(f"agraph (float[4,5] x, float[5,6] w) => ({outputs}) {{ {PRODUCT} {body} }}", used)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("t = Transpose(m) y = Mul(t, c)", ["MatMul", "Mul", "Transpose"]),
        ("t = Transpose(m) y = Sub(c, t)", ["MatMul", "Sub", "Transpose"]),
        ("t = Transpose(m) r = Relu(t) y = Div(r, c)", ["MatMul", "Relu", "Div", "Transpose"]),
    ],
)
def test_function_goes_first(body: str, left: list[str]) -> None:
    model = model_of(body)
    assert dispatches(check(model)) == 2
    assert basic_ops(model) == left


def test_through_several_moves() -> None:
    model = model_of("r = Reshape(m, shape) t = Transpose<perm=[1,0,2]>(r) y = Tanh(t)", "float[a,b,d] y")
    assert dispatches(check(model)) == 2
    assert basic_ops(model) == ["MatMul", "Tanh", "Reshape", "Transpose"]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("t = Transpose(m) y = Mul(t, c) z = Neg(t)", "float[a,b] y, float[d,e] z"),
        ("t = Transpose(m) y = Mul(t, c)", "float[a,b] y, float[d,e] t"),
        ("t = Transpose(m) y = Relu(t) z = Exp(m)", "float[a,b] y, float[d,e] z"),
        ("s = Softmax(m) t = Transpose(s) y = Mul(t, c)", "float[a,b] y"),
        ("t = Transpose(x) y = Mul(t, c) z = Exp(m)", "float[a,b] y, float[d,e] z"),
        ("t = Transpose(m) u = Transpose<perm=[1,0]>(t) v = Softmax(u) y = Mul(v, row)", "float[a,b] y"),
        ("t = Transpose(m) y = Greater(t, c)", "bool[a,b] y"),
    ],
)
def test_stays(body: str, outputs: str) -> None:
    model = model_of(body, outputs)
    check(model)
    ops = basic_ops(model)
    for first, second in itertools.pairwise(ops):
        assert (first, second) not in {("Mul", "Transpose"), ("Relu", "Transpose"), ("Greater", "Transpose")}
