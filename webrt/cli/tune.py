"""`webrt tune`: which of the kernels that do the same are the fastest on this machine's adapter."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from webrt.cli import options
from webrt.cli.progress import Bars
from webrt.cli.run import open_session, positive
from webrt.errors import InputError, NoAdapter, WebrtError, counted

if TYPE_CHECKING:
    from webrt.runtime.tuning import Table, Tuning

EXAMPLES = """examples:
  webrt tune model.onnx                                writes model.tuning.json
  webrt tune model.onnx --dim batch=4 --budget 60
  webrt tune plan.webrt --into plan.webrt              the plan carries it, for this adapter
  webrt tune model.onnx -o user-cache                  in the user's cache folder, for all models

In Python: InferenceSession(model, providers=[("WebGpuExecutionProvider", {"tuning_file": "model.tuning.json"})]).
A file that is there is used, and what it lacks is added."""

MOST_LINES = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt tune`."""
    parser.add_argument("model", type=Path, metavar="MODEL|PLAN", help="an .onnx or a .webrt file")
    options.add_input_arguments(parser)
    parser.add_argument(
        "--budget", type=_seconds, default=10.0, metavar="SECONDS", help="measure for so long at most (default: 10)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.json",
        help="where it is kept (default: MODEL.tuning.json, beside the model, unless there is --into)",
    )  # fmt: skip
    parser.add_argument("--into", type=Path, metavar="PLAN.webrt", help="an existing plan that is to carry it")
    parser.add_argument(
        "--repeat", type=positive, default=5, metavar="N", help="compare so many runs before and after (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt tune` and returns the exit code; errors are raised as WebrtError."""
    output = args.output or (None if args.into else str(args.model.with_suffix(".tuning.json")))
    if args.into and not args.into.exists():
        raise InputError(f"--into {args.into}: there is no such plan; --into names an existing one")
    carrier = options.load_plan(args.into) if args.into else None
    made, tuning = _tune(args, output)
    if carrier is not None:
        from webrt import planfile

        others = tuple(t for t in carrier.tuning if t.get("adapter") != tuning.table.adapter)
        with options.writing(str(args.into)):
            planfile.save(replace(carrier, tuning=(*others, tuning.table.to_json())), args.into)
        made["wrote"].append(str(args.into))
    print(json.dumps(made, indent=1) if args.json else "\n".join(_lines(made)))
    return 0


def _tune(args: argparse.Namespace, output: str | None) -> tuple[dict[str, Any], Tuning]:
    from webrt.cli import feeds
    from webrt.runtime.devices import adapter_name

    _need_device()
    bars = Bars()
    asked = {"tuning": "1", "tuning_budget": args.budget, **({"tuning_file": output} if output else {})}
    with options.naming(args.model), open_session(args.model, (), strict=False) as plain:
        given, notes = feeds.make_feeds(
            plain.get_inputs(), args.input, options.once("dim", args.dim), args.random_seed, plain.fixed_inputs
        )
        plain.run(None, given)
        with open_session(args.model, (), strict=False, webgpu=asked, progress=_progress(bars)) as tuned:
            tuned.run(None, given)
            tuning = tuned.tuning
            if tuning is None:
                raise WebrtError("the session keeps no measurements")
            others = any(entry.chosen != kernels[0] for (kernels, _), entry in tuning.table.entries.items())
            times: list[tuple[Times, Times]] = []
            for i in range(args.repeat if others else 0):
                bars("Comparing", i, args.repeat)
                times.append((_timed(lambda: plain.run(None, given)), _timed(lambda: tuned.run(None, given))))
                bars("Comparing", i + 1, args.repeat)
            adapter = adapter_name(tuned.device)
    wrote = [str(tuning.path)] if tuning.path else []
    groups = [_row(tuning.table, *job) for job in tuning.jobs]
    return {
        "model": str(args.model), "adapter": adapter, "made_up": notes, "budget": args.budget,
        "budget_left": round(max(0.0, tuning.budget), 3), "known": len(tuning.table.entries),
        "groups": sorted(groups, key=lambda g: g["chosen_us"] * g["count"] - g["default_us"] * g["count"]),
        **(_compared(times) if times else {}), "wrote": wrote,
    }, tuning  # fmt: skip


def _need_device() -> None:
    """Raises NoAdapter before any work where there is no device to measure."""
    from webrt.runtime.devices import open_device

    try:
        open_device({})
    except NoAdapter as e:
        raise NoAdapter(f"tuning measures a WebGPU device, and there is none here: {e.what}") from e


def _progress(bars: Bars) -> Any:
    return lambda stage, done, total: bars("Measuring kernels", done, total) if stage == "tuning" else None


class Times(NamedTuple):
    """Seconds of a run, and of the process's CPU time in it."""

    wall: float
    cpu: float


def _timed(once: Callable[[], object]) -> Times:
    start, cpu = time.perf_counter(), time.process_time()
    once()
    return Times(time.perf_counter() - start, max(time.process_time() - cpu, 1e-9))


def _compared(times: list[tuple[Times, Times]]) -> dict[str, float]:
    """Runs with the default kernels, and with the chosen ones."""
    before, after = (statistics.median(t[k].wall for t in times) for k in (0, 1))
    return {
        "before_ms": 1e3 * before, "after_ms": 1e3 * after,
        "ratio": statistics.median(a.wall / b.wall for a, b in times),
        "cpu_ratio": statistics.median(a.cpu / b.cpu for a, b in times),
    }  # fmt: skip


def _row(table: Table, key: Any, count: int, node: str) -> dict[str, Any]:
    """A group of dispatches: how many they are, the first one's node, and what was measured."""
    entry = table.entries[key]
    at = key[0].index(entry.chosen)
    return {
        "node": node, "count": count, "kernels": list(entry.names), "us": list(entry.us), "chosen": at,
        "default_us": entry.us[0], "chosen_us": entry.us[at],
    }  # fmt: skip


def _lines(made: dict[str, Any]) -> Iterable[str]:
    groups = made["groups"]
    changed = [g for g in groups if g["chosen"]]
    yield f"adapter    {made['adapter']}"
    yield from (f"input      {note}" for note in made["made_up"])
    spent = made["budget"] - made["budget_left"]
    yield (
        f"measured   {counted(len(groups), 'group')} of dispatches in {spent:.1f} s; "
        f"{len(changed)} of them get another kernel than the default"
    )
    if not made["budget_left"]:
        yield "           the budget was used up: run it again to go on, or give --budget"
    if changed:
        yield f"\n{'default µs':>11} {'chosen µs':>11} {'times':>6} {'count':>6}  node"
    for g in changed[:MOST_LINES]:
        numbers = (
            f"{g['default_us']:>11.1f} {g['chosen_us']:>11.1f} {g['default_us'] / max(g['chosen_us'], 1e-3):>6.2f}"
        )
        yield f"{numbers} {g['count']:>6}  {g['node'][:50]:<50} {g['kernels'][g['chosen']][:30]} ({g['chosen'] + 1}.)"
    if len(changed) > MOST_LINES:
        yield f"           … and {len(changed) - MOST_LINES} more (--json shows all)"
    if "ratio" in made:
        ratios = f"{made['ratio']:.2f} times as fast, {made['cpu_ratio']:.2f} times by CPU time"
        yield f"\nrun        {made['before_ms']:.2f} ms before, {made['after_ms']:.2f} ms after: {ratios}"
    else:
        yield "\nrun        as before: no kernel changed"
    yield from (f"wrote      {name}" for name in made["wrote"])


def _seconds(text: str) -> float:
    from webrt.errors import InputError
    from webrt.runtime.tuning import seconds

    try:
        return seconds(text)
    except InputError as e:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0") from e
