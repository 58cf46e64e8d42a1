"""Rounding to 8 bits by a known scale: the same bits as from an exact quotient, without one."""

from __future__ import annotations

import numpy as np

from webrt.dims import Dim
from webrt.lowering import Formula

_INTEGERS = 3 << 22
"""In the sum of this and a small f32 the latter is rounded to an integer, half to even, in the last bits."""


def nearest(scale: float, zero: int, low: int, high: int, number: str) -> Formula:
    """round_half_even(x / scale) + zero, from low to high, without a quotient that is rounded exactly.

    Between two integers all that matters is on which side of their middle x / scale is, or whether it is that number
    once it is rounded to f32. `off` is how far x is from so many scales, exactly: a middle has 9 bits at most, and an
    f32 holds its product with 12 bits of the scale. `off` in scales, added to the middle, is rounded as the quotient
    is where `told_apart` holds. The parameter `integers` is a constant that compilers would add to the middle's 0.5."""
    upper = _word(_bits(scale) & 0xFFFFF000)
    text = (
        "let y = f32(x); let v = select(clamp(y, bitcast<f32>(p.least), bitcast<f32>(p.most)), bitcast<f32>(p.least), "
        "is_nan(y)); let inverse = bitcast<f32>(p.inverse); let middle = floor(v * inverse) + 0.5; "
        "let off = (v - middle * bitcast<f32>(p.upper)) - middle * bitcast<f32>(p.lower); "
        "let q = middle + off * inverse; "
        f"return {number}(bitcast<i32>(q + bitcast<f32>(p.integers)) + i32(p.shift));"
    )
    params: dict[str, Dim | float] = {
        "least": (low - zero - 0.25) * scale, "most": (high - zero + 0.25) * scale, "inverse": 1 / scale,
        "upper": upper, "lower": scale - upper, "integers": float(_INTEGERS), "shift": zero - _bits(_INTEGERS),
    }  # fmt: skip
    return Formula(text, ("nan",), params, in_range=True)


def told_apart(scale: float) -> bool:
    """Whether the scale is usual, and no multiple of half its last place is so near half the last place of 1, 2, … 128
    scales that a product of two f32 cannot tell them apart. Then half a place of a quotient is told apart, too."""
    mantissa = (_bits(abs(scale)) & 0x7FFFFF) | 0x800000
    rests = (mantissa % (1 << bits) for bits in range(16, 24))
    return 1e-30 < scale < 1e30 and all(r == 0 or 4 < r < (1 << bits) - 4 for r, bits in zip(rests, range(16, 24)))


def _bits(x: float) -> int:
    """Those of the nearest f32."""
    return int(np.float32(x).view(np.uint32))


def _word(bits: int) -> float:
    """The f32 with these bits."""
    return float(np.uint32(bits).view(np.float32))
