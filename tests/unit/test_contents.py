"""Shape arithmetic: chains of nodes written as ONNX text, their contents as Dims, and what must not be guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

from webrt import dims as D
from webrt.compiler import contents, frontend, infer
from webrt.errors import WebrtError
from webrt.ir import Graph, Node, Value

BATCH, SEQ = D.var("b"), D.var("s")


def graph(body: str, inputs: str = "float[b,s,6] x") -> Graph:
    """The inferred graph of a model whose last value is y."""
    text = f'<ir_version: 10, opset_import: ["" : 18]> g ({inputs}) => (int64[n] y) {{ {body} }}'
    made = frontend.load(onnx.parser.parse_model(text))
    infer.infer(made)
    return made


def contents_of(body: str, inputs: str = "float[b,s,6] x") -> list[Any] | None:
    """The contents of y as a flat list."""
    (y,) = [v for n in graph(body, inputs).nodes for v in n.outputs if v is not None and v.name == "y"]
    return None if y.contents is None else list(y.contents.flat)


def constants(**arrays: list[int]) -> str:
    texts = {k: f"int64[{len(v)}] {{{', '.join(map(str, v))}}}" for k, v in arrays.items()}
    return " ".join(f"{k} = Constant <value = {v}> ()" for k, v in texts.items())


SHAPE = "t = Shape (x)\n"


@pytest.mark.parametrize(
    "body,expected",
    [
        ("y = Shape (x)", [BATCH, SEQ, 6]),
        ("y = Shape <start = 1, end = -1> (x)", [SEQ]),
        ("z = Size (x) " + constants(a=[0]) + " y = Unsqueeze (z, a)", [BATCH * SEQ * 6]),
        (SHAPE + constants(i=[-1, 0]) + " y = Gather (t, i)", [6, BATCH]),
        (SHAPE + constants(a=[1], e=[9]) + " y = Slice (t, a, e)", [SEQ, 6]),
        (SHAPE + constants(c=[-1]) + " y = Concat <axis = 0> (t, c)", [BATCH, SEQ, 6, -1]),
        (SHAPE + "u, v, w = Split <axis = 0, num_outputs = 3> (t) y = Mul (v, w)", [SEQ * 6]),
        (SHAPE + constants(c=[2]) + " y = Div (t, c)", [BATCH // 2, SEQ // 2, 3]),
        (SHAPE + constants(c=[4]) + " y = Mod (t, c)", [BATCH % 4, SEQ % 4, 2]),
        (SHAPE + "y = ReduceProd (t)", [BATCH * SEQ * 6]),
        (
            SHAPE + constants(c=[6]) + " q = Equal (t, c) y = Where (q, c, t)",
            [D.select(D.eq(BATCH, 6), 6, BATCH), D.select(D.eq(SEQ, 6), 6, SEQ), 6],
        ),
        (SHAPE + constants(c=[3]) + " y = Max (t, c)", [D.maximum(BATCH, 3), D.maximum(SEQ, 3), 6]),
        (SHAPE + "f = Cast <to = 6> (t) y = Cast <to = 7> (f)", [BATCH, SEQ, 6]),
        (SHAPE + constants(r=[2]) + " y = Tile (t, r)", [BATCH, SEQ, 6, BATCH, SEQ, 6]),
        (
            SHAPE + constants(n=[2]) + " k = ConstantOfShape <value = int64[1] {7}> (n) y = Concat <axis = 0> (k, t)",
            [7, 7, BATCH, SEQ, 6],
        ),
        (SHAPE + "m = Neg (t) y = Abs (m)", [BATCH, SEQ, 6]),
    ],
)  # fmt: skip
def test_chains(body: str, expected: list[Any]) -> None:
    assert contents_of(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        SHAPE + "f = Cast <to = 1> (t) y = Cast <to = 7> (f)",
        SHAPE + "y = NonZero (t)",
    ],
)
def test_what_is_not_proved_stays_unknown(body: str) -> None:
    assert contents_of(body) is None


def node(op: str, inputs: list[Any], **attrs: Any) -> Node:
    """A node over integer vectors whose elements are given."""
    values: list[Value | None] = []
    for k, elements in enumerate(inputs):
        flat = np.empty(len(elements), dtype=object)
        flat[:] = elements
        values.append(Value(f"x{k}", infer.T.I64, (len(elements),), contents=flat))
    out = Value("y", infer.T.I64, (max(len(x) for x in inputs),))
    protos = {k: onnx.helper.make_attribute(k, v) for k, v in attrs.items()}
    return Node(op, "", "n", values, [out], 18, protos)


def test_division_rounds_towards_zero() -> None:
    free = D.element("t", 0)
    (found,) = contents.propagate(node("Div", [[-7, 7, -7, 7, free], [2, -2, -2, 2, 4]]))
    assert found is not None
    assert list(found[:4]) == [-3, -3, 3, 3]
    for value in (-9, -8, -1, 0, 1, 9):
        assert D.substitute(found[4], {"in:t[0]": value}) == int(value / 4)


def test_a_quotient_of_unknown_signs_is_not_guessed() -> None:
    assert contents.propagate(node("Div", [[D.element("t", 0)], [D.element("t", 1)]])) == [None]


def test_a_remainder_takes_the_sign_that_its_attribute_says() -> None:
    (floored,) = contents.propagate(node("Mod", [[-7, 7], [3, -3]]))
    (truncated,) = contents.propagate(node("Mod", [[-7, 7], [3, -3]], fmod=1))
    assert floored is not None and list(floored) == [2, -2]
    assert truncated is not None and list(truncated) == [-1, 1]


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(WebrtError, match="divided by zero"):
        contents.propagate(node("Div", [[4], [0]]))


def test_an_index_out_of_range_stays_unknown() -> None:
    assert contents.propagate(node("Gather", [[1, 2], [5]])) == [None]


def test_casts_wrap_numbers_and_keep_sizes() -> None:
    cast = node("Cast", [[2**31 + 5, SEQ, 0]], to=6)
    cast.output().dtype = infer.T.I32
    (found,) = contents.propagate(cast)
    assert found is not None and list(found) == [5 - 2**31, SEQ, 0]
    cast.output().dtype = infer.T.BOOL
    (found,) = contents.propagate(cast)
    assert found is not None and found[0] == 1 and found[2] == 0


def test_the_size_of_contents_is_bounded() -> None:
    big = Value("big", infer.T.I64, (2000,), const=np.zeros(2000, np.int64))
    assert contents.contents_of(big) is None
