"""Every node case of onnx.backend.test on the CPU provider alone, against the case's own values."""

from __future__ import annotations

import pytest

from tests.conformance import cases as C
from webrt.host import run_model


@pytest.mark.parametrize("name", sorted(C.cases()))
def test_host(name: str) -> None:
    """The values; where a case draws them, their types, shapes and means."""
    case = C.cases()[name]
    C.compare(case, list(run_model(case.model, case.feeds).values()))
