"""Outputs that take the place of an operand: where they may, where they must not, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import oracle, run_native
from tests.passes.harness import feeds_of, parse
from tests.tolerance import close
from webrt import plan as P
from webrt.compiler.compile import CompileOptions, compile_model

ONE_BY_ONE = ("fuse_elementwise", "fuse_epilogues")
CHAIN = "s = Softmax<axis=-1>(x) {rest}"


def slots_of(text: str, outputs: str = "float[n,5] y", inputs: str = "float[n,5] x") -> list[list[tuple[P.Place, str]]]:
    """Per dispatch what it binds, of a model whose results are checked, in place and not."""
    model = parse(f"agraph ({inputs}) => ({outputs}) {{ {text} }}")
    feeds = feeds_of(model)
    got, plan = run_native(model, feeds, disabled=ONE_BY_ONE)
    apart, _ = run_native(model, feeds, disabled=(*ONE_BY_ONE, "in_place"))
    for a, b, want in zip(got, apart, oracle(model, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
        close(a, want)
    return [[(place, access) for place, access, *_ in s.bindings] for s in plan.steps if isinstance(s, P.Dispatch)]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ("float[n,5] x", "float[n,5] y"),
        ("float[2,8] x", "float[2,8] y"),
        ("float16[n,5] x", "float16[n,5] y"),
        ("float[n,5] x", "float[n,5] y, float[n,5] x2"),
    ],
    ids=["odd", "fours", "halves", "two-outputs"],
)
def test_the_output_replaces_an_operand_that_is_read_last(inputs: str, outputs: str) -> None:
    rest = "a = Sin(s) y = Neg(a)" + (" x2 = Abs(x)" if "x2" in outputs else "")
    bound = slots_of(CHAIN.format(rest=rest), outputs, inputs)
    alone = [k for k, b in enumerate(bound) if len(b) == 1]
    assert len(alone) == 2
    for k in alone:
        assert bound[k][0][1] == "w"
        assert bound[k][0][0] == bound[k - 1][-1][0]


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        (CHAIN.format(rest="y = Neg(s) z = Softmax<axis=0>(s)"), "float[n,5] y, float[n,5] z"),
        (CHAIN.format(rest="y = Neg(s)"), "float[n,5] y, float[n,5] s"),
        ("y = Neg(x)", "float[n,5] y"),
        (CHAIN.format(rest="y = Mul(s, s)"), "float[n,5] y"),
        (CHAIN.format(rest="r = ReduceMax<keepdims=1>(x) t = Softmax(r) y = Sub(x, t)"), "float[n,5] y"),
        (CHAIN.format(rest="c = Cast<to=6>(s) y = Neg(c)"), "int32[n,5] y"),
        (CHAIN.format(rest="r = Flatten(s) y = Neg(s) z = Softmax<axis=0>(r)"), "float[n,5] y, float[n,5] z"),
    ],
    ids=["read-later", "an-output", "an-input", "twice", "broadcast", "other-type", "read-by-another-name"],
)
def test_the_operand_stays(text: str, outputs: str) -> None:
    bound = slots_of(text, outputs)
    after = bound[-1] if "Sub" in text else bound[1] if len(bound) > 1 and "Softmax" in text.split(")")[0] else bound[0]
    assert len({place for place, _ in after}) == 2 + ("Sub" in text), after


def test_a_reshaped_operand_is_replaced() -> None:
    bound = slots_of(CHAIN.format(rest="r = Flatten<axis=0>(s) y = Neg(r)"), "float[1,m] y")
    assert [len(b) for b in bound] == [2, 1]


def test_what_may_become_a_part_stays() -> None:
    """A Split's copy is read where its source is, rather than written over."""
    text = "s = Softmax(x) a, b = Split<axis=0, num_outputs=2>(s) p = Sin(a) y = Softmax(p) z = Softmax(b)"
    bound = slots_of(text, "float[2,64] y, float[2,64] z", "float[4,64] x")
    assert [len({place for place, _ in b}) for b in bound] == [2, 2, 2, 2]


def test_fewer_bytes() -> None:
    model = parse("agraph (float[64,64] x) => (float[64,64] y) { s = Softmax(x) a = Sin(s) b = Cos(a) y = Sub(b, x) }")
    sizes = [
        sum(int(s.size) for s in compile_model(model, CompileOptions(disabled=(*ONE_BY_ONE, *off))).slots if s.size)
        for off in ((), ("in_place",))
    ]
    assert sizes == [2 * 16384, 3 * 16384]
