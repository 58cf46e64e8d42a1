"""Pages: from navigation to the first answer of a model, in headless Chromium, as JSON; times in seconds.

    python -m benchmarks.first_answer MODEL.onnx [--inputs MODEL.npz] [--repeat 3] [--against]

By default a `.webrt` in player.js, a fresh Chromium for each navigation: `beyond` is what remains of the first answer
after pipeline creation and the time from submit to done. `--against`: player.js and Pyodide over a `.webrt` beside
onnxruntime-web over the `.onnx`, in turn, in one Chromium that has visited each page before and has a profile on disk,
so that nothing is downloaded or compiled to machine code that people's browsers would not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import Model
from benchmarks.pages import plan_of, put_work, served_site
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
    """Seconds of each engine's navigations, and how many times as long onnxruntime-web's WebGPU provider takes."""
    times: dict[str, list[float]] = {engine: [] for engine in ("player", "plan", "webgpu", "wasm")}
    with served_site(folder, Bars()) as made:
        put_work(made.folder, model)
        save(plan_of(model), made.folder / "work" / "model.webrt")
        for visit in range(repeat + 1):
            for engine, found in times.items():
                if engine in made.missing:
                    continue
                page = made.context.new_page()
                page.goto(f"{made.base}page.html?first={engine}")
                page.wait_for_function("globalThis.first", timeout=600_000)
                first = page.evaluate("globalThis.first")
                page.close()
                if "error" in first:
                    raise SystemExit(f"{engine}: {first['error']}")
                if visit:
                    found.append(round(first["answer"] / 1000, 3))
    ratios = {e: _median_ratio(times["webgpu"], times[e]) for e in ("player", "plan") if times[e] and times["webgpu"]}
    missing = {k: str(v) for k, v in made.missing.items()}
    return {"model": model.name, "seconds": times, "webgpu_takes": ratios, "missing": missing}


def _median_ratio(theirs: list[float], ours: list[float]) -> float:
    return round(statistics.median(b / a for a, b in zip(ours, theirs)), 2)


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
