"""The rivals that run in a page: webrt's player, webrt under Pyodide, onnxruntime-web; all in one headless Chromium."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from playwright.sync_api import BrowserContext, Error, Page

from benchmarks import fetch
from benchmarks.memory import sizes_of
from benchmarks.models import Model
from benchmarks.rivals import Opened, Rival
from webrt import resources
from webrt.cli import chromium, site
from webrt.cli.assets import Progress
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import NotConstant, WebrtError
from webrt.plan import Plan
from webrt.planfile import save

HERE = Path(__file__).parent
ENGINES = {
    "webrt player": "player", "webrt Pyodide": "pyodide",
    "onnxruntime-web WebGPU": "webgpu", "onnxruntime-web wasm": "wasm",
}  # fmt: skip


class InPage:
    """A model in a page of its own."""

    def __init__(self, page: Page, base: str, engine: str, model: Model) -> None:
        self._page = page
        with _told():
            page.goto(f"{base}page.html?model={quote(model.name)}")
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


@dataclass(frozen=True)
class Site:
    """A folder that is served to one Chromium; `missing` says why engines cannot be had."""

    folder: Path
    base: str
    context: BrowserContext
    missing: dict[str, WebrtError]


@contextmanager
def served_site(folder: Path, progress: Progress) -> Iterator[Site]:
    """The pages of all engines, below `folder`. Raises WebrtError where there is no Chromium."""
    missing: dict[str, WebrtError] = {}
    served = folder / "site"
    try:
        site.build_site(served, progress=progress, demo=False)
    except WebrtError as e:
        missing["pyodide"] = missing["plan"] = e
        shutil.copytree(resources.web_dir(), served)
    try:
        (served / "ort").symlink_to(fetch.onnxruntime_web(progress))
    except WebrtError as e:
        missing["webgpu"] = missing["wasm"] = e
    for name in ("page.html", "page.js"):
        shutil.copyfile(HERE / name, served / name)
    with chromium.launch_with_profile() as context, chromium.serve(served, isolated=True) as base:
        yield Site(served, base, context, missing)


@contextmanager
def page_rivals(folder: Path, progress: Progress) -> Iterator[list[Rival]]:
    """The rivals that run in pages. Raises as `served_site`."""
    with served_site(folder, progress) as made:
        yield [Rival(name, _opener(made, engine)) for name, engine in ENGINES.items()]


def put_work(served: Path, model: Model) -> None:
    """Puts a model and its feeds where the page looks for them."""
    work = served / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "model.onnx").symlink_to(model.path.resolve())
    listed: dict[str, Any] = {}
    for i, (name, array) in enumerate(model.feeds.items()):
        (work / f"{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        listed[name] = {"dtype": str(array.dtype), "dims": list(array.shape), "file": f"{i}.bin"}
    (work / "feeds.json").write_text(json.dumps(listed), encoding="utf-8")


def plan_of(model: Model) -> Plan:
    """The plan; where elements of inputs decide shapes or kernels, for those of the feeds; where nodes would be left to
    the CPU provider, which a page without Python lacks, for the sizes of the feeds too. Raises WebrtError."""
    known: dict[str, Any] = {}
    try:
        plan = compile_model(model.path)
    except NotConstant as e:
        known = {name: model.feeds[name] for name in e.roots if name in model.feeds}
        plan = compile_model(model.path, CompileOptions(known_inputs=known))
    if all(node.provider != "cpu" for node in plan.placement):
        return plan
    return compile_model(model.path, CompileOptions(free_dims=sizes_of(model), known_inputs=known))


def _opener(made: Site, engine: str) -> Callable[[Model, Path], Opened]:
    def open_(model: Model, folder: Path) -> Opened:
        if engine in made.missing:
            raise made.missing[engine]
        there = made.folder / "work" / "model.onnx"
        if not there.exists() or there.resolve() != model.path.resolve():
            put_work(made.folder, model)
        plan = made.folder / "work" / "model.webrt"
        if engine == "player" and not plan.exists():
            save(plan_of(model), plan)
        page = made.context.new_page()
        try:
            return InPage(page, made.base, engine, model)
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
