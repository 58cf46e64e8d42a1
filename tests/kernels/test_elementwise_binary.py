"""Operators of two tensors against onnxruntime or exact integers: every type, special values, and every opset."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.elementwise_values import INTEGERS, SPECIAL, Array, integers, pairs, wrapped
from tests.kernels.harness import check_node, node_model, run_native
from tests.kernels.test_elementwise_unary import versions
from tests.tolerance import close

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq, "Less": operator.lt, "Greater": operator.gt, "LessOrEqual": operator.le,
    "GreaterOrEqual": operator.ge,
}  # fmt: skip
FLOAT_OPS = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", *COMPARE]


def truncated(a: int, b: int) -> int:
    """C's division; 0 for a division by zero, as numpy's."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": truncated, "Max": max, "Min": min,
    "BitwiseAnd": operator.and_, "BitwiseOr": operator.or_, "BitwiseXor": operator.xor,
    "Mod": lambda a, b: 0 if b == 0 else a % b,
}  # fmt: skip


def exact(a: Array, b: Array, f: Callable[[int, int], int]) -> list[int]:
    """f over Python integers."""
    return [f(int(x), int(y)) for x, y in zip(a, b)]


@pytest.mark.parametrize("name", FLOAT_OPS)
def test_floats(name: str) -> None:
    a, b = pairs(SPECIAL, SPECIAL)
    check_node(name, [a, b])
    with np.errstate(over="ignore"):
        half = [x.astype(np.float16) for x in (a, b)]
    check_node(name, half, symbolic=False)


@pytest.mark.parametrize("name", [*FLOAT_OPS, "And", "Or", "Xor"])
def test_every_opset(name: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (2, 5, 7)).astype(np.float32)
    if name in ("And", "Or", "Xor"):
        a, b = a > 0, b > 0
    for opset in versions(name):
        if name == "Equal" and opset < 11:
            check_node(name, [a.astype(np.int64), b.astype(np.int64)], opset=opset)
        else:
            check_node(name, [a, b], opset=opset)


def test_every_opset_of_the_others() -> None:
    f, i = np.array([-2.5, 0, np.inf, np.nan], np.float32), np.array([1, 5, 9, 200], np.uint8)
    cases: list[tuple[str, list[Array], dict[str, object]]] = [
        ("Mod", [i, i[::-1].copy()], {}), ("BitShift", [i, i], {"direction": "LEFT"}),
        ("BitwiseAnd", [i, i[::-1].copy()], {}),
        ("BitwiseNot", [i], {}), ("IsNaN", [f], {}), ("IsInf", [f], {}), ("Not", [f > 0], {}),
        ("Where", [f > 0, f, f[::-1].copy()], {}),
    ]  # fmt: skip
    for name, inputs, attrs in cases:
        for opset in (o for o in versions(name) if o <= 27):
            check_node(name, inputs, attrs, opset=opset, symbolic=False)


@pytest.mark.parametrize("fmod", [0, 1])
def test_float_mod_is_exact(fmod: int) -> None:
    normal = SPECIAL[~(np.abs(SPECIAL) < 1e-37) | (SPECIAL == 0)]
    a, b = pairs(normal, normal)
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b) if fmod else np.mod(a, b)
    model, feeds = node_model("Mod", [a, b], {"fmod": fmod})
    got = run_native(model, feeds)[0][0]
    close(got, expected, rtol=0, atol=0)
    if not fmod:
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[got == 0]))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARE])
def test_integers(name: str, dtype: str) -> None:
    a, b = pairs(integers(dtype), integers(dtype))
    if name in COMPARE:
        expected = np.array(exact(a, b, COMPARE[name]), bool)
    else:
        expected = wrapped(exact(a, b, ARITHMETIC[name]), dtype)
    check_node(name, [a, b], expected=[expected], symbolic=False)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_fmod(dtype: str) -> None:
    a, b = pairs(integers(dtype), integers(dtype))
    expected = wrapped(exact(a, b, lambda x, y: 0 if y == 0 else x - y * truncated(x, y)), dtype)
    check_node("Mod", [a, b], {"fmod": 1}, expected=[expected], symbolic=False)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(dtype: str, direction: str) -> None:
    bits = np.iinfo(dtype).bits
    counts = [0, 1, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, *([-1] if dtype[0] == "i" else [])]
    a, b = pairs(integers(dtype), np.array(counts, dtype))

    def shift(x: int, by: int) -> int:
        if not 0 <= by < bits:
            return -1 if x < 0 and direction == "RIGHT" else 0
        return x << by if direction == "LEFT" else x >> by

    expected = wrapped(exact(a, b, shift), dtype)
    check_node("BitShift", [a, b], {"direction": direction}, opset=28, expected=[expected], symbolic=False)


def test_logic() -> None:
    a, b = np.array([False, False, True, True, True]), np.array([False, True, False, True, True])
    for name in ("And", "Or", "Xor", "Equal"):
        check_node(name, [a, b])


@pytest.mark.parametrize("exponent", [*INTEGERS, "float16"])
def test_pow_of_a_float(exponent: str) -> None:
    """float64's result, for positive, negative, odd and even exponents of another type."""
    powers = [0, 1, 2, 3, 4, 5, 6, 20, 33, *([-1, -2, -5] if exponent[0] != "u" else [])]
    a, b = pairs(SPECIAL, np.array(powers, exponent))
    with np.errstate(all="ignore"):
        expected = np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    check_node("Pow", [a, b], expected=[expected], symbolic=False)


@pytest.mark.parametrize("base", ["int32", "int64"])
@pytest.mark.parametrize("exponent", INTEGERS)
def test_pow_of_an_integer(base: str, exponent: str) -> None:
    a, b = pairs(np.array([0, 1, 2, 3, -1, -2, -3, 7, 10], base), np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 35], exponent))
    bits = np.iinfo(base).bits
    expected = wrapped([pow(int(x), int(y), 2**bits) for x, y in zip(a, b)], base)
    check_node("Pow", [a, b], expected=[expected], symbolic=False)


def test_pow_of_an_integer_to_a_float() -> None:
    """Whole constants run on the device; what would need f64 to be exact goes to the CPU."""
    a = np.array([0, 1, -2, 3, 46340], np.int32)
    check_node("Pow", [a, np.array(2.0, np.float32)], constants=(1,), expected=[a * a])
    for inputs, constants in (([a, np.array(0.5, np.float32)], (1,)), ([a, a.astype(np.float32)], ())):
        model, _ = node_model("Pow", inputs, constants=constants)
        plan = run_native(model, {f"x{i}": x for i, x in enumerate(inputs) if i not in constants})[1]
        assert [p.provider for p in plan.placement] == ["cpu"]


def test_pow_loses_nothing_near_one() -> None:
    base = np.concatenate([np.linspace(0.9, 1.1, 60), np.linspace(0.01, 50, 60)]).astype(np.float32)
    check_node("Pow", list(pairs(base, np.linspace(-60, 300, 50).astype(np.float32))), symbolic=False, atol=1e-37)


def test_pow_by_a_constant() -> None:
    for power in (2.0, 0.5, -1.0, 3.0):
        check_node("Pow", [SPECIAL, np.array(power, np.float32)], constants=(1,))
