"""Public models, natively, against onnxruntime's CPU provider."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.models import Model, error_of, public_model, table
from webrt.inference import InferenceSession

WHOLE_MODEL = 1e-3
"""DESIGN's tolerance for a whole f32 model: a fraction of the largest output."""

WHOLLY_ON_WEBGPU = ("ppocrv4_rec", "minilm_l6_v2_int8wo")
LONG = [n for n in sorted(table()) if n not in WHOLLY_ON_WEBGPU]


def expected(model: Model) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(model.feeds)), strict=True))


def check(model: Model, providers: list[str]) -> InferenceSession:
    session = InferenceSession(str(model.path), providers=providers)
    want = expected(model)
    got = session.run(list(want), dict(model.feeds))
    for name, array in zip(want, got, strict=True):
        assert array.dtype == want[name].dtype
        assert error_of(array, want[name]) < WHOLE_MODEL, f"{model.name}: {name}"
    return session


@pytest.mark.parametrize("name", WHOLLY_ON_WEBGPU)
def test_wholly_on_webgpu(name: str) -> None:
    session = check(public_model(name), ["WebGpuExecutionProvider"])
    assert [p.op for p in session.get_placement() if p.provider == "cpu"] == []
    session.close()


def test_other_sizes_need_no_other_plan() -> None:
    """The recogniser's batch and width are free: one session, one plan, several sizes."""
    model = public_model("ppocrv4_rec")
    session = InferenceSession(str(model.path), providers=["WebGpuExecutionProvider"])
    rng = np.random.default_rng(1)
    import onnxruntime as ort

    oracle = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    for batch, width in ((1, 96), (2, 160), (1, 320)):
        x = rng.uniform(-1, 1, (batch, 3, 48, width)).astype(np.float32)
        (want,) = oracle.run(None, {"x": x})
        (got,) = session.run(None, {"x": x})
        assert error_of(got, want) < WHOLE_MODEL
    session.close()


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_whatever_the_placement(name: str) -> None:
    check(public_model(name), ["WebGpuExecutionProvider", "CPUExecutionProvider"]).close()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(table()))
def test_on_the_cpu_alone(name: str) -> None:
    check(public_model(name), ["CPUExecutionProvider"]).close()
