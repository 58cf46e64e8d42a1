"""A site of `webrt site` loads in Chromium, with onnx working in a worker, and asks no other host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webrt.cli import assets, chromium, site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.timeout(900)]

WORKER = """
onmessage = async () => {
  try {
    const site = await (await fetch("site.json")).json();
    const { loadPyodide } = await import(new URL(site.pyodide.index + "pyodide.mjs", location.href));
    const pyodide = await loadPyodide({ indexURL: new URL(site.pyodide.index, location.href).href });
    await pyodide.loadPackage(site.pyodide.packages, { messageCallback() {} });
    const model = new Uint8Array(await (await fetch(site.demo.path)).arrayBuffer());
    pyodide.globals.set("data", model);
    postMessage(pyodide.runPython(`
import importlib.util, inspect, json, sys, numpy, webrt.inference, webrt.runtime.browser, webrt.resources

def is_compiled(path):
    if ".zip/" in path:
        return path.endswith(".pyc")
    with open(importlib.util.cache_from_source(path), "rb") as file:
        return file.read(8)[4:] == bytes([1, 0, 0, 0])  # taken unchecked: it was not written here

files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
files = [f for f in files if f.endswith((".py", ".pyc")) and (".zip/" in f or "/site-packages/" in f)]
slow = [f for f in files if not is_compiled(f)]
import onnx, onnx.reference
model = onnx.load_from_string(bytes(data.to_py()))
onnx.checker.check_model(model)
inferred = onnx.shape_inference.infer_shapes(model)
json.dumps({
    "onnx": onnx.__version__, "numpy": numpy.__version__, "nodes": len(model.graph.node),
    "inferred": len(inferred.graph.value_info), "sympy": "sympy" in sys.modules,
    "shaders": webrt.resources.data_dir("shaders").is_dir(),
    "slow": slow, "compiled": len(files), "source": inspect.getsource(json.loads).partition("(")[0],
    "player": (webrt.resources.web_dir() / "player.js").is_file(),
})`));
  } catch (error) { postMessage(JSON.stringify({ error: String(error.stack ?? error) })); }
};
"""

START = """() => new Promise((resolve) => {
  const worker = new Worker("probe.mjs", { type: "module" });
  worker.onmessage = (event) => resolve(event.data);
  worker.onerror = (event) => resolve(JSON.stringify({ error: event.message }));
  worker.postMessage(0);
})"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    site.build_site(out)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.launch() as started:
        yield started


def test_onnx_works_in_a_worker_and_no_other_host_is_asked(folder: Path, browser: Browser) -> None:
    (folder / "probe.mjs").write_text(WORKER)
    (folder / "probe.html").write_text("<!doctype html><link rel=icon href='data:,'><title>probe</title>")
    context = browser.new_context()
    with chromium.serve(folder) as base:
        foreign = chromium.foreign_requests(context, base)
        page = context.new_page()
        page.goto(f"{base}probe.html")
        answer = json.loads(page.evaluate(START))
    context.close()
    assert "error" not in answer, answer["error"]
    assert foreign == []
    assert (answer["onnx"], answer["numpy"], answer["nodes"]) == ("1.23.2", "2.4.3", 860)
    assert answer["inferred"] > 800
    assert (answer["slow"], answer["source"]) == ([], "def loads") and answer["compiled"] > 200
    assert (answer["sympy"], answer["shaders"], answer["player"]) == (False, True, True)


def test_page_opens_without_errors_or_foreign_requests(folder: Path, browser: Browser) -> None:
    context = browser.new_context()
    errors: list[str] = []
    with chromium.serve(folder) as base:
        foreign = chromium.foreign_requests(context, base)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("response", lambda answer: errors.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{base}index.html", wait_until="networkidle")
        title = page.title()
    context.close()
    assert (errors, foreign) == ([], [])
    assert "webrt" in title.lower()


def test_lock_names_exactly_the_wheels_with_their_checksums(folder: Path) -> None:
    lock: dict[str, Any] = json.loads((folder / "pyodide" / "pyodide-lock.json").read_text())
    named = {package["file_name"]: package["sha256"] for package in lock["packages"].values()}
    there = {path.name: assets.sha256_of(path) for path in (folder / "pyodide").glob("*.whl")}
    assert named == there
    expected = {"ml-dtypes", "numpy", "onnx", "protobuf", "typing-extensions", "webrt", "webrt-compiler"}
    assert set(lock["packages"]) == expected
    assert set(lock["packages"]["webrt-compiler"]["depends"]) == {"numpy", "onnx", "webrt"}
    assert lock["packages"]["webrt"]["depends"] == []
    imports = {name: lock["packages"][name]["imports"] for name in ("numpy", "protobuf", "webrt")}
    assert imports == {"numpy": ["numpy"], "protobuf": ["google"], "webrt": ["webrt"]}
    assert lock["info"] == assets.catalog().info


def test_manifest_describes_what_is_there(folder: Path) -> None:
    manifest = json.loads((folder / "site.json").read_text())
    described = [*manifest["pyodide"]["files"], manifest["demo"]]
    for file in described:
        path = folder / file["path"]
        assert (path.stat().st_size, assets.sha256_of(path)) == (file["bytes"], file["sha256"])
    assert len(manifest["pyodide"]["files"]) == len(list((folder / "pyodide").iterdir()))


def test_building_again_replaces_the_site(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    site.build_site(out, demo=False)
    (out / "stale.txt").write_text("from before")
    site.build_site(out, demo=False)
    assert not (out / "stale.txt").exists()
    assert json.loads((out / "site.json").read_text())["demo"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
