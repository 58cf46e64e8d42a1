"""Values that elementwise operators are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

# No subnormal numbers: WGSL lets a device take them for 0.
SPECIAL = np.array(
    [
        0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, np.nan, np.inf, -np.inf, 2, -2, 3, 6, 1e-7, 1e-3, 0.9375,
        0.7071, 0.99999, -0.99999, 1.00001, 3.9, 9.1, 11, 22, 355, 88.5, -88.5, 89.3, 104, -104, 7999, 8001, 1e6,
        12345678, 1e10, -1e10, 1e20, 3e38, -3e38, 1.2e-38,
    ],
    np.float32,
)  # fmt: skip


def floats(dtype: Any = np.float32) -> Array:
    """Special values, then random ones of several sizes, as many as leave a tail of 1 beside fours."""
    rng = np.random.default_rng(1)
    parts: list[Array] = [SPECIAL, rng.normal(size=100) * 3, rng.uniform(-1, 1, 100), rng.normal(size=57) * 1e5]
    with np.errstate(over="ignore"):
        return np.concatenate(parts).astype(np.float32).astype(dtype)


def integers(dtype: str) -> Array:
    """The edges of the type and of its neighbours, and small numbers."""
    info = np.iinfo(dtype)
    edges = [s * (2**k + d) for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0, 1) for s in (1, -1)]
    numbers = {0, 1, 3, 5, 7, 100, 123456789012345, -123456789012345, -1, -2, -7, *edges}
    return np.array(sorted(v for v in numbers if info.min <= v <= info.max), dtype)


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Each of a with each of b, flat."""
    x, y = np.meshgrid(a, b)
    return x.ravel().copy(), y.ravel().copy()


def wrapped(numbers: list[int], dtype: str) -> Array:
    """Python integers modulo the type's width."""
    bits = np.iinfo(dtype).bits
    return np.array([n % 2**bits for n in numbers], np.uint64).astype(f"uint{bits}").view(dtype)
