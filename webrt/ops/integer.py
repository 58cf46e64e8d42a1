"""What products of quantized tensors share: numbers minus their zero points in 32 bits, and requantization.

y = saturate(round_half_even(sum · scale_a · scale_b / scale_y) + zero_y), sums exact. Source: ONNX's QLinearMatMul.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Value
from webrt.lowering import Builder, require
from webrt.ops.quantize import QUANTIZE, quantized_range


def is_scalar(v: Value) -> bool:
    """Whether a scale or zero point is one for the whole tensor."""
    shape = v.static_shape
    return shape is not None and math.prod(shape) == 1


def centred(b: Builder, v: Value, zero: Value | None, at: str, params: Mapping[str, Dim] | None = None) -> Value:
    """v − zero as int32. `at` is the place of element i's zero point where there are several, over `params`."""
    require([v, zero], T.I8, T.U8)
    offsets = {0} if zero is None else set() if zero.const is None else set(zero.const.reshape(-1).tolist())
    if v.const is not None and len(offsets) == 1:
        return b.constant(v.const.astype(np.int32) - np.int32(offsets.pop()))
    out = b.temp(T.I32, v.known_shape)
    if zero is None:
        b.map(out, "return i32(load_v(i));", reads={"v": v}, name="centre")
        return out
    place, words = ("0u", {}) if is_scalar(zero) else (at, dict(params or {}))
    b.map(
        out,
        f"return i32(load_v(i)) - i32(load_zero({place}));",
        reads={"v": v, "zero": zero},
        params=words,
        name="centre",
    )
    return out


def requantize(
    b: Builder, sums: Value, out: Value, scales: Mapping[str, tuple[Value, str]], zero: Value, params: Mapping[str, Dim]
) -> None:
    """int32 sums to `out`. `scales`: a, b and y, each with the place of element i's scale where there are several."""
    require([v for v, _ in scales.values()], *T.FLOATS)
    require([out], T.I8, T.U8)
    if not is_scalar(zero):
        raise UnsupportedOp("a zero point for each row of the result")
    place = {k: "0u" if is_scalar(v) else at for k, (v, at) in scales.items()}
    ratio = f"f32_div(load_a({place['a']}) * load_b({place['b']}), load_y({place['y']}))"
    b.map(
        out,
        f"return Out(quantize(f32(load_v(i)) * {ratio}, i32(load_zero(0u))));",
        reads={"v": sums, **{k: v for k, (v, _) in scales.items()}, "zero": zero},
        params={**quantized_range(out.dtype), **params},
        fns=[QUANTIZE],
        use=("nan", "divide"),
        name="requantize",
    )
