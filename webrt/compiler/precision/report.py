"""How far the outputs of two versions of a model are apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def difference(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """Per float output: the largest |difference|, the largest |value| before, and the cosine between the two."""
    told: dict[str, dict[str, float]] = {}
    for name, a in before.items():
        b = after[name]
        if not np.issubdtype(a.dtype, np.floating) or not a.size:
            continue
        x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
        told[name] = {
            "largest_difference": float(np.abs(x - y).max()),
            "largest_value": float(np.abs(x).max()),
            "cosine": cosine(x, y),
        }
    return told


def cosine(x: Array, y: Array) -> float:
    """Of the angle between two vectors; 1 for two that are zero."""
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms else float(not np.any(x) and not np.any(y))
