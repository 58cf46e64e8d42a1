"""A page without Python: from navigation to the first answer of a `.webrt`, in headless Chromium, as JSON.

    python -m benchmarks.first_answer MODEL.onnx [--inputs MODEL.npz] [--repeat 3]

`beyond` is what remains of the first answer after pipeline creation and the time from submit to done, in seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from webrt import dtypes
from webrt.cli import chromium
from webrt.compiler.compile import compile_model
from webrt.plan import save
from webrt.resources import web_dir


def prepare(folder: Path, model: Path, inputs: Path | None) -> None:
    """Puts the page, the plan and the feeds into `folder`."""
    (folder / "web").symlink_to(web_dir())
    (folder / "index.html").write_bytes(Path(__file__).with_suffix(".html").read_bytes())
    plan = compile_model(model)
    save(plan, folder / "model.webrt")
    with np.load(inputs or model.with_suffix(".npz")) as data:
        arrays = {k.removeprefix("in:"): data[k] for k in data.files if not k.startswith(("out:", "noopt:"))}
    feeds: dict[str, dict[str, Any]] = {}
    for i, (name, array) in enumerate(arrays.items()):
        (folder / f"{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        kind = dtypes.BY_NAME[str(array.dtype)].js
        feeds[name] = {"array": kind, "dims": list(array.shape), "file": f"{i}.bin"}
    (folder / "feeds.json").write_text(json.dumps(feeds), encoding="utf-8")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--inputs", type=Path, help="an .npz of feeds (default: beside the model)")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), args.model, args.inputs)
        print(json.dumps({"model": args.model.stem, "runs": measure(Path(name), args.repeat)}, indent=1))


if __name__ == "__main__":
    main()
