"""A profile in numbers: steps, nodes, operators and kernels by time, beside what the adapter can do at most."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from webrt.runtime.peaks import Peaks
from webrt.runtime.profile import DISPATCH, FILL, HOST, Recorded
from webrt.runtime.work import StepWork, describe_step

Row = dict[str, Any]


def report(runs: Sequence[Recorded], adapter: str, peaks: Peaks | None = None) -> Row:
    """The runs of the plan that ran last, as JSON can write it. Times are medians over them, in milliseconds.

    `device_ms` is the sum of a run's device steps, `fill_ms` what copies into textures take of it, `span_ms` the time
    from the first to the last of each submit, `host_ms` the CPU provider's, `wall_ms` the whole run's. A node's `flop`
    and `bytes` are those of its steps; rates are 10⁹ per second. What the plan cannot tell is None.
    """
    runs = [r for r in runs if r.plan is runs[-1].plan]
    steps = _steps(runs)
    total = sum(s["ms"] for s in steps)
    for row in steps:
        row["share"] = row["ms"] / total if total else 0.0
    nodes = _nodes(steps)
    return {
        "adapter": adapter, "clock": runs[-1].clock if runs else "", "runs": len(runs),
        "peaks": asdict(peaks) if peaks else None,
        "wall_ms": _median(r.end - r.begin for r in runs),
        "device_ms": _median(sum(s.end - s.begin for s in r.spans if s.kind != HOST) for r in runs),
        "fill_ms": _median(sum(s.end - s.begin for s in r.spans if s.kind == FILL) for r in runs),
        "span_ms": _median(sum(end - begin for begin, end in r.submits) for r in runs),
        "host_ms": _median(sum(s.end - s.begin for s in r.spans if s.kind == HOST) for r in runs),
        "dispatches": sum(s.kind == DISPATCH for s in runs[-1].spans) if runs else 0,
        "nodes": nodes, "operators": _grouped(nodes, "op"), "kernels": _grouped(steps, "kernel"), "steps": steps,
    }  # fmt: skip


def rates(row: Row) -> Row:
    """`gflops` and `gbs` of a row with ms, flop and bytes."""
    seconds = row["ms"] / 1000
    return {
        "gflops": row["flop"] / seconds / 1e9 if row["flop"] and seconds else None,
        "gbs": row["bytes"] / seconds / 1e9 if row["bytes"] and seconds else None,
    }


def _steps(runs: Sequence[Recorded]) -> list[Row]:
    """A row per step that ran, in order; the commands that are no step's are one row, the last."""
    times: dict[int, list[float]] = {}
    host: set[int] = set()
    for run in runs:
        in_run: dict[int, int] = {}
        for span in run.spans:
            in_run[span.step] = in_run.get(span.step, 0) + span.end - span.begin
            host |= {span.step} if span.kind == HOST else set()
        for step, length in in_run.items():
            times.setdefault(step, []).append(length / 1e6)
    last = runs[-1] if runs else None
    rows = []
    for step in sorted(times, key=lambda s: (s < 0, s)):
        work = describe_step(last.plan, step, last.kernels, last.values) if last else StepWork(step, "", "", "")
        row = {**asdict(work), "provider": "cpu" if step in host else "webgpu", "ms": statistics.median(times[step])}
        row["groups"], row["tensors"] = list(work.groups), list(work.tensors)
        rows.append({**row, **rates(row)})
    return rows


def _nodes(steps: Iterable[Row]) -> list[Row]:
    """Steps by node, the longest first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for s in steps:
        groups.setdefault((s["node"], s["op"]), []).append(s)
    rows = []
    for (node, op), parts in groups.items():
        row = {
            "node": node, "op": op, "provider": parts[0]["provider"],
            "kernels": [_variant(s) for s in parts if s["kernel"]],
            "tensors": parts[-1]["tensors"], "steps": [s["step"] for s in parts],
            "ms": sum(s["ms"] for s in parts), "share": sum(s["share"] for s in parts),
            "flop": _sum(s["flop"] for s in parts if s["flop"] is not None),
            "bytes": _sum(s["bytes"] for s in parts),
        }  # fmt: skip
        rows.append({**row, **rates(row)})
    return sorted(rows, key=lambda r: -r["ms"])


def _grouped(rows: Iterable[Row], key: str) -> list[Row]:
    """Time by the value of a key, the longest first."""
    groups: dict[str, Row] = {}
    for r in rows:
        if r[key]:
            row = groups.setdefault(r[key], {key: r[key], "count": 0, "ms": 0.0, "share": 0.0})
            row["count"] += 1
            row["ms"] += r["ms"]
            row["share"] += r["share"]
    return sorted(groups.values(), key=lambda r: -r["ms"])


def _variant(step: Row) -> str:
    return f"{step['kernel']} ({step['variant']})" if step["variant"] else str(step["kernel"])


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if not found or None in found else sum(v or 0 for v in found)


def _median(values: Iterable[int]) -> float:
    found = list(values)
    return statistics.median(found) / 1e6 if found else 0.0
