"""Inputs whose shapes do not fit together are refused, with both numbers, whether sizes are known or free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conformance import samples as S
from tests.conformance.samples_data import Sample
from tests.kernels.harness import node_model, run_native
from webrt.errors import WebrtError

# Operators and the input that gets one element more along its first axis.
LONGER = {
    "BatchNormalization": 1, "InstanceNormalization": 2, "GroupNormalization": 1, "Conv": 2, "ConvTranspose": 2,
    "RNN": 3, "GRU": 3, "LSTM": 4, "RoiAlign": 1, "RotaryEmbedding": 0, "ReverseSequence": 1,
    "OneHot": 2, "ScatterND": 2, "TensorScatter": 2, "DequantizeLinear": 1,
}  # fmt: skip


def cases() -> list[Sample]:
    """The first sample of each operator that has the input, with it too long."""
    found: dict[str, Sample] = {}
    for sample in S.newest_samples():
        i = LONGER.get(sample.op)
        if i is None or sample.domain or i >= len(sample.inputs) or sample.op in found:
            continue
        x = sample.inputs[i]
        if x is not None and x.ndim:
            longer = np.concatenate([x, x[:1]])
            found[sample.op] = replace(sample, inputs=(*sample.inputs[:i], longer, *sample.inputs[i + 1 :]))
    return list(found.values())


def test_most_operators_have_a_case() -> None:
    assert len(cases()) >= len(LONGER) - 2


@pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
@pytest.mark.parametrize("sample", cases(), ids=lambda x: x.op)
def test_sizes_that_do_not_agree(sample: Sample, free: bool) -> None:
    model, feeds = node_model(
        sample.op, sample.inputs, sample.attrs, opset=S.newest_opset(sample), outputs=sample.outputs,
        constants=sample.constants, symbolic=sample.symbolic if free else False,
    )  # fmt: skip
    with pytest.raises(WebrtError):
        run_native(model, feeds)
