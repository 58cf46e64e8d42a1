"""How a constant right operand of a product is stored: with zeros up to whole fours of columns, and those in panels.

In a panel all rows of 16 columns, or of the last ones, lie one after another. So what a tile reads next is what a
processor fetches ahead, where rows of the whole matrix are apart by as many pages as lines of its cache.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from webrt.builder import Builder
from webrt.ir import Value
from webrt.ops.vectors import can_load4, kind

Array = np.ndarray[Any, Any]
PANEL = 4
"""Fours of columns in a panel: a row of floats is a line of a processor's cache."""
LEAST = 1 << 16
"""Bytes of a matrix from which on it is worth it: smaller ones stay in that cache."""
_STORED = WeakKeyDictionary[Value, Value]()
"""Of a constant what is stored for it: products with one constant share it."""


def gain(b: Builder, right: Value, k: int, line: int) -> bool:
    """Whether a constant with k rows of `line` elements is read in panels: large ones are, which fit into a binding."""
    large = line > 4 * PANEL and kind(right).nbytes(k * line) >= LEAST
    return large and can_load4(kind(right), line) and len(b.windows(right)) == 1


def with_zeros(b: Builder, right: Value, const: Array, columns: int) -> Value:
    """The constant [..., n] with so many columns of zeros after its own."""
    if right not in _STORED:
        array: Array = np.pad(const, [(0, 0)] * (const.ndim - 1) + [(0, columns)])
        _STORED[right] = b.constant(array, right.dtype)
    return _STORED[right]


def in_panels(b: Builder, right: Value, const: Array, line: int) -> Value:
    """The elements of one matrix with rows of `line`, panel by panel, in a constant of the same shape."""
    if right not in _STORED:
        rows = const.reshape(-1, line)
        panels = [rows[:, at : at + 4 * PANEL].reshape(-1) for at in range(0, line, 4 * PANEL)]
        _STORED[right] = b.constant(np.concatenate(panels).reshape(const.shape), right.dtype)
    return _STORED[right]
