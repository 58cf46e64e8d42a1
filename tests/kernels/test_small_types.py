"""Integers of 2 and 4 bits and floats of 4 and 8 bits: every bit pattern, rounding, casts among all types, movement."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.kernels.harness import check_node, device, node_model, run_native
from webrt import dtypes as T
from webrt.dtypes import BY_NAME
from webrt.errors import InputError, InvalidModel
from webrt.planfile import dump, load
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor, numpy_dtype

Array = np.ndarray[Any, Any]
SMALL = sorted(t.name for t in T.SMALL)
FLOATS8 = sorted(t.name for t in T.FLOATS8)
QUANTIZED = sorted(t.name for t in (*T.SMALL_INTS, *T.FLOATS8, T.F4E2M1))
PLAIN = sorted(t.name for t in (*T.FLOATS, *T.INTS32, *T.INTS64, T.BOOL))
OPSET = 25
RNG = np.random.default_rng(3)


def patterns(name: str) -> Array:
    """Every value of a type, by its bits."""
    return np.arange(1 << BY_NAME[name].width, dtype=np.uint8).view(numpy_dtype(BY_NAME[name]))


def grid(name: str) -> Array:
    """All finite values of a float type, all midpoints, the f32 beside each, and what lies outside."""
    values = patterns(name).astype(np.float32)
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:].astype(np.float64) + finite[:-1]).astype(np.float32) / 2
    largest, step = finite[-1], finite[-1] - finite[-2]
    outside = np.array([largest + step / 2, largest + step, 1e9, np.inf, np.nan, 0.0, 1e-30, 1e-42], np.float32)
    inner = np.concatenate([finite, middles, outside])
    beside = np.concatenate([inner, np.nextafter(inner, np.float32(np.inf)), np.nextafter(inner, np.float32(-np.inf))])
    return np.concatenate([beside, -beside])


def same_bits(got: Array, want: Array, x: Array) -> None:
    """Equal bits, NaN of any sign."""
    a, b = got.view(np.uint8), want.view(np.uint8)
    wrong = (a != b) & ~(np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32)))
    assert not wrong.any(), [(x[i], a[i], b[i]) for i in np.flatnonzero(wrong)[:5]]


def cast(x: Array, target: str, **attrs: Any) -> Array:
    """Cast on the device."""
    model, feeds = node_model("Cast", [x], {"to": BY_NAME[target].code, **attrs}, opset=OPSET)
    (y,), plan = run_native(model, feeds)
    assert not plan.host_steps
    return y


@pytest.mark.parametrize("name", SMALL)
def test_every_bit_pattern_is_read_as_ml_dtypes_does(name: str) -> None:
    np.testing.assert_array_equal(cast(patterns(name), "float32"), patterns(name).astype(np.float32))


@pytest.mark.parametrize("name", SMALL)
def test_every_value_is_written_with_numpys_bits(name: str) -> None:
    x = patterns(name).astype(np.float32)
    same_bits(cast(x, name, saturate=0), patterns(name), x)


@pytest.mark.parametrize("name", [*FLOATS8, "float4e2m1"])
def test_rounds_to_even_and_saturates_as_onnx_says(name: str) -> None:
    x = grid(name)
    dtype = numpy_dtype(BY_NAME[name])
    saturated = onnx.numpy_helper.saturate_cast(x, dtype)
    same_bits(cast(x, name, saturate=1), saturated, x)
    same_bits(cast(x, name), saturated, x)
    with np.errstate(over="ignore"):
        same_bits(cast(x, name, saturate=0), x.astype(dtype), x)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two(mode: str, saturate: int) -> None:
    """float8e8m0 by its definition; the edges by the table of ONNX's Cast."""
    exponents = np.array([-127, -126, -125, -1, 0, 1, 7, 125, 126])
    for e, part in itertools.product(exponents, (1.0, 1.25, 1.5, 1.75, 1.999)):
        up = part > 1 if mode == "up" else mode == "nearest" and part >= 1.5
        x = np.array([part * 2.0 ** float(e)], np.float32)
        got = cast(x, "float8e8m0", saturate=saturate, round_mode=mode)
        assert got.view(np.uint8)[0] == e + 127 + up, (x, mode)
    edges = np.array([0, np.inf, np.nan, 1.25 * 2.0**127, 2.0**-130], np.float32)
    want = [0, 254, 255, 254, 0] if saturate else [255] * 5
    assert cast(edges, "float8e8m0", saturate=saturate, round_mode=mode).view(np.uint8).tolist() == want


