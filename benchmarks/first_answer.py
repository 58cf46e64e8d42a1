"""Pages: from navigation to the first answer of a model, in headless Chromium, as JSON; times in seconds.

    python -m benchmarks.first_answer MODEL.onnx [--inputs MODEL.npz] [--repeat 3] [--against]

By default a `.webrt` in player.js, a fresh Chromium for each navigation: `beyond` is what remains of the first answer
after pipeline creation and the time from submit to done. `--against`: player.js and Pyodide over a `.webrt` beside
onnxruntime-web over the `.onnx`, in turn, in one Chromium that has a profile on disk, so that at later visits nothing
is downloaded or compiled to machine code that people's browsers would not. Under Pyodide "python" is when Pyodide,
webrt and numpy are loaded, "engine" when they are imported; "session" is when the session is made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import renderers
from benchmarks.models import Model
from benchmarks.pages import Site, plan_of, put_work, served_site
from webrt import dtypes
from webrt.cli import chromium
from webrt.cli.progress import Bars
from webrt.compiler.compile import compile_model
from webrt.planfile import save
from webrt.resources import web_dir


def prepare(folder: Path, model: Path, inputs: Path | None) -> None:
    """Puts the page, the plan and the feeds into `folder`."""
    (folder / "web").symlink_to(web_dir())
    (folder / "index.html").write_bytes(Path(__file__).with_suffix(".html").read_bytes())
    plan = compile_model(model)
    save(plan, folder / "model.webrt")
    arrays = npz_feeds(inputs or model.with_suffix(".npz"))
    feeds: dict[str, dict[str, Any]] = {}
    for i, (name, array) in enumerate(arrays.items()):
        (folder / f"{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        kind = dtypes.BY_NAME[str(array.dtype)].js
        feeds[name] = {"array": kind, "dims": list(array.shape), "file": f"{i}.bin"}
    (folder / "feeds.json").write_text(json.dumps(feeds), encoding="utf-8")


def npz_feeds(path: Path) -> dict[str, Any]:
    """The feeds of a file, by input."""
    with np.load(path) as data:
        return {k.removeprefix("in:"): data[k] for k in data.files if not k.startswith(("out:", "noopt:"))}


def measure(folder: Path, repeat: int) -> list[dict[str, Any]]:
    """One row per navigation, each in a fresh Chromium."""
    rows = []
    for _ in range(repeat):
        with chromium.launch() as browser, chromium.serve(folder) as base:
            page = browser.new_page()
            page.goto(base)
            page.wait_for_function("globalThis.webrtTimes", timeout=120_000)
            times = page.evaluate("globalThis.webrtTimes")
        row = {k: round(v / 1000, 3) for k, v in times.items() if k != "checksum"}
        row["beyond"] = round(row["first_answer"] - row["pipelines"] - row["submit_to_done"], 3)
        rows.append(row)
    return rows


def against(model: Model, repeat: int, folder: Path) -> dict[str, Any]:
    """`first` and `later` visits: for each engine the seconds from navigation to stages up to the answer, and those of
    CPU time; and how many times as much of both onnxruntime-web's WebGPU provider takes."""
    with served_site(folder, Bars()) as made:
        put_work(made.folder, model)
        save(plan_of(model), made.folder / "work" / "model.webrt")
        engines = [e for e in ("player", "plan", "webgpu", "wasm") if e not in made.missing]
        first = {engine: [_visit(made, engine)] for engine in engines}
        later: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
        for _ in range(repeat):
            for engine in engines:
                later[engine].append(_visit(made, engine))
    missing = {k: str(v) for k, v in made.missing.items()}
    return {"model": model.name, "first": _beside(first), "later": _beside(later), "missing": missing}


def _visit(made: Site, engine: str) -> dict[str, float]:
    """Seconds from navigation by stage, "answer" the last; "cpu" those of CPU time of all of Chromium's processes."""
    page = made.context.new_page()
    before = renderers.cpu_by_process(b"chrom")
    page.goto(f"{made.base}page.html?first={engine}")
    page.wait_for_function("globalThis.first", timeout=600_000, polling=100)
    after = renderers.cpu_by_process(b"chrom")
    reached = page.evaluate("globalThis.first")
    page.close()
    if "error" in reached:
        raise SystemExit(f"{engine}: {reached['error']}")
    seconds = {stage: round(ms / 1000, 3) for stage, ms in reached.items()}
    return seconds | {"cpu": round(sum(s - before.get(pid, 0) for pid, s in after.items()), 2)}


def _beside(visits: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """The visits, and the median of the ratios of those made in one round; CPU time is 0 where there is no /proc."""
    ratios: dict[str, dict[str, float]] = {}
    for engine in [e for e in ("player", "plan") if e in visits and "webgpu" in visits]:
        pairs = list(zip(visits[engine], visits["webgpu"], strict=True))
        ratios[engine] = {
            of: round(statistics.median(theirs[of] / ours[of] for ours, theirs in pairs), 2)
            for of in ("answer", "cpu")
            if all(ours[of] for ours, _ in pairs)
        }
    return {"visits": visits, "webgpu_takes": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--inputs", type=Path, help="an .npz of feeds (default: beside the model)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--against", action="store_true", help="beside onnxruntime-web, and under Pyodide")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.against:
            feeds = npz_feeds(args.inputs or args.model.with_suffix(".npz"))
            print(json.dumps(against(Model(args.model.stem, args.model, feeds), args.repeat, Path(name))))
            return
        prepare(Path(name), args.model, args.inputs)
        print(json.dumps({"model": args.model.stem, "runs": measure(Path(name), args.repeat)}, indent=1))


if __name__ == "__main__":
    main()
