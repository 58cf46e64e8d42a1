"""The benchmark's own logic: rounds, budgets, ratios, results that are resumed, rivals that cannot be had."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import compare, fetch, fits, gains, host_cost, linear, make_models, rivals, streaming, symbolic, tables
from benchmarks.models import Model
from tests.kernels.harness import device as shared_device
from webrt.cli.progress import Bars
from webrt.compiler.compile import compile_model
from webrt.errors import WebrtError
from webrt.runtime.session import Session


class Fake:
    """An engine whose runs take the given seconds, one after another."""

    def __init__(self, name: str, seconds: Sequence[float], log: list[str]) -> None:
        self.name, self.seconds, self.log = name, list(seconds), log
        self.facts = {"session": 1.0, "first_run": 2.0}
        self.outputs = [np.float32([1, 2])]

    def run(self) -> float:
        self.log.append(self.name)
        if not self.seconds:
            raise WebrtError("it broke")
        return self.seconds.pop(0)

    def finish(self) -> dict[str, Any]:
        return {"dispatches": 3}

    def close(self) -> None:
        self.log.append(f"-{self.name}")


def rival(name: str, seconds: Sequence[float], log: list[str]) -> rivals.Rival:
    return rivals.Rival(name, lambda model, folder: Fake(name, seconds, log))


def model(path: Path) -> Model:
    return Model("m", path / "m.onnx", {}, {"y": np.float32([1, 4])})


def test_rounds_budgets_and_failures(tmp_path: Path) -> None:
    log: list[str] = []

    def refuse(model: Model, folder: Path) -> Fake:
        raise WebrtError("not to be had")

    engines = [rival("a", [1, 2, 3], log), rival("b", [8, 8], log), rival("c", [1], log), rivals.Rival("d", refuse)]
    row = compare.measure(model(tmp_path), engines, 3, 10, tmp_path, Bars(), pause=0)
    assert log == ["a", "b", "c", "a", "b", "c", "a", "-a", "-b", "-c"]
    found = row["engines"]
    assert found["a"]["times"] == [1, 2, 3] and found["a"]["median"] == 2 and found["a"]["dispatches"] == 3
    assert found["b"]["times"] == [8, 8, None] and found["a"]["difference"] == 0.5
    assert found["c"] == {"error": "it broke"} and found["d"] == {"error": "not to be had"}
    assert list(found) == ["a", "b", "c", "d"]
    text = "\n".join(tables.model_table(row))
    assert "did not run: it broke" in text and "did not run: not to be had" in text and "5.0e-01" in text


def test_ratios_are_of_the_same_rounds() -> None:
    pair = tables.PAIRS[0]
    row = {"model": "m", "engines": {pair.ours: {"times": [1, 2, 4]}, pair.theirs: {"times": [10, 40, None]}}}
    assert tables.ratio(row, pair) == 15
    assert tables.ratio({"model": "m", "engines": {pair.ours: {"error": "no"}}}, pair) is None
    other = {"model": "n", "engines": {pair.ours: {"times": [1]}, pair.theirs: {"times": [60]}}}
    text = "\n".join(tables.summary_table([row, other]))
    assert "30.00 ×" in text and "(aim: 20)" in text and "least 15.00 ×" in text


def test_results_are_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    monkeypatch.setattr(compare, "native_rivals", lambda progress: [rival("webrt native", [1, 2], log)])
    monkeypatch.setattr(compare, "models", lambda args, bars: [model(tmp_path)])
    out = tmp_path / "results" / "r.json"
    args = argparse.Namespace(out=out, fresh=False, native=True, only_rival=[], repeat=2, budget=9.0, pause=0)
    compare.run(args)
    compare.run(args)
    assert log == ["webrt native", "webrt native", "-webrt native"]
    found = json.loads(out.read_text())
    assert found["machine"]["cpus"] and found["models"]["m"]["engines"]["webrt native"]["median"] == 1.5
    args.only_rival = ["nobody"]
    with pytest.raises(WebrtError, match="no rival's name contains nobody; there are: webrt native"):
        compare.run(args)
    out.write_text("[]")
    with pytest.raises(WebrtError, match="holds no results"):
        compare.load_results(out, False)


def test_a_worker_runs_webrt(tmp_path: Path) -> None:
    [made] = [m for m in make_models.write(tmp_path) if m.name == "made_decoder"]
    native = next(r for r in rivals.native_rivals(lambda *_: None) if r.name == "webrt native")
    opened = native.open(made, tmp_path)
    assert opened.run() > 0 and len(opened.outputs) == 5
    facts = opened.finish()
    assert facts["dispatches"] > 0 and facts["peaks"]["gflops"] > 0 and facts["device_bytes"] > 0
    opened.close()
    broken = Model("x", tmp_path / "none.onnx", {})
    with pytest.raises(WebrtError, match="none.onnx"):
        native.open(broken, tmp_path)


def test_what_is_fetched_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBRT_CACHE", str(tmp_path))
    monkeypatch.setattr(
        fetch, "_run", lambda command: Path(command[-1], "onnxruntime-web-1.30.0.tgz").write_bytes(b"x")
    )
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(WebrtError, match="has sha256 .*, expected d2228df7"):
        fetch.onnxruntime_web(lambda *_: None)
    assert not list(tmp_path.glob("onnxruntime*"))
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(WebrtError, match="npm is not installed"):
        fetch.onnxruntime_web(lambda *_: None)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(WebrtError, match=r"no Python 3\.12 on PATH"):
        fetch.find_python(["3.12"])


@pytest.mark.parametrize("name", list(make_models.MADE))
def test_made_models_are_the_same_each_time_and_compile(name: str) -> None:
    make, _ = make_models.MADE[name]
    first, second = make(), make()
    assert first.SerializeToString() == second.SerializeToString()
    assert not compile_model(first).host_steps


def test_the_plans_of_benchmarks_run() -> None:
    with Session(host_cost.plan_of(20), shared_device()) as session:
        session.run(None, {"x": np.zeros(4, np.float32)})
        assert session.last_run.dispatches == 20 and session.last_run.submits == 1
    with Session(streaming.plan_of(1, 4), shared_device()) as session:
        (out,) = session.run(None, {"out_in": np.zeros(4, np.float32)})
        assert out[0] == 4
    found = host_cost.line({10: [0, 0, 0, 30, 30], 110: [0, 0, 0, 330, 330]})
    assert found["each_us"] == 3 and found["fixed_us"] == 0 and found["run_us"] == 330


def test_free_and_fixed_sizes_run_in_turn(tmp_path: Path) -> None:
    graph = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(graph), path)
    row = symbolic.measure(Model("m", path, {"x": np.ones((3, 4), np.float32)}), 2)
    assert {"free", "fixed", "ratio", "cpu_free", "cpu_fixed", "cpu_ratio"} < row.keys()
    assert row["model"] == "m" and row["ratio"] > 0 and row["cpu_free"] >= 0


def test_a_pass_is_told_by_what_it_gains(tmp_path: Path) -> None:
    case = next(gains.cases("fuse_transposes", tmp_path))
    row = gains.measure(case, "fuse_transposes", 1)
    assert row["model"] == "left_512x512" and min(row["with"], row["without"], row["ratio"]) > 0
    assert gains.measure(case, "fuse_norms", 1)["ratio"] is None, "no norm is in it"
    with pytest.raises(WebrtError, match="fuse_nothing"):
        gains.measure(case, "fuse_nothing", 1)


def test_fits_give_back_the_line_and_the_power() -> None:
    sizes = [1, 2, 4, 8]
    assert fits.line(sizes, [3 + 2 * n for n in sizes]) == pytest.approx((3, 2, 1))
    assert fits.line(sizes, [1, 1, 1, 1]).each == pytest.approx(0)
    assert fits.exponents(sizes, [5 * n**2 for n in sizes]) == pytest.approx((2, 2))
    assert fits.line([1, 2, 3, 4], [1, -1, -1, 1]).r2 == pytest.approx(0)


def test_runs_that_grow_dearer_are_told_from_flat_ones() -> None:
    flat = linear.slope([1e-3, 1.1e-3] * 50)
    assert abs(flat["of_median"]) < 0.1 and flat["left_out"] == 0
    growing = linear.slope([1e-3 + 1e-5 * i for i in range(100)] + [1.0])
    assert growing["each_us"] == pytest.approx(10) and growing["left_out"] == 1


def test_growth_is_measured_at_every_size() -> None:
    seconds = linear.growth(shared_device(), linear.KINDS["gemm"], [(1, 2), (2, 2)], 1)
    assert len(seconds) == 2 and all(s > 0 for s in seconds)
