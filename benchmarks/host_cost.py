"""What a run costs the host per dispatch: from run() to the return of submit, on a plan of empty kernels, as JSON.

    python -m benchmarks.host_cost [--dispatches 500] [--repeat 50] [--native | --page]

`fixed` and `each` are the two numbers of a straight line through the medians at an eighth of the dispatches and at all,
in microseconds. Natively also of the thread's CPU time, which other work on the machine does not change, and beside it
those of the same dispatches recorded by wgpu-py's own methods, in turn. Aims: 8 µs a dispatch natively on lavapipe
and 3 in player.js, and 1 ms fixed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from webrt.cli import chromium
from webrt.plan import Dispatch, Kernel, Plan, Slot, ValueInfo
from webrt.planfile import save
from webrt.resources import web_dir
from webrt.runtime.encode import encode, through_wgpu_py
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

SLOTS = 8
EMPTY = """struct Params {
  n: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1)
fn main() { if (p.n == %du) { out[0] = x[0]; } }
"""
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
import { loadPlan } from "./player.js";
let submitted = 0;
const submit = GPUQueue.prototype.submit;
GPUQueue.prototype.submit = function (...args) {
  submit.apply(this, args);
  submitted = performance.now();
};
globalThis.measure = async (file, repeat) => {
  const session = await loadPlan(file);
  const times = [];
  for (let i = 0; i < repeat; i++) {
    const begin = performance.now();
    await session.run({ x: { data: new Float32Array(4), dims: [4] } });
    times.push(1000 * (submitted - begin));
  }
  session.release();
  return times;
};
</script>"""


def plan_of(dispatches: int) -> Plan:
    """A plan of so many dispatches of two kernels that do nothing, each over slots of its own choice."""
    kernels = tuple(Kernel(f"empty_{i}", EMPTY % (i + 1), f"{i}") for i in range(2))
    steps = tuple(
        Dispatch(
            ((i % 2, 1, 1, 1),), ((("s", i % SLOTS), "r", 0, 0), (("s", (i + 1) % SLOTS), "w", 0, 0)), (0,), 0
        )
        for i in range(dispatches)
    )  # fmt: skip
    x = ValueInfo("x", "float32", (4,), ("s", 0))
    y = ValueInfo("y", "float32", (4,), ("s", 1))
    slots = tuple(Slot(16, f"slot {i}") for i in range(SLOTS))
    return Plan([], (x,), (y,), {}, kernels, slots, (), steps, params_size=256)


def native(plan: Plan, repeat: int) -> tuple[dict[str, list[float]], str]:
    """Microseconds of each run, by clock: "wall", "cpu" (of the thread that runs), and, in turn with these, "bare" and
    "bare_cpu" of the same dispatches recorded and submitted by wgpu-py's own methods; and the adapter."""
    device = NativeDevice()
    queue, done, seen = device._device.queue, [0.0, 0.0], [((), ())]
    times: dict[str, list[float]] = {"wall": [], "cpu": [], "bare": [], "bare_cpu": []}
    submit_bare, submit = queue.submit, device.submit

    def noted(commands: Any) -> None:
        submit_bare(commands)
        done[:] = time.perf_counter(), time.thread_time()

    def kept(commands: Any, reads: Any, **options: Any) -> Any:
        seen[0] = commands, reads
        return submit(commands, reads, **options)

    def timed(work: Callable[[], Any], wall: str, cpu: str) -> None:
        begin = time.perf_counter(), time.thread_time()
        work()
        times[wall].append(1e6 * (done[0] - begin[0]))
        times[cpu].append(1e6 * (done[1] - begin[1]))

    def bare() -> None:
        encoder = device._device.create_command_encoder()
        encode(encoder, seen[0][0], through_wgpu_py)
        queue.submit([encoder.finish()])

    queue.submit = noted
    device.submit = kept  # type: ignore[method-assign, assignment]
    with Session(plan, device) as session:
        for _ in range(repeat):
            timed(lambda: session.run(None, {"x": np.zeros(4, np.float32)}), "wall", "cpu")
            timed(bare, "bare", "bare_cpu")
            submit((), seen[0][1])  # waits
    name = device.target.name
    queue.submit = submit_bare
    device.close()
    return times, name


def in_page(plans: dict[int, Plan], repeat: int) -> dict[int, list[float]]:
    """Microseconds of each run in Chromium, by number of dispatches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "site")
        shutil.copytree(web_dir(), folder)
        (folder / "index.html").write_text(PAGE, encoding="utf-8")
        for n, plan in plans.items():
            save(plan, folder / f"{n}.webrt")
        with chromium.launch() as browser, chromium.serve(folder, isolated=True) as base:
            page = browser.new_page()
            page.goto(base)
            page.wait_for_function("Boolean(globalThis.measure)")
            made = {n: page.evaluate("([f, n]) => measure(f, n)", [f"{n}.webrt", repeat]) for n in plans}
    return made


def line(times: dict[int, list[float]]) -> dict[str, Any]:
    """The line through the medians, without the first runs, at the fewest and the most dispatches."""
    medians = {n: statistics.median(t[3:]) for n, t in times.items()}
    (few, low), (many, high) = min(medians.items()), max(medians.items())
    each = (high - low) / (many - few)
    return {
        "dispatches": many, "run_us": round(high, 1), "each_us": round(each, 2), "fixed_us": round(low - few * each, 1),
        "best_us": round(min(times[many]), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dispatches", type=int, default=500)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--native", action="store_true", help="natively only")
    parser.add_argument("--page", action="store_true", help="in a page only")
    args = parser.parse_args()
    plans = {n: plan_of(n) for n in (max(1, args.dispatches // 8), args.dispatches)}
    if not args.page:
        made = {n: native(plan, args.repeat) for n, plan in plans.items()}
        adapter = next(name for _, name in made.values())
        clocks = ("wall", "cpu", "bare", "bare_cpu")
        lines = {clock: line({n: t[clock] for n, (t, _) in made.items()}) for clock in clocks}
        print(json.dumps({"where": "native", "adapter": adapter, **lines}))
    if not args.native:
        print(json.dumps({"where": "player.js, Chromium, SwiftShader", **line(in_page(plans, args.repeat))}))


if __name__ == "__main__":
    main()
