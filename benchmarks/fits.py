"""Least-squares fits of what was measured at several sizes: a straight line, and a power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Line(NamedTuple):
    """y = fixed + each · x; `r2` is the part of y's variance that it explains, 1 where y does not vary."""

    fixed: float
    each: float
    r2: float


def line(x: Sequence[float], y: Sequence[float]) -> Line:
    """The straight line through at least two points that differ in x."""
    each, fixed = (float(c) for c in np.polyfit(x, y, 1))
    left = np.asarray(y) - fixed - each * np.asarray(x)
    spread = float(np.var(y))
    return Line(fixed, each, 1.0 - float(np.mean(left**2)) / spread if spread else 1.0)


def exponents(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float]:
    """The slope of log cost over log size through all sizes, and between the last two: 1 is linear, 2 quadratic."""
    x, y = ([math.log(v) for v in values] for values in (sizes, costs))
    return line(x, y).each, (y[-1] - y[-2]) / (x[-1] - x[-2])
