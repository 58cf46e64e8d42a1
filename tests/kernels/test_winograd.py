"""3×3 convolutions by Winograd's products: edges, paddings, batches, epilogues; and which ones it is not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, numpy_helper, parser

from tests.kernels.harness import Array, device
from webrt import costs
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.costs import CostTable
from webrt.ops.conv_winograd import FAMILY, transformed
from webrt.plan import Plan
from webrt.runtime.session import Session
from webrt.target import Target


class Winograd(CostTable):
    """Says of every adapter and size that Winograd's form is the fastest."""

    def costs(self, target: Target, family: str, sizes: Sequence[int]) -> Mapping[str, float]:
        return {"direct": 2.0, "winograd": 1.0} if family == FAMILY else {}


def model(
    x: tuple[int | str, ...], outs: int, attrs: str, kernel: int = 3, after: str = "c = Identity(b)"
) -> ModelProto:
    """A convolution of a channels-last image with a residual operand r."""
    random = np.random.default_rng(2)
    channels = int(x[-1])
    w = random.standard_normal((outs, channels, kernel, kernel)).astype(np.float32) / kernel / channels**0.5
    bias = random.standard_normal(outs).astype(np.float32)
    body = f"t = Transpose<perm=[0,3,1,2]>(x) b = Conv<{attrs}>(t, w, bias) {after} y = Transpose<perm=[0,2,3,1]>(c)"
    dims = ",".join(map(str, x))
    shapes = f"float[{outs},{channels},{kernel},{kernel}] w, float[{outs}] bias"
    header = f'<ir_version: 8, opset_import: ["" : 17]> g (float[{dims}] x, {shapes}) => (float[n,h,v,{outs}] y)'
    made = parser.parse_model(f"{header} {{ {body} }}")
    made.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")])
    del made.graph.input[-2:]
    return made


def plan_of(made: ModelProto) -> Plan:
    with costs.use(Winograd()):
        return compile_model(made, CompileOptions(target=device().target))


def names(plan: Plan) -> set[str]:
    return {k.name for k in plan.kernels}


def check(made: ModelProto, x: Array) -> None:
    plan = plan_of(made)
    assert names(plan) >= {"winograd_in", "winograd", "winograd_out"}
    known = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with Session(plan, device()) as session:
        (want,), (got,) = known.run(None, {"x": x}), session.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def image(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("x", "outs", "attrs"),
    [
        ((1, 6, 8, 8), 12, "pads=[1,1,1,1]"),
        ((3, 5, 7, 12), 8, "pads=[1,1,1,1]"),
        ((1, 9, 4, 4), 4, "pads=[0,0,0,0]"),
        ((2, 4, 5, 8), 8, "pads=[2,0,1,3]"),
        ((1, 1, 5, 4), 8, "pads=[1,1,1,1]"),
        ((1, 3, 3, 64), 20, "pads=[0,0,0,0]"),
    ],
)
def test_every_edge_and_padding(x: tuple[int, ...], outs: int, attrs: str) -> None:
    check(model(x, outs, attrs), image(*x))


@pytest.mark.parametrize(
    "after",
    [
        "c = Relu(b)",
        "s = Sigmoid(b) c = Mul(b, s)",
        "k = Constant<value_float=0.5>() m = Mul(b, k) c = Add(m, t)",
    ],
)
def test_epilogues(after: str) -> None:
    x = (1, 7, 5, 8)
    check(model(x, 8, "pads=[1,1,1,1]", after=after), image(*x))


@pytest.mark.parametrize(
    ("x", "outs", "attrs", "kernel"),
    [
        ((1, 8, 8, 8), 8, "pads=[1,1,1,1], strides=[2,2]", 3),
        ((1, 8, 8, 8), 8, "pads=[2,2,2,2], dilations=[2,2]", 3),
        ((1, 8, 8, 8), 8, "pads=[2,2,2,2]", 5),
        ((1, 8, 8, 8), 6, "pads=[1,1,1,1]", 3),
        ((1, 8, 8, 6), 8, "pads=[1,1,1,1]", 3),
        (("n", 8, 8, 8), 8, "pads=[1,1,1,1]", 3),
    ],
)
def test_other_convolutions_stay_as_they_are(
    x: tuple[int | str, ...], outs: int, attrs: str, kernel: int
) -> None:  # fmt: skip
    assert not names(plan_of(model(x, outs, attrs, kernel))) & {"winograd_in", "winograd_out"}


def test_without_a_row_in_the_table_nothing_changes() -> None:
    with costs.use(CostTable()):
        plan = compile_model(model((1, 8, 8, 8), 8, "pads=[1,1,1,1]"), CompileOptions(target=device().target))
    assert "winograd_in" not in names(plan)


def test_weights_are_transformed_in_double_precision() -> None:
    g = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    half = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    np.testing.assert_array_equal(transformed(g)[:, 0, 0].reshape(4, 4), half @ g[0, 0] @ half.T)
