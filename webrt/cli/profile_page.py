"""A profile as one HTML file: no script or style from elsewhere, and every name of the model escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

Row = dict[str, Any]

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")

STYLE = """
:root { --back: #fff; --text: #1d2430; --soft: #687385; --line: #e3e7ed; --track: #eef1f5; --bar: #4269d0; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181f; --text: #e6eaf0; --soft: #98a3b3; --line: #2a313c; --track: #222934; --bar: #7d9bf0; }
}
* { box-sizing: border-box; }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 1180px; padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 34px 0 10px; }
p { color: var(--soft); margin: 4px 0; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0 6px; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 9px 14px; min-width: 130px; }
.card b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 12px; }
.strip { display: flex; height: 30px; border-radius: 6px; overflow: hidden; background: var(--track); }
.strip i { display: block; min-width: 0; border-right: 1px solid var(--back); }
.strip i:hover { filter: brightness(1.2); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0; color: var(--soft); font-size: 12px; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
table { border-collapse: collapse; width: 100%; }
th { text-align: right; font-weight: 500; font-size: 12px; color: var(--soft); padding: 4px 8px; white-space: nowrap; }
td { border-top: 1px solid var(--line); padding: 5px 8px; text-align: right; vertical-align: top;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; padding-left: 0; }
td.bar { width: 30%; min-width: 140px; }
.track { background: var(--track); border-radius: 4px; height: 12px; margin-top: 4px; }
.track b { display: block; height: 100%; border-radius: 4px; }
.rate { position: relative; padding-bottom: 9px; min-width: 84px; }
.rate .track { position: absolute; left: 8px; right: 8px; bottom: 4px; height: 3px; margin: 0; }
small { color: var(--soft); }
details > div { color: var(--soft); font: 12px/1.6 ui-monospace, monospace; padding: 4px 0 6px 16px; }
summary { cursor: pointer; }
summary::marker { color: var(--soft); }
input { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: 6px;
  padding: 5px 10px; width: 260px; max-width: 100%; margin-bottom: 8px; }
@media (max-width: 40rem) {
  body { padding: 16px 14px 40px; }
  .card { flex: 1 1 40%; min-width: 0; }
  tr { display: grid; grid-template-columns: 5fr 4fr 4fr 5fr 5fr; }
  tr[hidden] { display: none; }
  th:first-child, td:first-child { grid-column: 1 / -1; }
  th { padding: 2px 4px; white-space: normal; }
  td { padding: 4px; }
  td + td { border-top: 0; }
  td.bar { width: auto; min-width: 0; padding-left: 0; }
  .rate { min-width: 0; padding-bottom: 12px; }
  .rate .track { left: 4px; right: 4px; }
}
"""

SCRIPT = """
const box = document.querySelector("input");
box.addEventListener("input", () => {
  const wanted = box.value.toLowerCase();
  for (const row of document.querySelectorAll("tr[data-text]")) row.hidden = !row.dataset.text.includes(wanted);
});
"""


def page(report: Row) -> str:
    """The page of a report (runtime/report.py) with the model's file name as `model`."""
    colours = {r["op"]: COLOURS[min(i, len(COLOURS) - 1)] for i, r in enumerate(report["operators"])}
    title = escape(report["model"])
    parts = [
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}: profile</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<style>{STYLE}</style>\n<h1>{title}</h1>",
        *_head(report),
        "<h2>One run, in order</h2>", _strip(report["steps"], colours), _legend(report["operators"], colours),
        "<h2>Nodes, the slowest first</h2>",
        '<input type="search" placeholder="Filter by node, operator or kernel" aria-label="Filter">',
        _nodes(report, colours),
        "<h2>Kernels</h2>", _groups(report["kernels"], "kernel"),
        "<h2>Operators</h2>", _groups(report["operators"], "op"),
        f"<script>{SCRIPT}</script>\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _head(report: Row) -> Iterable[str]:
    peaks = report["peaks"]
    yield f"<p>{escape(report['adapter'])} · times by {escape(report['clock'] or 'nothing ran on the device')}</p>"
    yield from (f"<p>input {escape(note)}</p>" for note in report["made_up"])
    between = report["span_ms"] - report["device_ms"]
    cards = [
        (_ms(report["wall_ms"]), f"a run, median of {report['runs']}"),
        (_ms(report["device_ms"]), f"in {report['dispatches']} dispatches"),
        (_ms(report["fill_ms"]), "of it copies into textures"),
        (_ms(between), "between them on the device"),
        (_ms(report["host_ms"]), "on the CPU provider"),
    ]
    if peaks:
        cards.append((f"{peaks['gflops']:.1f} GFLOP/s", "the adapter's peak, FMAs"))
        cards.append((f"{peaks['gbs']:.2f} GB/s", "the adapter's peak, copy kernel"))
    made = "".join(f'<div class="card"><b>{value}</b><span>{escape(what)}</span></div>' for value, what in cards)
    yield f'<div class="cards">{made}</div>'
    if report["clock"].startswith("CPU"):
        yield "<p>The device has no timestamp queries: each time includes a submit and a wait.</p>"


def _strip(steps: list[Row], colours: dict[str, str]) -> str:
    made = "".join(
        f'<i style="flex:{s["ms"]:.6f} 0 0;background:{colours.get(s["op"], COLOURS[-1])}" '
        f'title="{escape(_label(s), quote=True)}"></i>'
        for s in steps
    )
    return f'<div class="strip">{made}</div>'


def _legend(operators: list[Row], colours: dict[str, str]) -> str:
    made = "".join(
        f'<span><span class="dot" style="background:{colours[r["op"]]}"></span>'
        f"{escape(r['op'])} {r['share']:.1%}</span>"
        for r in operators[: len(COLOURS)]
    )
    return f'<div class="legend">{made}</div>'


def _nodes(report: Row, colours: dict[str, str]) -> str:
    longest = max((r["ms"] for r in report["nodes"]), default=0.0)
    peaks = report["peaks"] or {"gflops": 0, "gbs": 0}
    rows = "".join(_node(r, longest, peaks, colours.get(r["op"], COLOURS[-1])) for r in report["nodes"])
    heads = "".join(f"<th>{h}</th>" for h in ("node", "", "ms", "share", "GFLOP/s", "GB/s"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _node(row: Row, longest: float, peaks: Row, colour: str) -> str:
    kernels = ", ".join(row["kernels"]) or row["provider"]
    text = escape(f"{row['op']} {row['node']} {kernels}".lower(), quote=True)
    more = [f"kernels {kernels}", *row["tensors"]]
    if row["flop"] is not None:
        more.append(f"{row['flop']:,} floating-point operations")
    if row["bytes"] is not None:
        more.append(f"{row['bytes']:,} bytes read and written")
    inner = "<br>".join(escape(line) for line in more)
    return (
        f'<tr data-text="{text}"><td><details><summary><span class="dot" style="background:{colour}"></span>'
        f"{escape(row['op'])} <small>{escape(row['node'])}</small></summary><div>{inner}</div></details></td>"
        f'<td class="bar">{_track(row["ms"], longest, colour)}</td><td>{row["ms"]:.3f}</td><td>{row["share"]:.1%}</td>'
        f"{_rate(row['gflops'], peaks['gflops'])}{_rate(row['gbs'], peaks['gbs'])}</tr>"
    )


def _groups(rows: list[Row], key: str) -> str:
    longest = max((r["ms"] for r in rows), default=0.0)
    made = "".join(
        f'<tr><td>{escape(r[key])}</td><td class="bar">{_track(r["ms"], longest, "var(--bar)")}</td>'
        f"<td>{r['ms']:.3f}</td><td>{r['share']:.1%}</td><td>{r['count']}</td></tr>"
        for r in rows
    )
    heads = "".join(f"<th>{h}</th>" for h in ("", "", "ms", "share", "count"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{made}</tbody></table>"


def _track(value: float, most: float, colour: str) -> str:
    width = 100 * min(1.0, value / most) if most else 0
    return f'<div class="track"><b style="width:{width:.2f}%;background:{colour}"></b></div>'


def _rate(value: float | None, peak: float) -> str:
    if value is None:
        return "<td></td>"
    share = f" <small>{value / peak:.0%}</small>" if peak else ""
    bar = _track(value, peak, "var(--bar)") if peak else ""
    return f'<td class="rate">{value:.2f}{share}{bar}</td>'


def _label(step: Row) -> str:
    lines = [f"{step['op']} {step['node']}".strip(), f"{step['ms']:.3f} ms, {step['share']:.1%}", step["kernel"]]
    return "\n".join([*(line for line in lines if line), *step["tensors"]])


def _ms(value: float) -> str:
    return f"{value:.2f} ms"
