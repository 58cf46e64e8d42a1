"""Results as text: a table per model, and ratios over all models beside the aims."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Pair(NamedTuple):
    """webrt's engine, a rival's, and the geometric mean of (rival's time / webrt's) that is aimed at."""

    ours: str
    theirs: str
    aim: float


PAIRS = (
    Pair("webrt player", "onnxruntime-web WebGPU", 20.0),
    Pair("webrt player", "onnxruntime-web wasm", 0.5),
    Pair("webrt Pyodide", "onnxruntime-web WebGPU", 20.0),
    Pair("webrt native SwiftShader", "onnxruntime-webgpu SwiftShader", 15.0),
    Pair("webrt native", "onnxruntime CPU", 0.0),
)


def model_table(row: Row) -> Iterable[str]:
    """The engines of one model."""
    heads = ("session", "first run", "median", "p95", "device MB", "dispatches", "kB up", "kB down", "difference")
    yield f"\n{row['model']:<31}{''.join(f'{h:>12}' for h in heads)}"
    for name, engine in row["engines"].items():
        if "error" in engine:
            yield f"  {name:<30} did not run: {engine['error']}"
            continue
        cells = [_seconds(engine.get(k)) for k in ("session", "first_run", "median", "p95")]
        cells += [_scaled(engine.get("device_bytes"), 1e6), str(engine.get("dispatches", ""))]
        cells += [_scaled(engine.get(k), 1e3) for k in ("bytes_up", "bytes_down")]
        cells.append("" if engine["difference"] is None else f"{engine['difference']:.1e}")
        yield f"  {name:<29}{''.join(f'{c:>12}' for c in cells)}"
    yield from _peaks(row)


def ratio(row: Row, pair: Pair) -> float | None:
    """How many times as long the rival takes: the median over the rounds in which both ran."""
    ours, theirs = (row["engines"].get(n, {}).get("times") or [] for n in (pair.ours, pair.theirs))
    found = [b / a for a, b in zip(ours, theirs) if a and b]
    return statistics.median(found) if found else None


def summary_table(rows: Sequence[Row]) -> Iterable[str]:
    """The ratio of each pair for each model, their geometric mean, and what is aimed at."""
    yield "\nHow many times as long the rival takes (a number above 1: webrt is faster)"
    width = max((len(r["model"]) for r in rows), default=10)
    for pair in PAIRS:
        found = {r["model"]: value for r in rows if (value := ratio(r, pair)) is not None}
        if not found:
            continue
        yield f"\n{pair.ours}  against  {pair.theirs}"
        yield from (f"  {model:<{width}} {value:>8.2f} ×" for model, value in found.items())
        mean = statistics.geometric_mean(found.values())
        aim = f"   (aim: {pair.aim:g})" if pair.aim else ""
        yield f"  {'geometric mean':<{width}} {mean:>8.2f} ×{aim}, least {min(found.values()):.2f} ×"


def _peaks(row: Row) -> Iterable[str]:
    for name, engine in row["engines"].items():
        if engine.get("peaks"):
            gflops, gbs = engine["peaks"]["gflops"], engine["peaks"]["gbs"]
            yield f"  {name}: {engine['adapter']}, peaks {gflops:.1f} GFLOP/s (FMA), {gbs:.2f} GB/s (copy kernel)"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def _scaled(value: float | None, by: float) -> str:
    return "" if value is None else f"{value / by:.1f}"
