"""Nodes that change nothing, and chains of nodes that only rearrange."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.passes import harness
from tests.passes.harness import check, parse

CONSTANTS = {
    "zero": np.float32(0), "one": np.float32(1), "shape": np.array([2, 6], np.int64), "line": np.array([12], np.int64),
    "same": np.array([1, 1], np.int64), "starts": np.array([0, 0], np.int64), "ends": np.array([2, 6], np.int64),
    "back": np.array([-1], np.int64), "far": np.array([-100], np.int64), "last": np.array([1], np.int64),
    "nothing": np.zeros(4, np.int64), "shift": np.array([0, 1, 0, -1], np.int64), "deep": np.array([3, 2, 2], np.int64),
    "keep": np.array([0, -1], np.int64), "ones": np.array([1.0, 1.0], np.float32), "half": np.float32(0.5),
}  # fmt: skip


def basic_ops(model: onnx.ModelProto) -> list[str]:
    """What is left where nothing changes places."""
    return harness.basic_ops(model, disabled={"hoist_elementwise"})


def tidy_model(body: str, opset: int = 20, outputs: str = "float[a,b] y"):
    used = {k: a for k, a in CONSTANTS.items() if k in body.replace(",", " ").replace(")", " ").split()}
    return parse(f"agraph (float[2,6] x) => ({outputs}) {{ e = Abs(x) {body} y = Neg(n) }}", used, opset)


@pytest.mark.parametrize(
    "body",
    [
        "n = Identity(e)",
        "n = Dropout(e)",
        "n = Cast<to=1>(e)",
        "n = Reshape( e, shape)",
        "n = Transpose<perm=[0,1]>(e)",
        "n = Expand( e, same)",
        "n = Tile( e, same)",
        "n = Flatten<axis=1>(e)",
        "n = Slice( e, starts, ends)",
        "n = Pad( e, nothing)",
        "n = Concat<axis=0>(e)",
        "n = Add( e, zero)",
        "n = Mul( one, e)",
        "n = Div( e, one)",
        "n = Sub( e, zero)",
        "t = Transpose(e) n = Transpose(t)",
        "t = Reshape( e, line) n = Reshape( t, shape)",
        "u = Unsqueeze( e, last) n = Squeeze( u, last)",
        "c = Cast<to=11>(e) n = Cast<to=1>(c)",
    ],
)
def test_changes_nothing(body: str) -> None:
    model = tidy_model(body)
    check(model)
    left = basic_ops(model)
    assert left == ["Abs", "Neg"] or (left == ["Abs", "Unsqueeze", "Squeeze", "Neg"] and "Unsqueeze" in body)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("n = Transpose<perm=[1,0]>(e)", ["Transpose"]),
        ("n = Slice( e, back, far, last, back)", ["Slice"]),
        ("n = Pad( e, shift)", ["Pad"]),
        ("n = Sub( zero, e)", ["Sub"]),
        ("n = Div( one, e)", ["Div"]),
        ("n = Mul( e, half)", ["Mul"]),
        ("h = Cast<to=10>(e) n = Cast<to=1>(h)", ["Cast", "Cast"]),
        ("h = Cast<to=7>(e) n = Cast<to=1>(h)", ["Cast", "Cast"]),
        ("t = Reshape( e, deep) n = Reshape( t, keep)", ["Reshape", "Reshape"]),
        ("t = Transpose<perm=[1,0]>(e) n = Mul( t, half)", ["Transpose", "Mul"]),
    ],
)
def test_changes_something(body: str, kept: list[str]) -> None:
    model = tidy_model(body)
    check(model)
    assert basic_ops(model) == ["Abs", *kept, "Neg"]


def test_dropout_in_training_stays() -> None:
    model = parse(
        """agraph (float[20,6] x) => (float[a,b] y) {
        m = ReduceMax<keepdims=0>(x) train = Cast<to=9>(m) e = Abs(x) n = Dropout(e, half, train) y = Neg(n) }""",
        {"half": np.float32(0.5)},
    )
    assert "Dropout" in basic_ops(model)


def test_names_of_outputs_stay() -> None:
    model = parse("agraph (float[3] x) => (float[3] y, float[3] z) { e = Abs(x) y = Identity(e) z = Identity(x) }")
    check(model)
    assert basic_ops(model) == ["Abs", "Identity"]
    both = parse("agraph (float[3] x) => (float[3] e, float[3] y) { e = Abs(x) y = Identity(e) }")
    check(both)
    assert basic_ops(both) == ["Abs", "Identity"]


def test_captured_names_stay() -> None:
    branches = "then_branch = g1 () => (float[3] a) { a = Neg(n) }, else_branch = g2 () => (float[3] b) { b = Abs(n) }"
    body = f"m = ReduceMax<keepdims=0>(x) c = Cast<to=9>(m) e = Abs(x) n = Identity(e) y = If (c) <{branches}>"
    model = parse(f"agraph (float[3] x) => (float[3] y) {{ {body} }}")
    check(model)
    found = basic_ops(model)
    assert found[: found.index("If") + 1][-3:] == ["Abs", "Identity", "If"]


def test_three_transposes_become_one() -> None:
    body = "a = Transpose<perm=[1,2,0]>(x) b = Transpose<perm=[1,2,0]>(a) y = Transpose<perm=[0,2,1]>(b)"
    model = parse(f"agraph (float[N,3,4] x) => (float[a,b,c] y) {{ {body} }}")
    check(model)
    assert basic_ops(model) == ["Transpose"]


def test_inner_of_a_chain_that_is_read_stays() -> None:
    model = parse(
        "agraph (float[2,3] x) => (float[a,b] y, float[c,d] t) { t = Transpose(x) s = Transpose(t) y = Neg(s) }"
    )
    check(model)
    assert basic_ops(model) == ["Transpose", "Neg"]
