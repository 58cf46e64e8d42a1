"""`webrt profile`: where a model's time goes, node by node and kernel by kernel."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from webrt.cli import measuring, options
from webrt.cli.profile_page import page
from webrt.cli.progress import Bars
from webrt.errors import WebrtError, counted
from webrt.files import atomic_file

EXAMPLES = """examples:
  webrt profile model.onnx                             the slowest nodes, and time by kernel
  webrt profile model.onnx --html profile.html         a page with a bar for every node
  webrt profile model.onnx --input feeds.npz -o trace.json    open it in ui.perfetto.dev or chrome://tracing"""

MOST_LINES = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt profile`."""
    parser.add_argument("model", type=Path, metavar="MODEL|PLAN", help="an .onnx or a .webrt file")
    measuring.add_arguments(parser, repeat=5)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="write a Chrome trace")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write a page with bars")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with every step")
    parser.add_argument("--no-peaks", action="store_true", help="do not measure what the adapter can do at most")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt profile` and returns the exit code; errors are raised as WebrtError."""
    made = _profile(args)
    if args.json:
        print(json.dumps(made, indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(made)))
    if args.html:
        with options.writing(str(args.html)), atomic_file(args.html) as file:
            file.write(page(made).encode())
        if not args.json:
            print(f"wrote      {args.html}")
    return 0


def _profile(args: argparse.Namespace) -> dict[str, Any]:
    from webrt.runtime import peaks
    from webrt.runtime.devices import adapter_name
    from webrt.runtime.native import NativeDevice
    from webrt.runtime.profile import trace_text
    from webrt.runtime.report import report

    bars = Bars()
    for path in (args.output, args.html):
        if path is not None and not path.parent.is_dir():
            raise WebrtError(f"cannot write {path}: there is no folder {path.parent}")
    with measuring.opened(args.model, args, bars) as (session, feeds, notes, _):
        session.run(None, feeds)
        session.start_profiling()
        for i in range(args.repeat):
            bars("Running", i, args.repeat)
            session.run(None, feeds)
        bars("Running", args.repeat, args.repeat)
        adapter, runs = adapter_name(session.device), session.profiled_runs
        best = None
        if isinstance(session.device, NativeDevice) and not args.no_peaks:
            bars("Measuring the adapter's peaks", 0, 1)
            best = peaks.measure(session.device)
            bars("Measuring the adapter's peaks", 1, 1)
    if args.output:
        with options.writing(str(args.output)), atomic_file(args.output) as file:
            file.write(trace_text(runs, adapter).encode())
    trace = {"trace": str(args.output)} if args.output else {}
    return {"model": str(args.model), "made_up": notes, **trace, **report(runs, adapter, best)}


def _lines(made: dict[str, Any]) -> Iterable[str]:
    yield f"adapter    {made['adapter']}"
    if made["peaks"]:
        yield f"peaks      {made['peaks']['gflops']:.1f} GFLOP/s in FMAs, {made['peaks']['gbs']:.2f} GB/s copied"
    yield f"clock      {made['clock'] or 'nothing ran on the device'}"
    yield from (f"input      {note}" for note in made["made_up"])
    yield (
        f"run        {made['wall_ms']:.2f} ms, median of {made['runs']}: {made['device_ms']:.2f} in "
        f"{counted(made['dispatches'], 'dispatch')}, {made['span_ms'] - made['device_ms']:.2f} between them, "
        f"{made['host_ms']:.2f} on the CPU provider; {made['fill_ms']:.2f} of it are copies into textures"
    )
    yield f"\n{'ms':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7}  node"
    for row in made["nodes"][:MOST_LINES]:
        name = f"{row['op']} {row['node']}"
        yield f"{_numbers(row)}  {name[:60]:<60} {', '.join(row['kernels'])[:40] or row['provider']}"
    yield from _more(made["nodes"])
    for key, rows in (("operator", made["operators"]), ("kernel", made["kernels"])):
        yield f"\n{'ms':>9} {'share':>6} {'count':>6}  {key}"
        name = "op" if key == "operator" else key
        yield from (f"{r['ms']:>9.3f} {r['share']:>6.1%} {r['count']:>6}  {r[name]}" for r in rows[:MOST_LINES])
        yield from _more(rows)
    if "trace" in made:
        yield f"\nwrote      {made['trace']}"


def _numbers(row: dict[str, Any]) -> str:
    flops, bytes_ = (f"{row[k]:.2f}" if row[k] is not None else "" for k in ("gflops", "gbs"))
    return f"{row['ms']:>9.3f} {row['share']:>6.1%} {flops:>8} {bytes_:>7}"


def _more(rows: list[Any]) -> Iterable[str]:
    if len(rows) > MOST_LINES:
        yield f"           … and {len(rows) - MOST_LINES} more (--html and --json show all)"
