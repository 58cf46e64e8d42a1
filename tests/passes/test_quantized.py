"""Rounding of what is rounded already is taken away; all other rounding stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.kernels.harness import oracle, run_native
from tests.passes.harness import Array, basic_ops, feeds_of, parse
from webrt.compiler.compile import CompileOptions, compile_model

SCALES: dict[str, Array] = {
    "s": np.array(0.05, np.float32), "z": np.array(3, np.int8), "s1": np.array(0.06, np.float32),
    "z1": np.array(4, np.int8), "u": np.array(3, np.uint8), "tiny": np.array(1e-39, np.float32),
    "many": np.array([0.05, 0.06], np.float32), "zs": np.array([3, 4], np.int8), "axes": np.array([0, 1]),
    "twice": np.array([1, 1, 2, 2], np.float32),
}  # fmt: skip
FIRST = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
SECOND = "r = QuantizeLinear(m, s, z) y = DequantizeLinear(r, s, z)"
EXACT = [
    f"{FIRST} m = Identity(d) {SECOND}",
    f"{FIRST} t = Transpose<perm = [0, 1, 3, 2]>(d) m = Concat<axis = 3>(t, t) {SECOND}",
    f"{FIRST} m = MaxPool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(d) {SECOND}",
    f"{FIRST} e = Relu(d) m = Max(d, e) {SECOND}",
    f"{FIRST} m = Resize<mode = \"nearest\">(d, , twice) {SECOND}",
    f"{FIRST} r = QuantizeLinear(d, s, z) y = DequantizeLinear(r, s, z)",
    f"{FIRST} m = Identity(d) r = QuantizeLinear(m, s, z) y = DequantizeLinear(r, s1, z)",
    "q = QuantizeLinear<axis = 1>(x, many, zs) d = DequantizeLinear<axis = -3>(q, many, zs) "
    "r = QuantizeLinear<axis = -3>(d, many, zs) y = DequantizeLinear<axis = 1>(r, many, zs)",
]  # fmt: skip
ROUNDED = [
    f"{FIRST} m = Neg(d) {SECOND}",
    f"{FIRST} m = Add(d, d) {SECOND}",
    f"{FIRST} m = AveragePool<kernel_shape = [2, 2]>(d) {SECOND}",
    f"{FIRST} m = Max(d, x) {SECOND}",
    f"{FIRST} m = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(d) {SECOND}",
    f"{FIRST} m = Resize<mode = \"linear\">(d, , twice) {SECOND}",
    f"{FIRST} m = Identity(d) r = QuantizeLinear(m, s1, z) y = DequantizeLinear(r, s1, z)",
    f"{FIRST} m = Identity(d) r = QuantizeLinear(m, s, z1) y = DequantizeLinear(r, s, z1)",
    f"{FIRST} m = Identity(d) r = QuantizeLinear(m, s, u) y = DequantizeLinear(r, s, u)",
    "q = QuantizeLinear(x, tiny, z) d = DequantizeLinear(q, tiny, z) "
    "r = QuantizeLinear(d, tiny, z) y = DequantizeLinear(r, tiny, z)",
    "q = QuantizeLinear<axis = 1>(x, many, zs) d = DequantizeLinear<axis = 1>(q, many, zs) "
    "m = Transpose<perm = [1, 0, 2, 3]>(d) r = QuantizeLinear<axis = 1>(m, many, zs) "
    "y = DequantizeLinear<axis = 1>(r, many, zs)",
]  # fmt: skip


def model(body: str, out: str = "float[A,B,C,D] y") -> onnx.ModelProto:
    return parse(f"agraph (float[2,2,4,4] x) => ({out}) {{ {body} }}", SCALES)


def rounds(body: str) -> int:
    return basic_ops(model(body)).count("QuantizeLinear")


@pytest.mark.parametrize("body", EXACT)
def test_a_second_pair_goes_and_no_bit_changes(body: str) -> None:
    assert rounds(body) == 1
    feeds = feeds_of(model(body))
    (got,), _ = run_native(model(body), feeds)
    (plain,), _ = run_native(model(body), feeds, level="disabled")
    np.testing.assert_array_equal(got, plain)
    np.testing.assert_array_equal(got, oracle(model(body), feeds)[0])


@pytest.mark.parametrize("body", ROUNDED)
def test_what_may_change_a_number_is_rounded_again(body: str) -> None:
    assert rounds(body) == 2


def test_the_integers_themselves() -> None:
    body = f"{FIRST} y = QuantizeLinear(d, s, z)"
    made = model(body, "int8[2,2,4,4] y")
    assert basic_ops(made) == ["QuantizeLinear"]
    feeds = feeds_of(made)
    np.testing.assert_array_equal(run_native(made, feeds)[0][0], oracle(made, feeds)[0])


@pytest.mark.parametrize("bits", [8, 16])
def test_every_integer_comes_back(bits: int) -> None:
    """What the pass rests on, in f32, for scales of all sizes and the zero points at both ends."""
    low = -(1 << (bits - 1))
    q = np.arange(low, -low, dtype=np.int64)
    rng = np.random.default_rng(3)
    for scale in (2.0 ** rng.uniform(-126, 110, 40)).astype(np.float32):
        for zero in (low, 0, -low - 1):
            numbers = (q - zero).astype(np.float32) * scale
            quotient = numbers.astype(np.float64) / float(scale)
            assert (np.abs(quotient - (q - zero)) <= np.abs(q - zero) * 2.0**-23).all()
            np.testing.assert_array_equal(np.round(numbers / scale).astype(np.int64) + zero, q)


def test_switched_off() -> None:
    plan = compile_model(model(EXACT[0]), CompileOptions(level="basic", disabled=("cancel_quantization",)))
    assert [p.op for p in plan.placement].count("QuantizeLinear") == 2
