"""How far a result may be from what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def close(got: Array, expected: Array, *, rtol: float | None = None, atol: float | None = None, what: str = "") -> None:
    """DESIGN's tolerances: f32 1e-5 + 1e-4·|x|, f16 2.5e-3 + 1e-3·|x|, integers exact; type and shape always."""
    assert got.dtype == expected.dtype, f"{what}: type {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    if got.dtype.kind not in "fV" and str(got.dtype) != "bfloat16":
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    half = got.dtype == np.float16 or str(got.dtype) == "bfloat16"
    r, a = (1e-3, 2.5e-3) if got.dtype == np.float16 else (1e-2, 1e-2) if half else (1e-4, 1e-5)
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=r if rtol is None else rtol,
        atol=a if atol is None else atol, err_msg=what, equal_nan=True,
    )  # fmt: skip
