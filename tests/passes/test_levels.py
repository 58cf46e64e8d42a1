"""Every optimiser level gives the same answers with fewer dispatches (the highest adds transposes), on networks that
the onnx package ships."""

from __future__ import annotations

from typing import get_args

import onnx
import pytest

from benchmarks.models import error_of
from tests.kernels.harness import run_native
from tests.models.test_light import FOLDER, dummy_feeds
from tests.passes.harness import compiled, dispatches
from webrt import planfile
from webrt.compiler.options import Level

SMALL = ["light_squeezenet", "light_shufflenet"]
LARGE = ["light_inception_v1", "light_inception_v2", "light_resnet50", "light_densenet121"]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.long) for n in LARGE)])
def test_levels_agree(name: str) -> None:
    model = onnx.load(FOLDER / f"{name}.onnx")
    expected = onnx.numpy_helper.to_array(onnx.load_tensor(FOLDER / f"{name}_output_0.pb"))
    counts = []
    for level in get_args(Level):
        (got,), plan = run_native(model, dummy_feeds(model), level=level)
        assert error_of(got, expected) < 1e-3, level
        counts.append(dispatches(plan))
    assert counts[:-1] == sorted(counts[:-1], reverse=True)
    assert counts[-1] < counts[0]


@pytest.mark.parametrize("name", SMALL)
def test_same_bytes_twice(name: str) -> None:
    model = onnx.load(FOLDER / f"{name}.onnx")
    assert planfile.dump(compiled(model)) == planfile.dump(compiled(model))
