"""A sample of the node cases the whole way under Pyodide: checked, compiled and run in the page."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from playwright.sync_api import Browser

from tests.conformance import cases as C
from webrt.cli import chromium, site

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.timeout(900)]

PILLOW = "ImageDecoder"
"""The one operator that needs a package which a page does not load."""
WORKER = Path(__file__).with_name("pyodide_worker.mjs")
START = """() => {
  globalThis.worker = new Worker("pyodide_worker.mjs", { type: "module" });
  globalThis.ask = (message) => new Promise((resolve) => {
    worker.onmessage = (event) => resolve(event.data);
    worker.onerror = (event) => resolve({ error: event.message });
    worker.postMessage(message);
  });
}"""

Run = Callable[[C.Case], dict[str, Any]]


def is_plain(name: str) -> bool:
    """Whether an .npz holds all that goes in and out of a case."""
    case = C.cases()[name]
    arrays = [*case.feeds.values(), *case.wanted]
    values = [*case.model.graph.input, *case.model.graph.output]
    if case.op == PILLOW or not all(v.type.HasField("tensor_type") for v in values):
        return False
    return all(isinstance(a, np.ndarray) and a.dtype.isbuiltin == 1 and a.dtype.kind in "biuf" for a in arrays)


def sample() -> list[str]:
    """60 cases, a third of them with a node on the CPU."""
    excluded = {**C.expected()["fails"], **C.expected()["random"]}
    names = [n for n in sorted(C.cases()) if is_plain(n) and n not in excluded]
    rng = random.Random(0)
    on_cpu = rng.sample([n for n in names if C.expected_kind(n) == "cpu"], 20)
    return sorted(on_cpu + rng.sample([n for n in names if C.expected_kind(n) == "webgpu"], 40))


@pytest.fixture(scope="module")
def run(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("pyodide") / "site"
    site.build_site(folder, demo=False)
    (folder / WORKER.name).write_bytes(WORKER.read_bytes())
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href=data:,>", encoding="utf-8")
    with chromium.serve(folder) as base:
        page = browser.new_page()
        page.goto(base + "blank.html")
        page.evaluate(START)

        def ask(case: C.Case) -> dict[str, Any]:
            buffer = io.BytesIO()
            np.savez(buffer, **dict(case.feeds))
            message = {"model": case.model.SerializeToString(), "feeds": buffer.getvalue()}
            answer = page.evaluate("m => ask(m)", {k: base64.b64encode(v).decode() for k, v in message.items()})
            assert "error" not in answer, answer["error"]
            return dict(answer)

        yield ask
        page.close()


@pytest.mark.parametrize("name", sample())
def test_pyodide(name: str, run: Run) -> None:
    case = C.cases()[name]
    answer = run(case)
    with np.load(io.BytesIO(base64.b64decode(answer["outputs"]))) as data:
        C.compare(case, [data[k] for k in data.files])
    on_cpu = any(provider == "cpu" for _, provider in answer["placement"])
    assert on_cpu == (C.expected_kind(name) == "cpu")


@pytest.mark.parametrize(
    ("code", "raw", "numbers"),
    [
        (onnx.TensorProto.INT4, [0x21, 0xF8], [1, 2, -8, -1]), (onnx.TensorProto.UINT2, [0b11100100], [0, 1, 2, 3]),
        (onnx.TensorProto.FLOAT8E4M3FN, [0x38, 0x40, 0xB8, 0x00], [1, 2, -1, 0]),
        (onnx.TensorProto.FLOAT4E2M1, [0x21, 0xF7], [0.5, 1, 6, -6]),
    ],
)  # fmt: skip
def test_small_types_inside_a_model(code: int, raw: list[int], numbers: list[float], run: Run) -> None:
    """A page has no ml_dtypes; weights of its types go to the device as bytes."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("DequantizeLinear", ["w", "s"], ["d"]), onnx.helper.make_node("Add", ["d", "x"], ["y"])],
        "g", [info("x", 1, [4])], [info("y", 1, [4])],
        [
            onnx.TensorProto(name="w", data_type=code, dims=[4], raw_data=bytes(raw)),
            onnx.helper.make_tensor("s", 1, [], [0.5]),
        ],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)], ir_version=11)
    answer = run(C.Case("small", model, {"x": np.ones(4, np.float32)}, [], 0, 0))
    with np.load(io.BytesIO(base64.b64decode(answer["outputs"]))) as data:
        np.testing.assert_array_equal(data["arr_0"], np.array(numbers, np.float32) / 2 + 1)
    assert all(provider == "webgpu" for _, provider in answer["placement"])
