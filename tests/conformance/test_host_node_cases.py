"""Every node case of onnx.backend.test on the CPU provider alone, against the case's own values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import cases as C
from webrt.host import run_model


@pytest.mark.parametrize("name", sorted(C.cases()))
def test_host(name: str) -> None:
    """The values; where a case draws them, their types and shapes, and that they are 0 or 1."""
    case = C.cases()[name]
    got = list(run_model(case.model, case.feeds).values())
    if name not in C.expected()["random"]:
        C.compare(case, got)
        return
    for g, want in zip(got, case.wanted, strict=True):
        assert isinstance(g, np.ndarray)
        assert g.dtype == want.dtype and g.shape == want.shape
        assert set(g.reshape(-1).tolist()) <= {0, 1}
