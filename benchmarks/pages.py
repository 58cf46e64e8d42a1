"""The rivals that run in a page: webrt's player, webrt under Pyodide, onnxruntime-web; all in one headless Chromium."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import BrowserContext, Error, Page

from benchmarks import fetch
from benchmarks.models import Model
from benchmarks.rivals import Opened, Rival
from webrt import resources
from webrt.cli import chromium, site
from webrt.cli.assets import Progress
from webrt.compiler.compile import compile_model
from webrt.errors import WebrtError
from webrt.plan import save

HERE = Path(__file__).parent
ENGINES = {
    "webrt player": "player", "webrt Pyodide": "pyodide",
    "onnxruntime-web WebGPU": "webgpu", "onnxruntime-web wasm": "wasm",
}  # fmt: skip


class InPage:
    """A model in a page of its own."""

    def __init__(self, page: Page, base: str, engine: str) -> None:
        self._page = page
        with _told():
            page.goto(f"{base}page.html")
            page.wait_for_function("globalThis.bench")
            made = page.evaluate("engine => bench.open(engine)", engine)
        self.facts: dict[str, Any] = made["facts"]
        self.outputs = [_array(o) for o in made["outputs"]]

    def run(self) -> float:
        with _told():
            return float(self._page.evaluate("bench.run()"))

    def finish(self) -> dict[str, Any]:
        with _told():
            found: dict[str, Any] = self._page.evaluate("bench.facts()")
        return found

    def close(self) -> None:
        self._page.close()


@contextmanager
def page_rivals(folder: Path, progress: Progress) -> Iterator[list[Rival]]:
    """The rivals that run in pages; `folder` is served to them. Raises WebrtError where there is no Chromium."""
    missing: dict[str, WebrtError] = {}
    served = folder / "site"
    try:
        site.build_site(served, progress=progress, demo=False)
    except WebrtError as e:
        missing["pyodide"] = e
        shutil.copytree(resources.web_dir(), served)
    try:
        (served / "ort").symlink_to(fetch.onnxruntime_web(progress))
    except WebrtError as e:
        missing["webgpu"] = missing["wasm"] = e
    for name in ("page.html", "page.js"):
        shutil.copyfile(HERE / name, served / name)
    with chromium.launch() as browser, chromium.serve(served, isolated=True) as base:
        context = browser.new_context()
        yield [Rival(name, _opener(context, base, served, engine, missing)) for name, engine in ENGINES.items()]
        context.close()


def put_work(served: Path, model: Model) -> None:
    """Puts a model and its feeds where the page looks for them."""
    work = served / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "model.onnx").symlink_to(model.path.resolve())
    save(compile_model(model.path), work / "model.webrt")
    listed: dict[str, Any] = {}
    for i, (name, array) in enumerate(model.feeds.items()):
        (work / f"{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        listed[name] = {"dtype": str(array.dtype), "dims": list(array.shape), "file": f"{i}.bin"}
    (work / "feeds.json").write_text(json.dumps(listed), encoding="utf-8")


def _opener(
    context: BrowserContext, base: str, served: Path, engine: str, missing: dict[str, WebrtError]
) -> Callable[[Model, Path], Opened]:
    def open_(model: Model, folder: Path) -> Opened:
        if engine in missing:
            raise missing[engine]
        if not (served / "work" / "model.onnx").exists() or (served / "work" / "model.onnx").resolve() != model.path:
            put_work(served, model)
        page = context.new_page()
        try:
            return InPage(page, base, engine)
        except WebrtError:
            page.close()
            raise

    return open_


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the page as WebrtError, in one line."""
    try:
        yield
    except Error as e:
        raise WebrtError(e.message.removeprefix("Page.evaluate: ").splitlines()[0][:300]) from e


def _array(packed: dict[str, Any]) -> Any:
    return np.frombuffer(base64.b64decode(packed["base64"]), packed["dtype"]).reshape(packed["dims"])
