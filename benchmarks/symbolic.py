"""Warm runs of a plan with free sizes against its twin for the sizes of the sample, in turn, as JSON.

python -m benchmarks.symbolic --models DIR [--only NAME] [--repeat 9]

`ratio` is of wall times. `cpu_ratio` is of the process's CPU times, which on a software adapter are those of kernels
too and depend less on what else the machine does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory import sizes_of
from benchmarks.models import Model, add_arguments, chosen, print_ratios
from webrt.inference import InferenceSession
from webrt.options import SessionOptions


def measure(model: Model, repeat: int) -> dict[str, Any]:
    """One model's row: medians in seconds of wall and of CPU time, and of the pairs' ratios (above 1: free sizes are
    slower)."""
    options = SessionOptions()
    for name, size in sizes_of(model).items():
        options.add_free_dimension_override_by_name(name, size)
    path, feeds = str(model.path), dict(model.feeds)
    with InferenceSession(path) as free, InferenceSession(path, options) as fixed:
        runs: list[Callable[[], Any]] = [lambda: free.run(None, feeds), lambda: fixed.run(None, feeds)]
        for run in runs * 2:
            run()
        pairs = [[_seconds(run) for run in runs] for _ in range(repeat)]
    row: dict[str, Any] = {"model": model.name}
    for clock, of in enumerate(("", "cpu_")):
        row |= {
            f"{of}free": round(statistics.median(free[clock] for free, _ in pairs), 4),
            f"{of}fixed": round(statistics.median(fixed[clock] for _, fixed in pairs), 4),
            f"{of}ratio": round(statistics.median(free[clock] / fixed[clock] for free, fixed in pairs), 3),
        }
    return row


def _seconds(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU time of a run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--repeat", type=int, default=9, help="pairs of runs (default: 9)")
    args = parser.parse_args()
    print_ratios((measure(model, args.repeat) for model in chosen(args)), "ratio", "cpu_ratio")


if __name__ == "__main__":
    main()
