"""What it costs to make each pipeline that a model's first run needs, as JSON; the slowest first.

    python -m benchmarks.cold_start --models DIR             every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks.cold_start --models DIR --only NAME
    python -m benchmarks.cold_start --adapter swiftshader    the first adapter whose name contains this

Pipelines are made one after another, after one that is not counted. `cpu` is the CPU time of the process in seconds,
which other load on the machine does not change; `wall` is the clock's. `first_run` is the CPU time of the session's
first run less that of its second: some drivers translate a kernel when it first runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.models import Model, add_arguments, chosen
from webrt import wgsl
from webrt.inference import InferenceSession
from webrt.plan import Kernel
from webrt.runtime import devices
from webrt.runtime.device import Layout
from webrt.runtime.native import NativeDevice

SHOWN = 5
WARM = Kernel("warm", "@group(0) @binding(1) var<storage, read_write> out: array<u32>;\n"
              "@compute @workgroup_size(1) fn main() { out[0] = 1u; }", "benchmark")  # fmt: skip


def measure(model: Model, adapter: str | None) -> dict[str, Any]:
    """One model's row: all pipelines together and the slowest ones."""
    device = devices.open_device({} if adapter is None else {"adapter": adapter})
    if not isinstance(device, NativeDevice):
        raise TypeError("pipelines are timed natively")
    device._pipelines.clear()
    options = [{} if adapter is None else {"adapter": adapter}]
    with InferenceSession(str(model.path), None, ["WebGpuExecutionProvider"], options) as session:
        first, second = (_timed(lambda: session.run(None, dict(model.feeds)))[0] for _ in range(2))
        kernels = {wgsl.dialect(k, tint=False): k for k in session.plan.kernels}
        wanted = [(kernels[text], layout) for text, layout in device._pipelines._kept]
    rows = sorted((_making(device, *pair) for pair in wanted), key=lambda row: -row["cpu"])
    return {
        "model": model.name,
        "adapter": device.target.name,
        "pipelines": len(rows),
        "cpu": round(sum(r["cpu"] for r in rows), 3),
        "wall": round(sum(r["wall"] for r in rows), 3),
        "first_run": round(first - second, 3),
        "slowest": rows[:SHOWN],
    }


def _making(device: NativeDevice, kernel: Kernel, layout: Layout) -> dict[str, Any]:
    device._pipelines.clear()
    device.pipelines([(WARM, Layout(False, ("w",)))])
    cpu, wall = _timed(lambda: device.pipelines([(kernel, layout)]))
    return {"kernel": kernel.name, "hash": kernel.hash, "cpu": round(cpu, 3), "wall": round(wall, 3)}


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of CPU time and of the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--adapter", help="a part of the adapter's name")
    args = parser.parse_args()
    for model in chosen(args):
        print(json.dumps(measure(model, args.adapter)), flush=True)


if __name__ == "__main__":
    main()
