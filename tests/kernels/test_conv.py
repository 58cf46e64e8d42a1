"""Conv and ConvTranspose against onnxruntime's CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.harness import Array, check_node

RNG = np.random.default_rng(11)
ONES, TWOS = [1, 1, 1, 1], [2, 2, 2, 2]


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def same_paddings(op: str) -> list[Any]:
    modes = ("SAME_UPPER", "SAME_LOWER", "VALID")
    weights = (3, 5) if op == "ConvTranspose" else (5, 3)
    return [
        ((1, 3, 10, 13), (*weights, *k), {"auto_pad": m, "strides": [2, 2]}) for m in modes for k in ((3, 4), (4, 3))
    ]


CONV = [
    ((1, 3, 9, 11), (5, 3, 3, 3), {}),
    ((2, 8, 9, 11), (16, 8, 3, 3), {"pads": ONES}),
    ((2, 7, 9, 11), (9, 7, 1, 1), {}),
    ((2, 8, 8, 8), (9, 8, 1, 1), {}),
    ((2, 7, 9, 11), (9, 7, 1, 1), {"strides": [2, 2]}),
    ((2, 7, 9, 11), (9, 7, 1, 1), {"pads": [1, 0, 0, 2]}),
    ((1, 7, 1, 1), (9, 7, 1, 1), {}),
    ((3, 7, 1, 1), (9, 7, 1, 1), {}),
    ((1, 6, 9, 11), (8, 3, 3, 3), {"group": 2, "pads": [0, 1, 2, 1], "strides": [2, 1]}),
    ((2, 6, 9, 19), (6, 1, 3, 3), {"group": 6, "pads": ONES}),
    ((2, 6, 9, 19), (12, 1, 5, 3), {"group": 6, "pads": [2, 1, 2, 1], "strides": [2, 2]}),
    ((2, 6, 9, 19), (6, 1, 3, 3), {"group": 6, "pads": TWOS, "dilations": [2, 2]}),
    ((1, 2, 9, 19), (20, 1, 3, 3), {"group": 2}),
    ((1, 4, 9, 40), (4, 1, 1, 11), {"group": 4}),
    ((1, 4, 30), (4, 1, 15), {"group": 4, "pads": [7, 7]}),
    ((1, 4, 30), (5, 4, 3), {"pads": [1, 0], "strides": [2]}),
    ((1, 4, 6, 7, 8), (5, 4, 3, 2, 3), {"pads": [1, 0, 1, 1, 0, 1], "strides": [2, 1, 2]}),
    ((1, 3, 4, 7, 8), (5, 3, 2, 2, 2), {"dilations": [2, 1, 2]}),
    ((1, 4, 6, 7, 8), (4, 1, 3, 3, 3), {"group": 4, "pads": [1] * 6}),
    ((0, 3, 9, 11), (5, 3, 3, 3), {}),
    ((1, 1, 5, 300), (4, 1, 1, 256), {"strides": [1, 4]}),
    ((1, 9, 20, 1), (4, 9, 5, 1), {}),
    ((2, 8, 9, 11), (20, 8, 3, 3), {"pads": [2, 1, 2, 3], "dilations": [2, 1]}),
    ((1, 3, 20, 23), (40, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    ((1, 8, 13, 17), (8, 1, 7, 7), {"group": 8, "pads": [3] * 4}),
    ((2, 8, 13, 17), (8, 1, 6, 6), {"group": 8, "pads": [3, 0, 2, 1], "strides": [2, 3], "dilations": [1, 2]}),
    ((1, 16, 9, 11), (24, 8, 3, 3), {"group": 2, "pads": ONES}),
    ((1, 16, 9, 11), (48, 8, 2, 2), {"group": 2}),
    ((2, 8, 30), (12, 8, 5), {"pads": [2, 1], "strides": [2]}),
    ((1, 8, 60), (8, 1, 40), {"group": 8, "dilations": [1]}),
    ((2, 33, 5, 7), (6, 33, 3, 3), {}),
    ((1, 8, 9, 11), (3, 8, 3, 3), {"strides": [1, 2]}),
    ((2, 40, 3, 5), (17, 40, 1, 1), {}),
    ((2, 1, 7, 40), (5, 1, 3, 8), {"pads": [1, 3, 1, 4], "strides": [1, 3]}),
    ((1, 2, 7, 40), (8, 2, 2, 9), {"pads": [0, 3, 0, 0], "dilations": [1, 2]}),
    ((2, 1, 200), (12, 1, 50), {"strides": [6], "auto_pad": "SAME_UPPER"}),
    ((1, 1, 1, 300), (4, 1, 1, 65), {"strides": [1, 2]}),
    *same_paddings("Conv"),
]

TRANSPOSED = [
    ((1, 3, 5, 6), (3, 4, 3, 3), {}),
    ((2, 8, 5, 6), (8, 9, 2, 2), {"strides": [2, 2]}),
    ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [3, 2], "pads": ONES, "output_padding": [1, 0]}),
    ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [3, 2], "output_shape": [14, 12]}),
    ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [3, 2], "output_shape": [14, 12], "auto_pad": "SAME_UPPER"}),
    ((1, 6, 5, 6), (6, 2, 3, 3), {"group": 3, "strides": [2, 1]}),
    ((1, 4, 9), (4, 5, 3), {"strides": [2], "dilations": [2]}),
    ((1, 2, 3, 4, 5), (2, 3, 2, 3, 3), {"strides": [2, 1, 2], "dilations": [1, 2, 2], "pads": [0, 1, 1, 1, 0, 1]}),
    ((1, 4, 7, 7), (4, 1, 2, 2), {"strides": [2, 2]}),
    ((1, 4, 1, 1), (4, 3, 1, 1), {}),
    ((1, 4, 5, 5), (4, 3, 1, 1), {"strides": [2, 2]}),
    *same_paddings("ConvTranspose"),
]


def check(op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], bias: bool, fed: bool) -> None:
    outs = w[1] * attrs.get("group", 1) if op == "ConvTranspose" else w[0]
    inputs = [floats(*x), floats(*w), *([floats(outs)] if bias else [])]
    if fed:
        check_node(op, inputs, attrs, opset=11, symbolic=False)
    else:
        check_node(op, inputs, attrs, opset=11, constants=range(1, len(inputs)))


@pytest.mark.parametrize(("x", "w", "attrs"), CONV, ids=str)
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check("Conv", x, w, attrs, bias=True, fed=False)
    check("Conv", x, w, attrs, bias=False, fed=True)


@pytest.mark.parametrize(("x", "w", "attrs"), CONV[::3], ids=str)
def test_conv_with_everything_fed(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check("Conv", x, w, attrs, bias=True, fed=True)


@pytest.mark.parametrize("opset", [7, 11, 20, 22, 24])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_every_opset(op: str, opset: int) -> None:
    check_node(op, [floats(1, 3, 5, 6), floats(3, 3, 3, 3), floats(3)], {"pads": ONES}, opset=opset, constants=[1, 2])


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 4, 9, 11), (5, 4, 3, 3), {}),
        ((1, 8, 8, 8), (5, 8, 1, 1), {}),
        ((1, 8, 7, 9), (5, 8, 1, 1), {}),
        ((1, 8, 8, 9), (8, 1, 3, 3), {"group": 8}),
    ],
    ids=str,
)
def test_conv_of_half_floats(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    inputs = [floats(*s, dtype=np.float16) for s in (x, w, (w[0],))]
    plan = check_node("Conv", inputs, attrs, constants=[1, 2], expected=[_in_double(inputs, attrs)])
    assert all(c.dtype == "float16" for c in plan.constants)


def _in_double(inputs: list[Array], attrs: dict[str, Any]) -> Array:
    x, w, bias = (a.astype(np.float64) for a in inputs)
    group = attrs.get("group", 1)
    size = [x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    parts = zip(np.split(x, group, 1), np.split(w, group, 0), np.split(out, group, 1))
    for xs, ws, os in parts:
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                os += np.einsum("ncyx,oc->noyx", xs[:, :, i : i + size[0], j : j + size[1]], ws[:, :, i, j])
    return (out + bias[:, None, None]).astype(np.float16)


def test_many_channels_are_summed_as_exactly_as_by_onnxruntime() -> None:
    x, w = floats(1, 300, 7, 7), floats(20, 300, 3, 3) * np.float32(0.05)
    check_node("Conv", [x, w], {"pads": ONES}, constants=[1], atol=2e-5)


@pytest.mark.parametrize(("x", "w", "attrs"), TRANSPOSED, ids=str)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any]) -> None:
    check("ConvTranspose", x, w, attrs, bias=True, fed=False)
    check("ConvTranspose", x, w, attrs, bias=False, fed=True)
