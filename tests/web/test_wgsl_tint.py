"""Every kernel that the operator samples produce, in every type and with free sizes, is taken by Tint.

naga takes the same kernels in tests/conformance/test_types.py and test_limits.py, which run them."""

from __future__ import annotations

from functools import lru_cache

import pytest

from tests.conformance import samples as S
from tests.conformance.samples_data import Sample
from tests.conformance.test_types import CASES
from tests.kernels.harness import node_model
from tests.web.driver import Player
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.plan import Dispatch, Kernel

pytestmark = pytest.mark.xdist_group("chromium")

MOST_BUFFERS = 8


def kernels_of(sample: Sample, free: bool | tuple[int, ...]) -> dict[str, Kernel]:
    """The kernels of the sample's plan by hash; no dispatch binds more buffers than every device has."""
    model, _ = node_model(
        sample.op, sample.inputs, sample.attrs, opset=S.newest_opset(sample), domain=sample.domain,
        outputs=sample.outputs, constants=sample.constants, symbolic=free,
    )  # fmt: skip
    plan = compile_model(model, CompileOptions())
    for step in plan.steps:
        if isinstance(step, Dispatch):
            assert len(step.bindings) <= MOST_BUFFERS, f"{sample}: {len(step.bindings)} buffers"
    return {k.hash: k for k in plan.kernels}


@lru_cache(maxsize=1)
def kernels() -> tuple[Kernel, ...]:
    """All kernels, each once."""
    found: dict[str, Kernel] = {}
    for sample in S.newest_samples():
        found |= kernels_of(sample, False) | kernels_of(sample, sample.symbolic)
    for _, _, _, sample in CASES:
        found |= kernels_of(sample, False)
    return tuple(found.values())


def test_there_are_kernels_of_every_sort() -> None:
    assert len(kernels()) > 500


def test_tint_takes_every_kernel(player: Player) -> None:
    said = player.check_kernels(kernels())
    refused = {s["name"]: s["messages"] for s in said if s["messages"]}
    assert not refused, f"{len(refused)} kernels: {dict(list(refused.items())[:5])}"
