"""Every operator with a kernel at every opset that matters to it: placed on WebGPU, and right."""

from __future__ import annotations

import pytest

from tests.conformance import samples as S
from tests.conformance.oracles import expected
from tests.conformance.samples_data import Sample
from tests.kernels.harness import node_model, run_native
from tests.tolerance import close

CASES = [(sample, opset) for sample in S.samples() for opset in S.opsets(sample)]


def test_every_operator_has_a_sample() -> None:
    missing = S.operators() - {(x.domain, x.op) for x in S.samples()}
    assert not missing, f"add samples of {sorted(missing)} to tests/conformance/samples_*.py"


def test_no_operator_has_a_newer_version() -> None:
    for domain, name in S.operators():
        if not domain:
            newest, known = max(S.since_versions((domain, name))), S.VERSIONS.get(name)
            assert newest == known, (
                f"{name} has schema version {newest}, samples.VERSIONS knows {known}: read what changed"
            )


def test_every_version_has_a_sample() -> None:
    covered: dict[S.Key, set[int]] = {}
    for sample, opset in CASES:
        covered.setdefault((sample.domain, sample.op), set()).add(opset)
    for key in S.operators():
        missing = S.required_opsets(key) - covered.get(key, set())
        if not key[0]:
            assert not missing, f"{key[1]} has no sample at opset {sorted(missing)}"


@pytest.mark.parametrize(("sample", "opset"), CASES, ids=lambda x: str(x))
def test_opset(sample: Sample, opset: int) -> None:
    model, feeds = node_model(
        sample.op, sample.inputs, sample.attrs, opset=opset, domain=sample.domain, outputs=sample.outputs,
        constants=sample.constants,
    )  # fmt: skip
    got, plan = run_native(model, feeds)
    assert not plan.host_steps, [p.reason for p in plan.placement if p.how == "host"]
    for g, w in zip(got, expected(model, feeds, sample.lacks), strict=True):
        close(g, w, what=f"{sample} at opset {opset}")
