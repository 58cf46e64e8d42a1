"""The nine networks that the onnx package ships, with the outputs that it ships for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest

from benchmarks.models import error_of
from webrt.inference import InferenceSession

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = sorted(p.stem for p in FOLDER.glob("*.onnx"))
LONG = ("light_vgg19", "light_zfnet512")


def test_all_nine_are_there() -> None:
    assert len(NAMES) == 9


def dummy_feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """What onnx's own runner feeds: `arange(n) / n` in the input's shape."""
    initializers = {i.name for i in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name not in initializers:
            shape = tuple(d.dim_value or 1 for d in info.type.tensor_type.shape.dim)
            n = int(np.prod(shape))
            feeds[info.name] = (np.arange(n).reshape(shape) / n).astype(np.float32)
    return feeds


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in NAMES])
def test_wholly_on_webgpu(name: str) -> None:
    model = onnx.load(FOLDER / f"{name}.onnx")
    expected = onnx.numpy_helper.to_array(onnx.load_tensor(FOLDER / f"{name}_output_0.pb"))
    session = InferenceSession(model, providers=["WebGpuExecutionProvider"])
    assert [p.op for p in session.get_placement() if p.provider == "cpu"] == []
    (got,) = session.run(None, dummy_feeds(model))
    assert error_of(got, expected) < 1e-3
    session.close()