def test_unknown_rounding_mode() -> None:
    with pytest.raises(InvalidModel, match="round_mode is 'sideways'"):
        cast(np.ones(2, np.float32), "float8e8m0", round_mode="sideways")


@pytest.mark.parametrize("source", [*SMALL, *PLAIN])
def test_casts_among_all_types(source: str) -> None:
    """Values that both types hold in their range, so that ONNX defines the result."""
    for target in SMALL if source in PLAIN else [*SMALL, *PLAIN]:
        x, want = defined(source, target)
        check_node("Cast", [x], {"to": BY_NAME[target].code}, opset=OPSET, expected=[want], symbolic=False)


def defined(source: str, target: str) -> tuple[Array, Array]:
    kind, aim = BY_NAME[source], BY_NAME[target]
    dtype = numpy_dtype(aim)
    x = patterns(source) if kind in T.SMALL else np.arange(0 if kind.wgsl in ("u32", "bool") else -9, 9)
    x = x.astype(numpy_dtype(kind))
    wide = x.astype(np.float32)
    if source == target:
        return x, x
    if aim in T.FLOATS | T.SMALL_FLOATS or aim == T.BOOL:
        if aim == T.F8E8M0:
            x, wide = x[wide > 0], wide[wide > 0]
            return x, (np.ceil(np.log2(np.minimum(wide, 2.0**127).astype(np.float64))) + 127).astype(np.uint8).view(
                dtype
            )
        if aim in T.FLOATS8:
            return x, onnx.numpy_helper.saturate_cast(wide, dtype)
        with np.errstate(over="ignore"):
            return x, wide.astype(dtype)
    fits = np.isfinite(wide) & (np.abs(wide) < 100) & ((wide >= 0) | (aim in T.SIGNED) | (kind.wgsl != "f32"))
    return x[fits], wide[fits].astype(np.int64).astype(dtype)


@pytest.mark.parametrize("name", SMALL)
def test_cast_like(name: str) -> None:
    x = np.array([1, 0, 1, 1], np.float32)
    like = np.zeros((), numpy_dtype(BY_NAME[name]))
    if name == "float8e8m0":
        x = np.ones(4, np.float32)
    check_node("CastLike", [x, like], opset=OPSET, expected=[x.astype(like.dtype)], symbolic=False)


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("form", ["tensor", "axis", "blocked"])
@pytest.mark.parametrize("constant", [False, True])
def test_quantize_and_dequantize(name: str, form: str, constant: bool) -> None:
    """Against onnx's reference operators."""
    dtype = numpy_dtype(BY_NAME[name])
    part, attrs = {
        "tensor": ((), {}),
        "axis": ((6,), {"axis": 1}),
        "blocked": ((2, 3, 4), {"axis": 1, "block_size": 2}),
    }[form]
    x = (RNG.standard_normal((2, 6, 4)) * 8).astype(np.float32)
    scale = np.asarray(RNG.choice([0.25, 0.5, 1, 2], part), np.float32)
    zero = np.zeros(part, dtype) if "float" in name else np.asarray(RNG.integers(0, 2, part)).astype(dtype)
    q = RNG.choice(patterns(name), x.shape)
    for op, first in (("QuantizeLinear", x), ("DequantizeLinear", q)):
        inputs = [first, scale, zero]
        model, feeds = node_model(op, inputs, attrs, opset=OPSET)
        expected = [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)]
        check_node(op, inputs, attrs, opset=OPSET, expected=expected, constants=[1, 2] if constant else [])


