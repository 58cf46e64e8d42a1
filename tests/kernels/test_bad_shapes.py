"""Shapes that do not fit are refused by name with the two numbers: at compile where they are known, else at the run."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import onnx
import pytest

from tests.kernels.harness import Array, device, node_model
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import InvalidModel, ShapeError, WebrtError
from webrt.host import CpuProvider
from webrt.runtime.session import Session

MS = {"domain": "com.microsoft"}
WEIGHTS = {"K": 64, "N": 4, "block_size": 32}
PAIR = {"num_heads": 2}


def r(*shape: int) -> Array:
    """Ones, float32."""
    return np.ones(shape, np.float32)


def u(*shape: int) -> Array:
    """Ones, uint8."""
    return np.ones(shape, np.uint8)


def i(*values: int) -> Array:
    """int64 numbers."""
    return np.array(values, np.int64)


def f(*values: float) -> Array:
    """float32 numbers."""
    return np.array(values, np.float32)


Q = r(1, 2, 8)
CASES: dict[str, tuple[str, list[Array | None], dict[str, Any], dict[str, Any]]] = {
    "rank of C": ("Gemm", [r(2, 3), r(3, 4), r(1, 2, 4)], {}, {}),
    "C": ("Gemm", [r(2, 3), r(3, 4), r(3, 4)], {}, {}),
    "an axis twice": ("Squeeze", [r(1, 1, 3), i(0, 0)], {}, {"constants": [1]}),
    "a size of 2": ("Squeeze", [r(1, 2, 3), i(1)], {}, {"constants": [1]}),
    "too few repeats": ("Tile", [r(2, 3), i(2)], {}, {"constants": [1]}),
    "a negative repeat": ("Tile", [r(2, 3), i(2, -1)], {}, {"constants": [1]}),
    "long tuples": ("GatherND", [r(2, 3), np.zeros((2, 3), np.int64)], {}, {}),
    "batches": ("GatherND", [r(2, 3), np.zeros((3, 1), np.int64)], {"batch_dims": 1}, {}),
    "zero points": ("QuantizeLinear", [r(2, 3), r(3), u(2)], {"axis": 1}, {}),
    "one zero point": ("QuantizeLinear", [r(2, 3), r(3), u()], {"axis": 1}, {}),
    "scales": ("QuantizeLinear", [r(2, 3), r(2), u(2)], {"axis": 1}, {}),
    "zero points of numbers": ("DequantizeLinear", [u(2, 3), r(3), u(2)], {"axis": 1}, {}),
    "three scales": ("Resize", [r(1, 1, 2, 2), None, f(1, 1, 2)], {}, {"constants": [2]}),
    "a scale of 0": ("Resize", [r(1, 1, 2, 2), None, f(1, 1, 0, 2)], {}, {"constants": [2]}),
    "scales and sizes": ("Resize", [r(1, 1, 2, 2), None, f(1, 1, 2, 2), i(1, 1, 4, 4)], {}, {"constants": [2, 3]}),
    "region": ("Resize", [r(1, 1, 2, 2), f(0, 0, 1), f(1, 1, 2, 2)],
               {"coordinate_transformation_mode": "tf_crop_and_resize"}, {"constants": [1, 2]}),
    "a resized axis twice": ("Resize", [r(1, 1, 2, 2), None, f(2, 2)], {"axes": [2, 2]}, {"constants": [2]}),
    "scales below 1": ("Upsample", [r(1, 1, 2, 2), f(1, 1, 0.5, 2)], {}, {"constants": [1], "opset": 9}),
    "coordinates": ("GridSample", [r(1, 1, 4, 4), r(1, 3, 3, 3)], {}, {}),
    "grids": ("GridSample", [r(2, 1, 4, 4), r(3, 3, 3, 2)], {}, {}),
    "columns": ("MatMulNBits", [r(2, 32), u(4, 2, 16), r(4, 2)], WEIGHTS, MS),
    "blocks": ("MatMulNBits", [r(2, 64), u(4, 2, 8), r(4, 2)], WEIGHTS, MS),
    "scales of blocks": ("MatMulNBits", [r(2, 64), u(4, 2, 16), r(4, 3)], WEIGHTS, MS),
    "zero points of blocks": ("MatMulNBits", [r(2, 64), u(4, 2, 16), r(4, 2), u(3, 1)], WEIGHTS, MS),
    "bias of N": ("MatMulNBits", [r(2, 64), u(4, 2, 16), r(4, 2), None, None, r(5)], WEIGHTS, MS),
    "heads": ("MultiHeadAttention", [r(1, 2, 7), r(1, 2, 7), r(1, 2, 7)], PAIR, MS),
    "width of keys": ("MultiHeadAttention", [Q, r(1, 3, 6), r(1, 3, 8)], PAIR, MS),
    "batches of keys": ("MultiHeadAttention", [Q, r(2, 3, 8), r(2, 3, 8)], PAIR, MS),
    "values": ("MultiHeadAttention", [Q, r(1, 3, 8), r(1, 4, 8)], PAIR, MS),
    "bias of heads": ("MultiHeadAttention", [Q, r(1, 3, 8), r(1, 3, 8), r(20)], PAIR, MS),
    "mask": ("MultiHeadAttention", [Q, r(1, 3, 8), r(1, 3, 8), None, np.ones((2, 3), np.int32)], PAIR, MS),
    "cache": ("MultiHeadAttention", [Q, Q, Q, None, None, None, r(1, 3, 2, 4), r(1, 3, 2, 4)], PAIR,
              {**MS, "outputs": 3}),
    "projection": ("Attention", [r(1, 2, 4), r(5, 24), r(24)], PAIR, MS),
    "bias of the projection": ("Attention", [r(1, 2, 4), r(4, 24), r(23)], PAIR, MS),
    "columns of the projection": ("Attention", [r(1, 2, 4), r(4, 25), r(25)], PAIR, MS),
    "skip": ("SkipLayerNormalization", [r(2, 3, 8), r(2, 4, 8), r(8)], {}, MS),
    "gamma": ("SkipLayerNormalization", [r(2, 3, 8), r(2, 3, 8), r(7)], {}, MS),
    "rank of skip": ("SkipSimplifiedLayerNormalization", [r(2, 3, 8), r(2, 2, 3, 8), r(8)], {}, MS),
    "rank of the condition": ("Compress", [r(2, 3), np.ones((1, 2), bool)], {"axis": 0}, {}),
    "boxes": ("NonMaxSuppression", [r(1, 4, 4), r(1, 1, 5)], {}, {}),
    "an index too large": ("Gather", [r(2, 3), i(0, 2)], {}, {"constants": [1]}),
    "an index too small": ("GatherElements", [r(2, 3), i(0, -4).reshape(1, 2)], {"axis": 1}, {"constants": [1]}),
    "a tuple too large": ("GatherND", [r(2, 3), i(1, 3).reshape(1, 2)], {}, {"constants": [1]}),
    "an update too far": ("ScatterElements", [r(2, 3), i(2).reshape(1, 1), r(1, 1)], {}, {"constants": [1]}),
    "an update too early": ("ScatterND", [r(2, 3), i(-3).reshape(1, 1), r(1, 3)], {}, {"constants": [1]}),
    "more places than data": ("GatherElements", [r(2, 3), np.zeros((2, 4), np.int64)], {}, {}),
    "more updates than data": ("ScatterElements", [r(2, 3), np.zeros((2, 4), np.int64), r(2, 4)], {}, {}),
    "nothing to index": ("Gather", [r(0, 3), i(0)], {}, {}),
    "more than the axis has": ("TopK", [r(4), i(5)], {}, {"constants": [1], "outputs": 2}),
    "a block of 8": ("MatMulNBits", [r(2, 64), u(4, 8, 4), r(4, 8)], {**WEIGHTS, "block_size": 8}, MS),
    "letters": ("Einsum", [r(2, 3), r(4, 5)], {"equation": "ij,jk->ik"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_known_shapes(what: str) -> None:
    op, inputs, attrs, form = CASES[what]
    model, _ = node_model(op, inputs, attrs, **form)
    with pytest.raises((ShapeError, InvalidModel)) as e:
        compile_model(model, CompileOptions(target=device().target))
    assert op in str(e.value) and "'node'" in str(e.value)


@pytest.mark.parametrize("what", CASES)
def test_free_sizes(what: str) -> None:
    op, inputs, attrs, form = CASES[what]
    model, feeds = node_model(op, inputs, attrs, symbolic=True, **form)
    with pytest.raises(WebrtError):
        plan = compile_model(model, CompileOptions(target=device().target))
        with Session(plan, device(), CpuProvider()) as session:
            session.run(None, feeds)


SAID: dict[str, tuple[str, list[Array | None], dict[str, Any], dict[str, Any], str]] = {
    "equal": ("GridSample", [r(2, 1, 4, 4), r(3, 3, 3, 2)], {}, {},
              "d0_0 batches of input and d1_0 of grids (2 and 3 here)"),
    "broadcast": ("Where", [np.ones((2, 3), bool), r(2, 4), r(2, 3)], {}, {},
                  "sizes d0_1 and d1_1 do not broadcast (3 and 4 here)"),
    "at most": ("MaxPool", [r(1, 3, 2, 2)], {"kernel_shape": [3, 3]}, {},
                "a window of 3 elements does not fit in d0_2 with padding (2 here)"),
    "multiple": ("DepthToSpace", [r(1, 3, 2, 2)], {"blocksize": 2}, {},
                 "d0_1 channels are not divisible by 4 (3 here)"),
    "element": ("Reshape", [r(2, 3), i(4, -1)], {}, {"symbolic": [0]},
                "d0_0*d0_1 elements do not fill [in:x1[0], in:x1[1]] (6 and 4 here; in:x1[0] = 4; in:x1[1] = -1)"),
    "negative": ("Tile", [r(2, 3), i(2, -4)], {}, {"symbolic": [0]},
                 "axis 1 of the output 'y0' would have a negative size: d0_1*in:x1[1] (-12 here; in:x1[1] = -4)"),
    "too many": ("TopK", [r(4), i(5)], {}, {"symbolic": [0], "outputs": 2},
                 "k = in:x1[0] is more than the axis has, d0_0 (5 and 4 here; in:x1[0] = 5)"),
    "too large to count": ("Tile", [r(2, 3), i(2**52, 2**52)], {}, {"symbolic": []},
                           f"these sizes do not fit the model (in:x1[0]={2**52}, in:x1[1]={2**52}): "
                           f"a size overflows: {2**104} is beyond 2**53"),
    "body": ("BiasAdd", [r(2, 3, 4), r(5), r(2, 3, 4)], {}, MS,
             "its Add: sizes d0_2 and d1_0 do not broadcast (4 and 5 here)"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_the_run_names_node_operator_and_numbers(what: str) -> None:
    op, inputs, attrs, form, said = SAID[what]
    model, feeds = node_model(op, inputs, attrs, **cast(Any, {"symbolic": True, **form}))
    plan = compile_model(model, CompileOptions(target=device().target))
    with Session(plan, device(), CpuProvider()) as session, pytest.raises(WebrtError) as e:
        session.run(None, feeds)
    assert (
        str(e.value).removeprefix(f"{form.get('domain', '')}:") == f"{op} 'node'{',' if what == 'body' else ':'} {said}"
    )


def test_outputs_that_are_not_as_many_as_said() -> None:
    """onnx's own shape inference aborts the process here, so the model is written as text."""
    text = "g (float[4] x) => (float[2] a, float[2] b, float[2] c) { [node] a, b, c = Split <num_outputs = 2> (x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    with pytest.raises(InvalidModel, match="node 'node', .*: num_outputs is 2, the node has 3 outputs"):
        compile_model(model, CompileOptions(target=device().target))


def test_what_a_function_body_refuses_names_the_model_s_node() -> None:
    model, _ = node_model("BiasAdd", [r(2, 3, 4), r(5), r(2, 3, 4)], **MS)
    with pytest.raises(ShapeError, match="its Add of .*: sizes 4 and 5 do not broadcast") as e:
        compile_model(model, CompileOptions(target=device().target))
    assert (e.value.node, e.value.op) == ("node", "com.microsoft:BiasAdd")
