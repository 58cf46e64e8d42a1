"""Random cases of every operator with a kernel against onnxruntime's CPU provider, from fixed seeds."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance import random_elementwise, random_moves, random_products, random_spatial, samples
from tests.conformance.oracles import expected
from tests.conformance.random_draw import Draw
from tests.conformance.samples_data import Sample
from tests.kernels.harness import node_model, run_native
from tests.tolerance import close
from webrt.compiler.normalize import RANDOM

SHORT, LONG = 500, 5000
MADE = {
    **random_elementwise.cases(), **random_moves.cases(), **random_products.cases(), **random_spatial.cases(),
}  # fmt: skip
NAMES = sorted(f"ms {name}" if domain else name for domain, name in samples.operators())
FIXED = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck),
                 phases=[Phase.generate, Phase.shrink])  # fmt: skip


def check(sample: Sample, free: bool) -> None:
    """The node's outputs on the device against the oracle's, with known or free sizes."""
    symbolic = sample.symbolic if free else False
    model, feeds = node_model(
        sample.op, sample.inputs, sample.attrs, opset=sample.since, domain=sample.domain, outputs=sample.outputs,
        constants=sample.constants, symbolic=symbolic,
    )  # fmt: skip
    want = expected(model, feeds, sample.lacks or "random")
    got, _ = run_native(model, feeds)
    shapes = [None if x is None else (x.dtype, x.shape) for x in sample.inputs]
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        close(g, w, what=f"{sample.op}-{sample.since} {dict(sample.attrs)} {shapes} free={free} output {i}")


def shuffled(name: str, d: Draw) -> Sample:
    """A sample of the operator, its first input in another order: for operators without a maker of cases."""
    found = [x for x in samples.samples() if x.op == name.split()[-1] and bool(x.domain) == name.startswith("ms ")]
    sample: Sample = d.pick(*found)
    inputs = list(sample.inputs)
    shuffles = sample.op not in RANDOM  # their samples leave one value to draw
    if shuffles and inputs and inputs[0] is not None and inputs[0].dtype == np.float32 and inputs[0].ndim:
        inputs[0] = d.values.permuted(inputs[0])
    return replace(sample, inputs=tuple(inputs), since=d.pick(*samples.opsets(sample)))


def test_makers_are_of_operators() -> None:
    assert not set(MADE) - set(NAMES)


def run(name: str, count: int) -> None:
    @settings(FIXED, max_examples=count)
    @given(st.randoms(use_true_random=False), st.booleans())
    def cases(random: Random, free: bool) -> None:
        draw = Draw(random)
        check(MADE[name](draw) if name in MADE else shuffled(name, draw), free)

    cases()


@pytest.mark.parametrize("name", NAMES)
def test_some(name: str) -> None:
    run(name, -(-SHORT // len(NAMES)))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many(name: str) -> None:
    run(name, -(-LONG // len(NAMES)))
