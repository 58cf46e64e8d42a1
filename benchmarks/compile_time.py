"""How long a model takes to compile, level "all", natively and in a page's worker under Pyodide, as JSON; seconds.

    python -m benchmarks.compile_time MODEL.onnx [--repeat 3] [--native]

`first` is of a process, or a Pyodide, that has compiled nothing before (webrt is imported), `again` are the next ones.
`cpu` is the CPU time of this process, or of Chromium's renderers with the compiler of WebAssembly (None without
/proc); `wall` counts the work of others on the machine too. Chromium has a profile on disk, as people's have.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from benchmarks import renderers
from benchmarks.pages import HERE, served_site
from webrt.cli.progress import Bars
from webrt.compiler.compile import compile_model

PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
const worker = new Worker("compile_time.js", { type: "module" });
const answer = () => new Promise((resolve, reject) => {
  worker.onmessage = ({ data }) => resolve(data);
  worker.onerror = ({ message }) => reject(new Error(message));
});
globalThis.ready = answer();
globalThis.compile = () => { worker.postMessage(null); return answer(); };
</script>"""

Row = dict[str, float | None]


def measure(compile_once: Callable[[], float], cpu: Callable[[], float | None], repeat: int) -> dict[str, Any]:
    """The rows of so many compilations; `compile_once` tells the seconds by the clock."""
    rows: list[Row] = []
    for _ in range(repeat + 1):
        begin = cpu()
        wall = compile_once()
        end = cpu()
        rows.append({"cpu": None if begin is None or end is None else round(end - begin, 3), "wall": round(wall, 3)})
    return {"first": rows[0], "again": rows[1:]}


def natively(model: Path, repeat: int) -> dict[str, Any]:
    """In this process, which should have compiled nothing yet."""
    data = model.read_bytes()

    def once() -> float:
        begin = time.perf_counter()
        compile_model(data)
        return time.perf_counter() - begin

    return measure(once, time.process_time, repeat)


def in_page(model: Path, repeat: int) -> dict[str, Any]:
    """In a worker of a page. Raises WebrtError where there is no Chromium or no Pyodide."""
    with tempfile.TemporaryDirectory() as name, served_site(Path(name), Bars()) as made:
        if "pyodide" in made.missing:
            raise made.missing["pyodide"]
        shutil.copyfile(HERE / "compile_time.js", made.folder / "compile_time.js")
        (made.folder / "compile_time.html").write_text(PAGE, encoding="utf-8")
        (made.folder / "model.onnx").symlink_to(model.resolve())
        page = made.context.new_page()
        page.set_default_timeout(600_000)
        page.goto(f"{made.base}compile_time.html")
        page.evaluate("ready")
        return measure(lambda: float(page.evaluate("compile()")[0]), renderers.cpu_seconds, repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--native", action="store_true", help="without a page")
    args = parser.parse_args()
    nodes = len(onnx.load(args.model, load_external_data=False).graph.node)
    row = {"model": args.model.stem, "nodes": nodes, "native": natively(args.model, args.repeat)}
    if not args.native:
        row["pyodide"] = in_page(args.model, args.repeat)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