def test_quantize_without_saturation_and_with_a_zero_point() -> None:
    x = np.array([1, 1e6, -1e6, np.nan, 448, 470], np.float32)
    scale = np.asarray(1, np.float32)
    for name, saturate in itertools.product(FLOATS8, (0, 1)):
        dtype = numpy_dtype(BY_NAME[name])
        with np.errstate(over="ignore"):
            want = onnx.numpy_helper.saturate_cast(x, dtype) if saturate else x.astype(dtype)
        attrs = {"saturate": saturate, "output_dtype": BY_NAME[name].code}
        check_node("QuantizeLinear", [x, scale], attrs, opset=OPSET, expected=[want], symbolic=False)
    two = np.array(2, numpy_dtype(T.F8E4M3FN))
    moved = np.array([3, 448, -448], np.float32).astype(two.dtype)
    check_node("QuantizeLinear", [x[:3], scale, two], opset=OPSET, expected=[moved], symbolic=False)
    back = np.array([1, 446, -450], np.float32)
    check_node("DequantizeLinear", [moved, scale, two], opset=OPSET, expected=[back], symbolic=False)


def test_scales_that_are_powers_of_two() -> None:
    scale = np.array([126, 127, 128], np.uint8).view(numpy_dtype(T.F8E8M0))
    x = patterns("float4e2m1")[:12].reshape(4, 3)
    want = x.astype(np.float32) * np.array([0.5, 1, 2], np.float32)
    check_node("DequantizeLinear", [x, scale], {"output_dtype": 1}, opset=OPSET, expected=[want])


@pytest.mark.parametrize("name", SMALL)
def test_moves(name: str) -> None:
    x = RNG.choice(patterns(name), (3, 5, 4))
    axes = np.array([2, 1], np.int64)
    for op, inputs, attrs, want in (
        ("Transpose", [x], {"perm": [2, 0, 1]}, x.transpose(2, 0, 1)),
        ("Reshape", [x, np.array([5, 12], np.int64)], {}, x.reshape(5, 12)),
        ("Identity", [x], {}, x),
        ("Unsqueeze", [x, axes[1:]], {}, x[:, None]),
    ):
        got, plan = run_native(*node_model(op, inputs, attrs, opset=OPSET, constants=[1]))
        assert not plan.host_steps
        np.testing.assert_array_equal(got[0].view(np.uint8), np.ascontiguousarray(want).view(np.uint8), err_msg=op)


@pytest.mark.parametrize("name", SMALL)
def test_device_tensors_have_numpys_bytes(name: str) -> None:
    x = patterns(name)[:3]
    with Tensor.from_numpy(x, device()) as tensor:
        assert tensor.nbytes == 3
        np.testing.assert_array_equal(tensor.numpy().view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("name", QUANTIZED)
def test_plans_carry_constants(name: str) -> None:
    """A constant that a kernel reads and that is an output too; a plan's file keeps its bytes."""
    w, info = patterns(name)[:4], helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])], "g", [info("s", 1, [])],
        [info("y", 1, [4]), info("w", BY_NAME[name].code, [4])], [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)
    feeds = {"s": np.array(2, np.float32)}
    got, plan = run_native(model, feeds)
    assert [(c.dtype, c.nbytes) for c in plan.constants] == [(name, 4)] and not plan.host_steps
    with Session(load(dump(plan)), device()) as session:
        again = session.run(None, feeds)
    for y, same in (got, again):
        np.testing.assert_array_equal(y, w.astype(np.float32) * 2)
        same_bits(same, w, w)


@pytest.mark.parametrize("name", SMALL)
def test_known_inputs(name: str) -> None:
    x = patterns(name)[:3]
    model, feeds = node_model("Cast", [x], {"to": 1}, opset=OPSET)
    got, _ = run_native(model, feeds, known_inputs=feeds)
    np.testing.assert_array_equal(got[0], x.astype(np.float32))
    with pytest.raises(InputError, match="float64 was given"):
        run_native(model, feeds, known_inputs={"x0": np.zeros(3)})
