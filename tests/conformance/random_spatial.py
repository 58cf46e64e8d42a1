"""Random cases of operators over pictures and sequences: convolution, pooling, resampling, recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.random_draw import Draw
from tests.conformance.random_products import bytes_of
from tests.conformance.samples_data import Array, Sample, i64, s, scalar

Case = Callable[[Draw], Sample]


def cases() -> Mapping[str, Case]:
    """A maker of cases for each operator."""
    return {
        "Conv": conv, "ConvTranspose": conv_transpose, "ConvInteger": conv_integer, "QLinearConv": qlinear_conv,
        "AveragePool": average_pool, "MaxPool": max_pool, "LpPool": lp_pool, "Col2Im": col2im,
        "GlobalAveragePool": partial(global_pool, "GlobalAveragePool"),
        "GlobalMaxPool": partial(global_pool, "GlobalMaxPool"), "GlobalLpPool": partial(global_pool, "GlobalLpPool"),
        "Resize": resize, "Upsample": upsample, "GridSample": grid_sample,
        "RNN": partial(recurrent, "RNN", 1), "GRU": partial(recurrent, "GRU", 3), "LSTM": partial(recurrent, "LSTM", 4),
    }  # fmt: skip


def window(d: Draw, axes: int, *, dilated: bool = True) -> dict[str, Any]:
    """strides, dilations, pads or auto_pad of a window of 1 … 3 on each axis."""
    kernel = [d.number(1, 3) for _ in range(axes)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.number(1, 3) for _ in kernel]}
    if dilated and d.chance(40):
        found["dilations"] = [d.number(1, 2) for _ in kernel]
    if d.chance(30):
        found.pop("dilations", None)  # EXCLUDED["MaxPool"]
        return found | {"auto_pad": d.pick("SAME_UPPER", "SAME_LOWER", "VALID")}
    return found | {"pads": [d.number(0, k - 1) for k in kernel * 2]}


def spatial(d: Draw, axes: int) -> list[int]:
    """Sizes that any window fits into."""
    return [d.number(6, 12) for _ in range(axes)]


def const_weights(d: Draw, *indices: int) -> dict[str, Any]:
    """Weights as initializers, or fed (then only the data may have free sizes)."""
    return {"const": indices} if d.chance(60) else {"symbolic": (0,)}


def conv(d: Draw) -> Sample:
    axes, group = d.number(1, 3), d.pick(1, 1, 2, 3)
    each, outs = d.number(1, 5), group * d.pick(1, 2, 3, 9)
    attrs = window(d, axes)
    depthwise = d.chance(20)
    each, group = (1, group * each) if depthwise else (each, group)
    outs = group * d.number(1, 2) if depthwise else outs
    x = d.exact("float32", [d.number(1, 2), group * each, *spatial(d, axes)])
    w = d.exact("float32", [outs, each, *attrs["kernel_shape"]])
    bias = [d.exact("float32", (outs,))] if d.chance(50) else []
    return s("Conv", x, w, *bias, since=d.opset("Conv"), group=group, **attrs,
             **const_weights(d, *range(1, 2 + len(bias))))  # fmt: skip


def conv_transpose(d: Draw) -> Sample:
    axes, group, each, outs = d.number(1, 3), d.pick(1, 1, 2), d.number(1, 5), d.number(1, 5)
    attrs = window(d, axes)
    if "pads" in attrs and d.chance(30):
        attrs["output_padding"] = [d.number(0, n - 1) for n in attrs["strides"]]
    x = d.exact("float32", [d.number(1, 2), group * each, *(d.number(2, 7) for _ in range(axes))])
    w = d.exact("float32", [group * each, outs, *attrs["kernel_shape"]])
    bias = [d.exact("float32", (group * outs,))] if d.chance(50) else []
    return s("ConvTranspose", x, w, *bias, since=d.opset("ConvTranspose"), group=group, **attrs,
             **const_weights(d, *range(1, 2 + len(bias))))  # fmt: skip


def conv_integer(d: Draw) -> Sample:
    attrs, c, outs = window(d, 2), d.number(1, 5), d.number(1, 9)
    x, w = bytes_of(d, [1, c, *spatial(d, 2)], "uint8"), bytes_of(d, [outs, c, *attrs["kernel_shape"]], "uint8")
    zeros = [bytes_of(d, (), "uint8") for _ in range(d.number(0, 2))]
    return s("ConvInteger", x, w, *zeros, since=10, **attrs, **const_weights(d, *range(1, 2 + len(zeros))))


def qlinear_conv(d: Draw) -> Sample:
    attrs, c, outs = window(d, 2), d.number(1, 5), d.number(1, 9)
    x, w = bytes_of(d, [1, c, *spatial(d, 2)], "uint8"), bytes_of(d, [outs, c, *attrs["kernel_shape"]], "uint8")
    zeros = [bytes_of(d, (), "uint8") for _ in range(3)]
    return s("QLinearConv", x, scalar(0.5), zeros[0], w, scalar(0.25), zeros[1], scalar(d.pick(16, 64)), zeros[2],
             since=10, const=range(1, 8), **attrs)  # fmt: skip


def pooled(d: Draw, op: str, *, dilations: int, ceil: int) -> tuple[int, Array, dict[str, Any]]:
    """Opset, data and attributes: `dilations` and `ceil` are the opsets that have them."""
    opset, axes = d.opset(op), d.number(1, 3)
    attrs = window(d, axes, dilated=opset >= dilations)
    if opset >= ceil and "pads" in attrs:
        attrs["ceil_mode"] = d.number(0, 1)
    x = d.exact("float32", [d.number(1, 2), d.number(1, 3), *spatial(d, axes)])
    return opset, x, attrs


def average_pool(d: Draw) -> Sample:
    opset, x, attrs = pooled(d, "AveragePool", dilations=19, ceil=19)
    return s("AveragePool", x, since=opset, count_include_pad=d.number(0, 1), **attrs)


def max_pool(d: Draw) -> Sample:
    opset, x, attrs = pooled(d, "MaxPool", dilations=10, ceil=10)
    indices = opset >= 8 and d.chance(40) and "auto_pad" not in attrs
    if indices and opset >= 8 and d.chance(50):
        attrs["storage_order"] = 1
    return s("MaxPool", x, since=opset, outputs=2 if indices else 1, **attrs)


def lp_pool(d: Draw) -> Sample:
    opset, x, attrs = pooled(d, "LpPool", dilations=18, ceil=18)
    return s("LpPool", x, since=opset, p=d.number(1, 3), **attrs)


def global_pool(op: str, d: Draw) -> Sample:
    opset = d.opset(op)
    attrs = {"p": d.number(1, 3)} if op == "GlobalLpPool" else {}
    x = d.exact("float32", [d.number(1, 3), d.number(1, 9), *(d.number(1, 9) for _ in range(d.number(1, 3)))])
    return s(op, x, since=opset, **attrs)


def col2im(d: Draw) -> Sample:
    kernel, dilations, strides = ([d.number(1, 2) for _ in range(2)] for _ in range(3))
    pads, image = [d.number(0, 1) for _ in range(4)], [d.number(4, 8) for _ in range(2)]
    counts = [(image[k] + pads[k] + pads[k + 2] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)]
    x = d.exact("float32", (2, 3 * kernel[0] * kernel[1], counts[0] * counts[1]))
    return s("Col2Im", x, i64(*image), i64(*kernel), since=18, const=[1, 2], dilations=dilations, strides=strides,
             pads=pads)  # fmt: skip


def resize(d: Draw) -> Sample:
    opset, axes = d.opset("Resize", 10), d.number(1, 2)
    mode = d.pick("nearest", "linear", *(["cubic"] if opset >= 11 and axes == 2 else []))
    x = d.exact("float32", [1, 2, *(d.number(1, 9) for _ in range(axes))] if axes == 2 else [1, 1, 1, d.number(1, 9)])
    target = [d.number(1, 12) for _ in range(axes)]
    lead = list(x.shape[: 4 - axes])
    scales = np.array([1] * len(lead) + [t / n for t, n in zip(target, x.shape[-axes:])], np.float32)
    if opset == 10:
        scales[-axes:] = [d.pick(1, 2, 3, 0.5) for _ in range(axes)]
        return s("Resize", x, scales, since=10, const=[1], mode=mode)
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.pick(*modes)}
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attrs |= {"cubic_coeff_a": d.pick(-0.75, -0.5), "exclude_outside": d.number(0, 1)}
    if opset >= 18 and mode != "nearest" and d.chance(30) and axes == 2:
        attrs |= {"antialias": 1, "coordinate_transformation_mode": "half_pixel"}
    none = np.zeros(0, np.float32)
    if d.chance(50):
        whole = attrs["coordinate_transformation_mode"] == "align_corners"  # EXCLUDED["Resize"]
        scales[-axes:] = [d.pick(1, 2, 3, *([] if whole else [0.5, 1.5, 0.75])) for _ in range(axes)]
        return s("Resize", x, none, scales, since=opset, const=[1, 2], **attrs)
    return s("Resize", x, none, none, i64(*lead, *target), since=opset, const=[1, 2, 3], **attrs)


def upsample(d: Draw) -> Sample:
    opset = d.opset("Upsample", 7, 9)
    x = d.exact("float32", [1, 2, d.number(1, 9), d.number(1, 9)])
    scales, mode = [1.0, 1.0, float(d.number(1, 3)), float(d.number(1, 3))], d.pick("nearest", "linear")
    if opset < 9:
        return s("Upsample", x, since=opset, scales=scales, mode=mode)
    return s("Upsample", x, np.array(scales, np.float32), since=9, const=[1], mode=mode)


def grid_sample(d: Draw) -> Sample:
    opset = d.opset("GridSample", 16)
    axes = 3 if opset >= 20 and d.chance(40) else 2
    modes = ["linear", "nearest", *(["cubic"] if axes == 2 else [])]
    if opset < 20:
        modes = ["bilinear", "nearest", "bicubic"]
    x = d.exact("float32", [2, 2, *(d.number(2, 7) for _ in range(axes))])
    grid = np.asarray(d.values.uniform(-1.3, 1.3, [2, *(d.number(1, 5) for _ in range(axes)), axes]), np.float32)
    return s("GridSample", x, grid, since=opset, mode=d.pick(*modes), align_corners=d.number(0, 1),
             padding_mode=d.pick("zeros", "border", "reflection"))  # fmt: skip


def recurrent(op: str, gates: int, d: Draw) -> Sample:
    opset, steps, batch, width, hidden = d.opset(op), d.number(1, 6), d.number(1, 3), d.number(1, 7), d.number(1, 9)
    direction = d.pick("forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1

    def part(*shape: int) -> Array:
        return d.normal("float32", shape, 0.5)

    inputs: list[Array | None] = [part(steps, batch, width), part(count, gates * hidden, width)]
    inputs += [part(count, gates * hidden, hidden), part(count, 2 * gates * hidden) if d.chance(60) else None]
    lengths = d.values.integers(1, steps + 1, batch).astype(np.int32)
    inputs += [lengths if d.chance(40) else None, part(count, batch, hidden) if d.chance(40) else None]
    if op == "LSTM":
        inputs += [part(count, batch, hidden) if d.chance(40) else None]
        inputs += [part(count, 3 * hidden) if d.chance(30) else None]
    while inputs[-1] is None:
        inputs.pop()
    attrs: dict[str, Any] = {"linear_before_reset": d.number(0, 1)} if op == "GRU" else {}
    if op != "LSTM" and d.chance(20):  # EXCLUDED["LSTM"]
        attrs["clip"] = 0.8
    return s(op, *inputs, since=opset, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, direction=direction,
             **attrs)  # fmt: skip
