"""webrt beside onnxruntime: the same models and inputs, run in turn in one session; JSON and tables.

    python -m benchmarks                              the public models and the made ones, all rivals
    python -m benchmarks --models DIR                 every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks --only NAME --only-rival PART --repeat 5

In each round every engine runs once, one after another, each after a pause (`--pause`) in which the one before comes to
rest: threads of onnxruntime-web's wasm provider go on spinning for a while after a run, and would take a core from
whoever runs next. A ratio is the median over rounds of the two times of a round.

An engine that has used `--budget` seconds for a model runs no more. Results go to a JSON file after each model; models
that are there already are not run again (`--fresh` runs all).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.make_models import made_models
from benchmarks.models import Model, error_of, folder_models, public_model, table
from benchmarks.pages import page_rivals
from benchmarks.rivals import Opened, Rival, native_rivals
from benchmarks.tables import model_table, summary_table
from webrt.cli.bench import summary
from webrt.cli.progress import Bars
from webrt.errors import WebrtError

OUT = Path(__file__).parent / "results" / "bench.json"
REFERENCE = "onnxruntime CPU"
PAUSE = 0.2
"""Seconds before each run."""

Row = dict[str, Any]


def measure(
    model: Model, rivals: Sequence[Rival], repeat: int, budget: float, folder: Path, bars: Bars, pause: float = PAUSE
) -> Row:
    """A row per engine: facts, times, and the difference from the expected outputs; or `error`, why it did not run."""
    opened: dict[str, Opened] = {}
    rows: dict[str, Row] = {}
    for i, rival in enumerate(rivals):
        bars(f"{model.name}: opening", i, len(rivals))
        try:
            opened[rival.name] = rival.open(model, folder)
        except WebrtError as e:
            rows[rival.name] = {"error": str(e)}
    bars(f"{model.name}: opening", len(rivals), len(rivals))
    times: dict[str, list[float | None]] = {name: [] for name in opened}
    for i in range(repeat):
        bars(f"{model.name}: running", i, repeat)
        for name, engine in opened.items():
            spent = sum(t for t in times[name] if t is not None)
            if spent >= budget or name in rows:
                times[name].append(None)
                continue
            time.sleep(pause)
            try:
                times[name].append(engine.run())
            except WebrtError as e:
                rows[name] = {"error": str(e)}
    bars(f"{model.name}: running", repeat, repeat)
    expected = list(model.expected.values()) or (opened[REFERENCE].outputs if REFERENCE in opened else [])
    for name, engine in opened.items():
        if name not in rows:
            rows[name] = _row(engine, times[name], expected)
        engine.close()
    return {"model": model.name, "engines": {r.name: rows[r.name] for r in rivals}}


def _row(engine: Opened, times: Sequence[float | None], expected: Sequence[Any]) -> Row:
    try:
        more = engine.finish()
    except WebrtError as e:
        more = {"error_at_end": str(e)}
    pairs = list(zip(engine.outputs, expected)) if len(engine.outputs) == len(expected) else []
    difference = max((error_of(np.asarray(got), want) for got, want in pairs), default=None)
    ran = [t for t in times if t is not None]
    return {**engine.facts, **more, **summary(ran), "times": list(times), "difference": difference}


def machine() -> Row:
    """What the figures were measured on."""
    import webrt

    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "")
        return {"cpu": name, "cpus": os.cpu_count(), "system": platform.platform(), "webrt": webrt.__version__}
    return {"cpu": platform.processor(), "cpus": os.cpu_count(), "system": platform.platform()}


def load_results(path: Path, fresh: bool) -> Row:
    """The results so far. Raises WebrtError for a file that is none of ours."""
    if fresh or not path.exists():
        return {"machine": machine(), "models": {}}
    try:
        found: Row = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found["models"], dict):
            raise TypeError("models is no table")
        return found
    except (ValueError, TypeError, KeyError) as e:
        raise WebrtError(f"{path} holds no results ({e}); give --fresh, or another --out") from e


def wanted(rivals: Iterable[Rival], parts: Sequence[str]) -> list[Rival]:
    """The rivals whose names contain one of these parts; all where there is none."""
    every = list(rivals)
    found = [r for r in every if not parts or any(p.lower() in r.name.lower() for p in parts)]
    if not found:
        raise WebrtError(
            f"no rival's name contains {' or '.join(parts)}; there are: {', '.join(r.name for r in every)}"
        )
    return found


def models(args: argparse.Namespace, bars: Bars) -> Iterator[Model]:
    """The models to run. One that cannot be had is named."""
    only = args.only or None
    if args.models:
        yield from (m for m in folder_models(args.models) if only is None or m.name in only)
        return
    for name in table():
        if only is None or name in only:
            try:
                yield public_model(name, bars)
            except WebrtError as e:
                print(f"{name}: {e}")
    yield from (m for m in made_models() if only is None or m.name in only)


def run(args: argparse.Namespace) -> None:
    """Measures what is missing in the results and prints them all."""
    bars = Bars()
    results = load_results(args.out, args.fresh)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        every = list(native_rivals(bars))
        if not args.native:
            every += stack.enter_context(page_rivals(Path(name), bars))
        rivals = wanted(every, args.only_rival)
        for model in models(args, bars):
            done = results["models"].get(model.name, {}).get("engines", {})
            if all(r.name in done for r in rivals) and not args.fresh:
                continue
            row = measure(model, rivals, args.repeat, args.budget, Path(name), bars, args.pause)
            row["measured"] = time.strftime("%Y-%m-%d %H:%M")
            results["models"][model.name] = row
            args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print("\n".join(model_table(row)), flush=True)
    print("\n".join(summary_table(list(results["models"].values()))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, metavar="DIR", help="a folder of .onnx and .npz files")
    parser.add_argument("--only", action="append", metavar="NAME", help="this model only; may be repeated")
    parser.add_argument(
        "--only-rival",
        action="append",
        default=[],
        metavar="PART",
        help="engines whose name contains this; may be repeated",
    )
    parser.add_argument("--native", action="store_true", help="no browser")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds (default: 3)")
    parser.add_argument("--pause", type=float, default=PAUSE, metavar="S", help=f"before each run (default: {PAUSE})")
    parser.add_argument("--budget", type=float, default=40.0, metavar="S", help="seconds for an engine and a model")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"the results (default: {OUT.name})")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    args = parser.parse_args()
    try:
        run(args)
    except WebrtError as e:
        raise SystemExit(f"benchmarks: {e}") from e


if __name__ == "__main__":
    main()
