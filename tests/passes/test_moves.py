"""Operators that only move elements, computed where they are read: where they must be, and where not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.passes.harness import check, compiled, dispatches, ops, parse
from webrt.target import PRESETS

INTS = {
    "one": np.array([1]), "three": np.array([3]), "axis": np.array([1]), "flat": np.array([-1]),
    "pads": np.array([0, 1, 0, 0, 2, 0]), "wide": np.array([2, 3, 4, 6]), "half": np.float32(0.5),
    "rows": np.array([2, 0, -1, 1]), "back": np.array([[0, 1], [1, 0], [1, 2]]), "table": np.float32([[1, 2], [3, 4]]),
    "zero": np.array(0), "step": np.array(1), "six": np.array(6), "two": np.array([2]), "start": np.array([0]),
    "end": np.array([99]), "last": np.array([2]), "minus": np.array([-1]), "low": np.array([-99]),
    "before": np.array([0, 0, 1, 0, 0, 0]), "after": np.array([0, 0, 0, 0, 0, 1]),
}  # fmt: skip


def model(body: str, inputs: str = "float[2,3,4] x", outputs: str = "float[a,b,c] y", opset: int = 20):
    used = {k: v for k, v in INTS.items() if k in body}
    return parse(f"agraph ({inputs}) => ({outputs}) {{ {body} }}", used, opset)


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose<perm=[2,0,1]>(x) y = Exp(t)",
        "e = Exp(x) y = Transpose<perm=[2,0,1]>(e)",
        "s = Slice(x, one, three, axis) y = Neg(s)",
        "t = Transpose<perm=[2,0,1]>(x) u = Slice(t, one, three, axis) y = Mul(u, half)",
        "p = Pad(x, pads) y = Tanh(p)",
        'p = Pad<mode="reflect">(x, pads) t = Transpose<perm=[1,0,2]>(p) y = Tanh(t)',
        "a, b = Split<axis=2, num_outputs=2>(x) s = Sigmoid(b) y = Mul(a, s)",
        "t = Transpose<perm=[0,2,1]>(x) r = Transpose<perm=[0,2,1]>(t) n = Neg(t) u = Transpose<perm=[0,2,1]>(n) "
        "y = Add(r, u)",
        "e = Exp(x) n = Neg(x) y = Concat<axis=1>(e, n)",
        "s = Slice(x, one, three, axis) p = Pad(s, pads) n = Neg(x) y = Concat<axis=1>(p, s, n)",
        "g = Gather<axis=1>(x, rows) y = Abs(g)",
        "r = Reshape(x, flat) e = Exp(r) m = Mul(e, e) y = Unsqueeze(m, axis)",
    ],
)
def test_one_kernel(body: str) -> None:
    shape = "float[a,b]" if "Reshape" in body else "float[a,b,c]"
    assert dispatches(check(model(body, outputs=f"{shape} y"))) == 1


TURNED = "y = Transpose<perm=[1,0,2]>(c)"


@pytest.mark.parametrize(("then", "rows", "apart"), [("", 1024, 4), (TURNED, 1 << 16, 5), (TURNED, 1024, 1)])
def test_a_large_concatenation_of_fours_stays_apart_on_software_adapters(then: str, rows: int, apart: int) -> None:
    """Of what another kernel could take in, only a larger one: it has to be stored."""
    body = f"e = Exp(x) n = Neg(x) {'c' if then else 'y'} = Concat<axis=2>(e, n) {then}"
    large, small, odd = (model(body, f"float[2,{n},{row}] x") for n, row in ((rows, 8), (8, 8), (rows, 9)))
    for name, count in (("lavapipe", apart), ("webgpu", 1)):
        counts = [dispatches(compiled(m, target=PRESETS[name])) for m in (large, small, odd)]
        assert counts == [count, 1, 1]
    check(model(body, "float[2,1024,8] x"))


def test_a_large_lookup_of_rows_of_fours_stays_apart_on_software_adapters() -> None:
    """What makes its indices is computed once for each, not once for each element of a row."""
    body = "w = Relu(z) i = Clip(ids, low, high) y = Gather(w, i)"
    bounds = {"low": np.array(0), "high": np.array(4)}
    large, small, odd = (
        parse(f"agraph (int64[4,{n}] ids, float[5,{row}] z) => (float[a,b,c] y) {{ {body} }}", bounds)
        for n, row in ((256, 16), (8, 16), (256, 17))
    )
    for name, count in (("lavapipe", 3), ("webgpu", 2)):
        counts = [dispatches(compiled(m, target=PRESETS[name])) for m in (large, small, odd)]
        assert counts == [count, 2, 2]
    check(large)


EVERY_OTHER = "e = Slice(x, start, end, last, two) o = Slice(x, one, end, last, two)"


@pytest.mark.parametrize(
    ("body", "picked", "inputs"),
    [
        (f"{EVERY_OTHER} y = Concat<axis=1>(e, o)", 1, "float[2,3,4] x"),
        (f"{EVERY_OTHER} y = Concat<axis=1>(e, o)", 1, "float[n,m,4] x"),
        (f"{EVERY_OTHER} y = Concat<axis=1>(e, o)", 1, "int64[2,3,4] x"),
        (f"{EVERY_OTHER} y = Concat<axis=1>(e, o, e)", 1, "float16[2,3,6] x"),
        (f"{EVERY_OTHER} y = Concat<axis=2>(o, x, e)", 1, "float[2,3,4] x"),
        (f"{EVERY_OTHER} s = Slice(z, start, end, last, two) t = Slice(z, one, end, last, two) "
         "y = Concat<axis=2>(s, o, z, t, e)", 2, "float[2,3,4] x, float[2,3,6] z"),
        ("a = Slice(x, one, end, last) b = Slice(x, start, three, last) p = Pad(a, after) q = Pad(b, before) "
         "r = Slice(x, minus, low, last, minus) y = Concat<axis=1>(p, x, q, r)", 1, "float[2,3,4] x"),
        ("a = Slice(x, one, three, last) b = Slice(x, start, two, last) p = Pad(a, after) q = Pad(b, after) "
         "y = Concat<axis=2>(p, x, q)", 1, "float[2,3,4] x"),
        (f"{EVERY_OTHER} f = Exp(e) g = Exp(o) c = Concat<axis=0>(f, g) y = Transpose<perm=[2,1,0]>(c)", 1,
         "float[2,3,4] x"),
        (f"{EVERY_OTHER} f = Exp(e) g = Neg(o) y = Concat<axis=0>(f, g)", 0, "float[2,3,4] x"),
    ],
)  # fmt: skip
def test_inputs_that_are_alike_are_computed_once(body: str, picked: int, inputs: str) -> None:
    """A kernel loads once for each family of inputs that differ in sizes alone, and once for each other input."""
    kind = inputs.split("[")[0]
    plan = check(model(body, inputs, f"{kind}[a,b,c] y"))
    assert dispatches(plan) == 1
    (kernel,) = plan.kernels
    assert len(set(re.findall(r"value\d+_(\d)_0\(", kernel.wgsl))) == picked
    assert ("picked" in kernel.wgsl) == bool(picked)


def test_a_move_that_is_no_work_makes_no_kernel_of_single_elements() -> None:
    """Formulas over a vector that only stands along another axis are computed four at a time."""
    body = "t = Transpose<perm=[1,0,2]>(x) m = Mul(t, z) y = Add(m, m)"
    plan = check(model(body, "float[1,5,1] x, float[5,3,8] z"))
    assert dispatches(plan) == 1 and "vec4<f32>" in plan.kernels[0].wgsl


@pytest.mark.parametrize("dtype", ["float16", "int64", "bool"])
def test_other_types(dtype: str) -> None:
    rest = {"float16": "y = Neg(t)", "int64": "y = Neg(t)", "bool": "y = Not(t)"}[dtype]
    code = {"float16": 10, "int64": 7, "bool": 9}[dtype]
    body = f"s = Mul(x, x) c = Cast<to={code}>(s) p = Pad(c, pads) t = Transpose<perm=[1,0,2]>(p) {rest}"
    check(model(body, outputs=f"{dtype}[a,b,c] y"), **({"atol": 2e-2} if dtype == "float16" else {}))


def test_arithmetic_is_not_repeated() -> None:
    wide = "e = Exp(x) u = Unsqueeze(e, zero_axis) y = Expand(u, wide)"
    made = parse(
        f"agraph (float[3,4,1] x) => (float[a,b,c,d] y) {{ {wide} }}",
        {"zero_axis": np.array([0]), "wide": INTS["wide"]},
    )
    assert ops(check(made)) == ["Exp", "Expand"]
    twice = "e = Exp(x) a = Transpose<perm=[1,0,2]>(e) b = Transpose<perm=[2,1,0]>(e)"
    plan = check(model(twice, outputs="float[d,e,f] a, float[g,h,i] b"))
    assert ops(plan) == ["Exp", "Transpose", "Transpose"]


def test_no_more_operands_than_a_shader_may_bind() -> None:
    names = [f"x{i}" for i in range(12)]
    body = " ".join(f"t{i} = Transpose(x{i})" for i in range(12))
    body += f" y = Concat<axis=0>({', '.join(f't{i}' for i in range(12))})"
    made = parse(f"agraph ({', '.join(f'float[2,3] {n}' for n in names)}) => (float[a,b] y) {{ {body} }}")
    check(made)


def test_pass_can_be_switched_off() -> None:
    made = model("t = Transpose<perm=[2,0,1]>(x) y = Exp(t)")
    assert dispatches(compiled(made, disabled={"fuse_moves"})) == 2
