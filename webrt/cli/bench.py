"""`webrt bench`: sessions, first and warm runs, memory and traffic of models on this machine."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webrt.cli import measuring, options
from webrt.cli.progress import Bars
from webrt.errors import WebrtError

if TYPE_CHECKING:
    from webrt.inference import InferenceSession

EXAMPLES = """examples:
  webrt bench model.onnx                               random inputs, 10 warm runs
  webrt bench a.onnx b.webrt --repeat 30 --json
  webrt bench model.onnx --input feeds.npz --dim batch=8"""

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt bench`."""
    parser.add_argument("model", type=Path, nargs="+", metavar="MODEL|PLAN", help=".onnx or .webrt files")
    measuring.add_arguments(parser, repeat=10)
    parser.add_argument("--json", action="store_true", help="as JSON, with every time")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt bench` and returns the exit code. Models that fail are told after the rows of the others, the last as
    the error that is raised (WebrtError or OSError)."""
    bars, rows, failed = Bars(), [], []
    try:
        for path in args.model:
            try:
                rows.append(_measure(path, args, bars))
            except (WebrtError, OSError) as error:
                failed.append(error)
    finally:
        if rows:
            print(json.dumps(rows, indent=1) if args.json else "\n".join(_table(rows)), flush=True)
    for other in failed[:-1]:
        options.tell("bench", other)
    if failed:
        raise failed[-1]
    return 0


def timed(runs: int, once: Callable[[], object], progress: Callable[[int], None] = lambda done: None) -> list[float]:
    """Seconds of each of so many calls; `progress` is told how many are done."""
    times = []
    for i in range(runs):
        progress(i)
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    progress(runs)
    return times


def summary(times: Sequence[float]) -> Row:
    """Median, 95th percentile and the times themselves, in seconds."""
    ordered = sorted(times)
    late = ordered[min(len(ordered) - 1, -(-len(ordered) * 95 // 100) - 1)]
    return {"median": statistics.median(times), "p95": late, "times": list(times)}


def measure_session(
    session: InferenceSession, feeds: Mapping[str, Any], repeat: int, progress: Callable[[int], None]
) -> Row:
    """First and warm runs, what one warm run did, and the device memory that the session holds, in bytes."""
    once = lambda: session.run(None, feeds)  # noqa: E731
    (first,) = timed(1, once)
    warm = timed(repeat, once, progress)
    did = session.last_run
    return {
        "first_run": first, **summary(warm),
        "device_bytes": session.device.counters.bytes,
        "dispatches": did.dispatches, "copies": did.copies, "host_nodes": did.host_nodes, "submits": did.submits,
        "bytes_up": did.up, "bytes_down": did.down, "buffers_made": did.buffers,
    }  # fmt: skip


def _measure(path: Path, args: argparse.Namespace, bars: Bars) -> Row:
    from webrt.runtime.devices import adapter_name

    with measuring.opened(path, args, bars) as (session, feeds, notes, took):
        what = f"Running {path.name}"
        row = measure_session(session, feeds, args.repeat, lambda done: bars(what, done, args.repeat))
        return {"model": str(path), "adapter": adapter_name(session.device), "session": took, **row, "made_up": notes}


def _table(rows: Sequence[Row]) -> Iterable[str]:
    for adapter in dict.fromkeys(r["adapter"] for r in rows):
        yield f"adapter  {adapter}"
    yield from (f"input    {note}" for note in dict.fromkeys(note for r in rows for note in r["made_up"]))
    width = max(len(Path(r["model"]).name) for r in rows)
    heads = ("session", "first run", "median", "p95", "device MB", "dispatches", "CPU nodes", "kB up", "kB down")
    yield f"\n{'model':<{width}}  {'  '.join(f'{h:>10}' for h in heads)}"
    for r in rows:
        cells = [f"{1000 * r[k]:.1f} ms" for k in ("session", "first_run", "median", "p95")]
        cells += [f"{r['device_bytes'] / 1e6:.1f}", str(r["dispatches"]), str(r["host_nodes"])]
        cells += [f"{r[k] / 1e3:.1f}" for k in ("bytes_up", "bytes_down")]
        yield f"{Path(r['model']).name:<{width}}  {'  '.join(f'{c:>10}' for c in cells)}"
