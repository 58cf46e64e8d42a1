"""web/python.js: the device and a plan begin while Pyodide loads, and Python takes them over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import parser
from playwright.sync_api import Browser, Page

from tests.test_readme import README, blocks
from webrt.cli import chromium, site
from webrt.compiler.compile import compile_model
from webrt.planfile import save

pytestmark = [pytest.mark.xdist_group("chromium"), pytest.mark.timeout(600)]

MODEL = """<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 4] x) => (float[n, 4] y)
    <float[4] w = {%s, -2.0, 3.0, 0.5}> { a = Add(x, w)  y = Relu(a) }"""

START = """async (packages) => {
  const { startPython } = await import("./python.js");
  const loads = [];
  const { pyodide, plan } = await startPython({ packages, plan: "a.webrt", onProgress: (stage) => loads.push(stage) });
  const other = new Uint8Array(await (await fetch("b.webrt")).arrayBuffer());
  Object.assign(globalThis, { pyodide, plan, loads, other });
}"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("start") / "site"
    site.build_site(folder, demo=False)
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href='data:,'><title>webrt</title>")
    for name, weight in (("a", "1.0"), ("b", "5.0"), ("model", "1.0")):
        save(compile_model(parser.parse_model(MODEL % weight)), folder / f"{name}.webrt")
    with chromium.serve(folder) as url:
        yield url


@pytest.fixture
def page(browser: Browser, base: str) -> Iterator[Page]:
    context = browser.new_context()
    made = context.new_page()
    made.set_default_timeout(300_000)
    made.goto(f"{base}blank.html")
    yield made
    context.close()


def run(page: Page, code: str) -> Any:
    """What `found` is after the code, as JSON."""
    return json.loads(page.evaluate("code => pyodide.runPythonAsync(code)", f"{code}\njson.dumps(found)"))


def test_the_session_that_began_early_is_taken_over_by_its_own_file_only(page: Page) -> None:
    page.evaluate(START, ["webrt", "numpy"])
    assert {"download", "pipelines"} <= set(page.evaluate("loads"))
    again, first, other = run(
        page,
        """
import json, sys, webrt
import numpy as np
from js import loads, other, plan
x = np.array([[-3, 1, 2, 3]], np.float32)
before = loads.length
async def answer(data):
    session = await webrt.InferenceSession.create(data.to_bytes())
    (y,) = await session.arun(None, {"x": x})
    return y.tolist()
first = await answer(plan)
again = loads.length - before
second = await answer(other)
found = [again, first, second]
assert "onnx" not in sys.modules
""",
    )
    assert again == 0  # nothing was loaded anew
    assert first == [[0, 0, 5, 3.5]]
    assert other == [[2, 0, 5, 3.5]]


def test_a_model_needs_the_compile_half(page: Page) -> None:
    page.evaluate(START, ["webrt"])
    kind, told, arrays = run(
        page,
        """
import json, sys, webrt
from js import plan
try:
    await webrt.InferenceSession.create(b"a model")
except webrt.WebrtError as e:
    found = [type(e).__name__, str(e)]
await webrt.InferenceSession.create(plan.to_bytes())
found.append("numpy" in sys.modules)
""",
    )
    assert kind == "PlacementError" and "loadPackage('webrt-compiler')" in told
    assert not arrays


def test_the_lines_of_the_readme(page: Page) -> None:
    _, snippet = blocks(README, "js")
    first, rest = snippet.strip().split("\n", 1)
    assert first == 'import { startPython } from "./python.js";'
    page.evaluate(
        f"""async () => {{
  const {{ startPython }} = await import("./python.js");
  {rest}
  globalThis.pyodide = pyodide;
}}"""
    )
    assert run(page, "import json\nfound = [i.name for i in session.get_inputs()]") == ["x"]


def test_a_plan_that_is_not_there_is_told(page: Page) -> None:
    told = page.evaluate(
        """async () => {
  const { startPython } = await import("./python.js");
  return startPython({ plan: "none.webrt" }).then(() => null, (e) => [e.name, e.message]);
}"""
    )
    assert told[0] == "WebrtError" and "none.webrt: HTTP 404" in told[1]
