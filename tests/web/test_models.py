"""Whole models in Chromium: compiled natively, replayed by player.js, compared with the native device and the
expectation, both within 1e-3 of the largest output."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.models import error_of, public_model
from tests.kernels.harness import device, node_model, oracle
from tests.models import test_light as light
from tests.models.test_public import WHOLE_MODEL, WHOLLY_ON_WEBGPU, expected
from tests.web.driver import Player
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import TargetError
from webrt.plan import Plan
from webrt.planfile import save
from webrt.runtime.session import Session
from webrt.target import BASE

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.timeout(600)]

_numbers = itertools.count()
LOW = BASE.with_limits(maxStorageBufferBindingSize=1 << 20)


def check(player: Player, url: str, plan: Plan, feeds: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Both devices' outputs of a plan that has no host step; the page has it from `url`."""
    assert not plan.host_steps
    with Session(plan, device()) as session:
        native = dict(zip(want, session.run(list(want), feeds), strict=True))
    start = time.perf_counter()
    loaded = player.load(url)
    ready = time.perf_counter()
    got = loaded.run(feeds)
    done = time.perf_counter()
    loaded.release()
    print(f"in Chromium: loaded in {ready - start:.1f} s, first run {done - ready:.1f} s")
    for name, array in want.items():
        assert error_of(native[name], array) < WHOLE_MODEL, name
        assert error_of(got[name], array) < WHOLE_MODEL, name
        assert error_of(got[name], native[name]) < WHOLE_MODEL, name


def served(plan: Plan, files: Path, base_url: str) -> str:
    """An address of the plan's file that the browser's cache does not know."""
    save(plan, files / "model.webrt")
    return f"{base_url}model.webrt?{next(_numbers)}"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in light.LONG else []) for n in light.NAMES]
)
def test_light(name: str, player: Player, files: Path, base_url: str) -> None:
    model = onnx.load(light.FOLDER / f"{name}.onnx")
    plan = compile_model(model)
    array = onnx.numpy_helper.to_array(onnx.load_tensor(light.FOLDER / f"{name}_output_0.pb"))
    check(player, served(plan, files, base_url), plan, light.dummy_feeds(model), {plan.outputs[0].name: array})


@pytest.mark.parametrize("name", WHOLLY_ON_WEBGPU)
def test_public(name: str, player: Player, files: Path, base_url: str) -> None:
    model = public_model(name)
    plan = compile_model(str(model.path))
    check(player, served(plan, files, base_url), plan, model.feeds, expected(model))


@pytest.mark.parametrize("constants", [(), (1,)], ids=["fed", "constant"])
@pytest.mark.parametrize("turned", [0, 1])
def test_weights_larger_than_a_binding(
    turned: int, constants: tuple[int, ...], player: Player, files: Path, base_url: str
) -> None:
    rng = np.random.default_rng(5)
    a, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 1024), (512, 1024) if turned else (1024, 512)))
    model, feeds = node_model("Gemm", [a, w], {"transB": turned}, constants=constants)
    plan = compile_model(model, CompileOptions(target=LOW))
    check(player, served(plan, files, base_url), plan, feeds, {"y0": oracle(model, feeds)[0]})


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_a_table_larger_than_a_binding(dtype: type, player: Player, files: Path, base_url: str) -> None:
    rng = np.random.default_rng(6)
    table = rng.integers(0, 100, (2100, 511)).astype(dtype)[: 4200 // np.dtype(dtype).itemsize]
    indices = np.append(rng.integers(-len(table), len(table), 11), -1)
    model, feeds = node_model("Gather", [table, indices], {}, constants=(0,))
    plan = compile_model(model, CompileOptions(target=LOW))
    check(player, served(plan, files, base_url), plan, feeds, {"y0": oracle(model, feeds)[0]})


def test_a_convolution_of_weights_larger_than_a_binding(player: Player, files: Path, base_url: str) -> None:
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(s).astype(np.float32) / 8 for s in ((1, 120, 5, 6), (260, 120, 3, 3), (260,))]
    model, feeds = node_model("Conv", inputs, {"pads": [1, 1, 1, 1]}, constants=(1, 2))
    plan = compile_model(model, CompileOptions(target=LOW))
    check(player, served(plan, files, base_url), plan, feeds, {"y0": oracle(model, feeds)[0]})


def test_a_plan_for_a_smaller_device_keeps_to_its_limits(player: Player, files: Path, base_url: str) -> None:
    model, _ = node_model("Relu", [np.zeros((4, 4), np.float32)], symbolic=True)
    session = player.load(served(compile_model(model, CompileOptions(target=LOW)), files, base_url))
    with pytest.raises(TargetError, match="needs 1050624 bytes.*maxStorageBufferBindingSize 1048576"):
        session.run({"x0": np.zeros((513, 512), np.float32)})
    session.release()
