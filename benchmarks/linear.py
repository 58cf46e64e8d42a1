"""How the time of a run grows with the batch and with the pixels, and with the number of runs before; prints JSON.

    python -m benchmarks.linear                        all models, and 2 000 runs of a small plan
    python -m benchmarks.linear --only cnn --runs 0    one model alone
    python -m benchmarks.linear --adapter swiftshader  the first adapter whose name contains this

One plan with free sizes serves all of them, and in each round every size has one turn. Of a model's best times
`fixed_ms` and `each_ms` are the line through them (least squares) and `r2` how well it fits; `exponent` and `last` are
slopes of log time over log size, through all sizes and between the two largest: 1 is linear. `mpixels` are millions of
pixels. Of the small plan's runs `each_us` is what one more earlier run adds by the line through the times of all, in
microseconds, and `of_median` that times the runs, over the median time: near 0 is flat. Other work on the machine makes
that waver; `of_fresh` are medians of the times over those of a new session of the plan, in turn with it, ten times on
the way: near 1 is flat. Times are of the process's CPU on a software adapter, and wall times on a GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from benchmarks.fits import exponents, line
from benchmarks.kernels import Timed
from benchmarks.make_models import Net, made_cnn
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.runtime.device import Range
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

BATCHES = (1, 2, 3, 4, 6)
SIDES = (64, 96, 128, 160, 192)
SIDE = 96
"""Pixels of a side where the batch grows."""
POINTS, TURNS, WARM = 10, 40, 20
"""Of the small plan: how often it is compared with a fresh session, by how many pairs of runs, after how many."""


@dataclass(frozen=True)
class Kind:
    """A model of free sizes, and the shape of its input at a batch and a side of the image."""

    make: Callable[[], onnx.ModelProto]
    shape: Callable[[int, int], tuple[int, ...]]


def _conv() -> onnx.ModelProto:
    """Two 3×3 convolutions of 32 channels."""
    net = Net(0)
    inner = net.op("Relu", net.op("Conv", "x", net.weight(32, 32, 3, 3), pads=[1] * 4))
    net.rename(net.op("Conv", inner, net.weight(32, 32, 3, 3), pads=[1] * 4), "y")
    shape: list[int | str] = ["batch", 32, "height", "width"]
    return net.model({"x": shape}, {"y": shape})


def _gemm() -> onnx.ModelProto:
    """A layer of 64 to 256 to 64 of each pixel."""
    net = Net(0)
    wide = net.op("Relu", net.linear("x", 64, 256))
    net.rename(net.linear(wide, 256, 64), "y")
    shape: list[int | str] = ["batch", "pixels", 64]
    return net.model({"x": shape}, {"y": shape})


KINDS: dict[str, Kind] = {
    "cnn": Kind(lambda: made_cnn("height", "width"), lambda batch, side: (batch, 3, side, side)),
    "conv": Kind(_conv, lambda batch, side: (batch, 32, side, side)),
    "gemm": Kind(_gemm, lambda batch, side: (batch, side * side, 64)),
}


def growth(device: NativeDevice, kind: Kind, points: Sequence[tuple[int, int]], rounds: int) -> list[float]:
    """The best time of a run at each (batch, side), in seconds; inputs and outputs stay on the device."""
    plan = compile_model(kind.make(), CompileOptions(target=device.target))
    with Session(plan, device) as session:
        name = plan.inputs[0].name
        random = np.random.default_rng(0)
        fed = [
            {name: Tensor.from_numpy(random.standard_normal(kind.shape(*p)).astype(np.float32), device)} for p in points
        ]
        times = [Timed() for _ in points]
        for feeds in reversed(fed):
            _run(session, feeds)
        for _ in range(rounds):
            for feeds, timed in zip(fed, times, strict=True):
                timed.run(lambda feeds=feeds: _run(session, feeds))  # type: ignore[misc]
    return [_clock(device, t) for t in times]


def flat(device: NativeDevice, runs: int) -> dict[str, Any]:
    """How the time of a small plan's run depends on the number of runs before it."""
    plan = compile_model(_gemm(), CompileOptions(target=device.target))
    feeds = {"x": np.ones((1, 16, 64), np.float32)}
    clock = time.process_time if device.target.kind == "software" else time.perf_counter
    seconds: list[float] = []

    def timed(session: Session) -> float:
        begin = clock()
        session.run(None, feeds)
        return clock() - begin

    with Session(plan, device) as session:
        for _ in range(WARM):
            session.run(None, feeds)
        before, ratios = _resident(), []
        for _ in range(POINTS):
            seconds += [timed(session) for _ in range(max(1, runs // POINTS - TURNS))]
            with Session(plan, device) as fresh:
                for _ in range(WARM):
                    fresh.run(None, feeds)
                pairs = [(timed(session), timed(fresh)) for _ in range(TURNS)]
            seconds += [own for own, _ in pairs]
            ratios.append(round(statistics.median(own / other for own, other in pairs), 3))
        grown = _resident() - before
    return {**slope(seconds), "of_fresh": ratios, "memory_grown_mb": round(grown, 2)}


def slope(seconds: Sequence[float]) -> dict[str, Any]:
    """The line through the times of runs over their number; times above three medians, when something else ran, are
    left out."""
    median = statistics.median(seconds)
    kept = [(i, s) for i, s in enumerate(seconds) if s <= 3 * median]
    fit = line(*zip(*kept))
    fifth = max(1, len(seconds) // 5)
    return {
        "runs": len(seconds), "left_out": len(seconds) - len(kept), "median_us": round(median * 1e6, 1),
        "each_us": round(fit.each * 1e6, 5), "of_median": round(fit.each * len(seconds) / median, 3),
        "r2": round(fit.r2, 3), "first_fifth_us": round(statistics.median(seconds[:fifth]) * 1e6, 1),
        "last_fifth_us": round(statistics.median(seconds[-fifth:]) * 1e6, 1),
    }  # fmt: skip


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> dict[str, Any]:
    """The fits of times at sizes, and the points."""
    fit, (exponent, last) = line(sizes, seconds), exponents(sizes, seconds)
    return {
        "fixed_ms": round(fit.fixed * 1e3, 3), "each_ms": round(fit.each * 1e3, 3), "r2": round(fit.r2, 4),
        "exponent": round(exponent, 2), "last": round(last, 2),
        "ms": {f"{size:g}": round(s * 1e3, 2) for size, s in zip(sizes, seconds, strict=True)},
    }  # fmt: skip


def _run(session: Session, feeds: dict[str, Tensor]) -> None:
    (out,) = session.run(None, feeds, "device")
    out.device.read([Range(out.buffer, 0, 4)])


def _clock(device: NativeDevice, timed: Timed) -> float:
    return timed.cpu if device.target.kind == "software" else timed.wall


def _resident() -> float:
    """Most memory that the process had so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 2)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--adapter", help="a part of the adapter's name")
    options.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="these models alone")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--runs", type=int, default=2000, help="of the small plan; 0: none")
    args = options.parse_args()
    device = NativeDevice(adapter=args.adapter)
    for name in args.only:
        head = {"adapter": device.target.name, "model": name}
        seconds = growth(device, KINDS[name], [(batch, SIDE) for batch in BATCHES], args.rounds)
        print(json.dumps({**head, "over": "batch", "side": SIDE, **fitted(BATCHES, seconds)}), flush=True)
        seconds = growth(device, KINDS[name], [(1, side) for side in SIDES], args.rounds)
        pixels = [side * side / 1e6 for side in SIDES]
        print(json.dumps({**head, "over": "mpixels", "batch": 1, **fitted(pixels, seconds)}), flush=True)
    if args.runs:
        print(json.dumps({"adapter": device.target.name, "over": "earlier runs", **flat(device, args.runs)}))
    device.close()


if __name__ == "__main__":
    main()
