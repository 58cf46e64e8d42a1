"""A large plan in a page, player only: what the browser's processes hold while it loads, as JSON.

    python -m benchmarks.streaming [--megabytes 1024] [--pieces 16]

The plan is made here: so many constants, of which one kernel adds up a number of each. `heap_mb` is the growth of the
page's JavaScript heap with all array buffers, as Chromium tells it; `page_mb` the largest growth of its process in
memory, read from /proc every 20 ms (None elsewhere). The aim is less than 300 MB for a plan of 1 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks import renderers
from webrt.cli import chromium
from webrt.plan import Constant, Dispatch, Kernel, Plan, Slot, ValueInfo, layout_constants
from webrt.planfile import save
from webrt.resources import web_dir

ADD = """struct Params {
  last: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1)
fn main() { out[0] = out[0] + x[p.last]; }
"""
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
import { loadPlan } from "./player.js";
const heap = async () => (await performance.measureUserAgentSpecificMemory()).bytes;
globalThis.load = async () => {
  const begin = performance.now();
  const session = await loadPlan("large.webrt");
  const seconds = (performance.now() - begin) / 1000;
  const { out } = await session.run({ out_in: { data: new Float32Array(4), dims: [4] } });
  globalThis.kept = session;
  return { seconds, value: out.data[0], device_bytes: session.counters.bytes };
};
globalThis.heap = heap;
</script>"""


def plan_of(megabytes: int, pieces: int) -> Plan:
    """A plan with so many constants, each ending with the number 1."""
    nbytes = (megabytes << 20) // pieces
    offsets = layout_constants([nbytes] * pieces)
    constants = tuple(Constant(f"c{i}", "float32", (nbytes // 4,), nbytes, o) for i, o in enumerate(offsets))
    steps = tuple(
        Dispatch(((0, 1, 1, 1),), ((("c", i), "r", 0, 0), (("s", 0), "w", 0, 0)), (nbytes // 4 - 1,), 0)
        for i in range(pieces)
    )
    data = bytes(nbytes - 4) + b"\0\0\x80\x3f"
    given, out = (ValueInfo(n, "float32", (4,), ("s", 0)) for n in ("out_in", "out"))
    kernels = (Kernel("add", ADD, "0"),)
    return Plan([], (given,), (out,), {}, kernels, (Slot(16, "out"),), constants, steps, 256, data=lambda i: data)


class Watch:
    """Samples the memory of all renderer processes that this process started."""

    def __init__(self) -> None:
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._sample, daemon=True)
        self.first = self.most = renderers.held()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def growth(self) -> float | None:
        """MB; None where there is no /proc."""
        return None if self.first is None or self.most is None else round((self.most - self.first) / 1e6, 1)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            now = renderers.held()
            if now is not None:
                self.most = max(self.most or 0, now)


def measure(megabytes: int, pieces: int) -> dict[str, Any]:
    """One load, and one run that checks what arrived."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "site")
        shutil.copytree(web_dir(), folder)
        (folder / "index.html").write_text(PAGE, encoding="utf-8")
        save(plan_of(megabytes, pieces), folder / "large.webrt")
        with chromium.launch() as browser, chromium.serve(folder, isolated=True) as base:
            page = browser.new_page()
            page.goto(base)
            page.wait_for_function("Boolean(globalThis.load)")
            before = page.evaluate("heap()")
            with Watch() as watch:
                made: dict[str, Any] = page.evaluate("load()")
            after = page.evaluate("heap()")
    if made["value"] != pieces:
        raise SystemExit(f"the constants did not arrive: {made['value']} of {pieces}")
    heap = round((after - before) / 1e6, 1)
    return {"megabytes": megabytes, "pieces": pieces, "heap_mb": heap, "page_mb": watch.growth, **made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--pieces", type=int, default=16)
    args = parser.parse_args()
    print(json.dumps(measure(args.megabytes, args.pieces)))


if __name__ == "__main__":
    main()
