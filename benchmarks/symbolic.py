"""Warm runs of a plan with free sizes against its twin for the sizes of the sample, in turn, as JSON.

python -m benchmarks.symbolic --models DIR [--only NAME] [--repeat 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory import fixed_plan
from benchmarks.models import Model, add_arguments, chosen, print_ratios
from webrt.host import CpuProvider
from webrt.inference import InferenceSession
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session


def measure(model: Model, repeat: int) -> dict[str, Any]:
    """One model's row: medians in seconds, and the median of the pairs' ratios (above 1: free sizes are slower)."""
    device = NativeDevice()
    plan = fixed_plan(model, device)
    fed = {v.name for v in plan.inputs}
    feeds = {name: a for name, a in model.feeds.items() if name in fed}
    with Session(plan, device, CpuProvider()) as fixed, InferenceSession(str(model.path)) as free:
        runs = [lambda: free.run(None, dict(model.feeds)), lambda: fixed.run(None, feeds)]
        for run in runs * 2:
            run()
        pairs = [[_seconds(run) for run in runs] for _ in range(repeat)]
    return {
        "model": model.name,
        "free": round(statistics.median(p[0] for p in pairs), 4),
        "fixed": round(statistics.median(p[1] for p in pairs), 4),
        "ratio": round(statistics.median(p[0] / p[1] for p in pairs), 3),
    }


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--repeat", type=int, default=9, help="pairs of runs (default: 9)")
    args = parser.parse_args()
    print_ratios(measure(model, args.repeat) for model in chosen(args))


if __name__ == "__main__":
    main()
