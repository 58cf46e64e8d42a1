"""`webrt inspect`: what is in a model or a plan, and what would run where."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webrt import parts
from webrt.cli import options
from webrt.cli.progress import Bars
from webrt.cli.slot_bytes import held, slot_bytes
from webrt.errors import counted
from webrt.plan import Dispatch, Plan, ValueInfo
from webrt.runtime.footprint import footprint
from webrt.runtime.sizes import size_text
from webrt.subplans import Branch, Loop, walk
from webrt.target import Target

if TYPE_CHECKING:
    from webrt.compiler.options import PassRecord

EXAMPLES = """examples:
  webrt inspect model.onnx                       compiles it (without any device) and shows the result
  webrt inspect model.webrt
  webrt inspect model.onnx --dim batch=1 --json | jq '.placement[] | select(.provider == "cpu")'"""

MOST_LINES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt inspect`."""
    parser.add_argument("model", type=Path, metavar="MODEL|PLAN", help="an .onnx or a .webrt file")
    parser.add_argument("--json", action="store_true", help="as JSON, with every node and kernel")
    parser.add_argument(
        "--passes", action="store_true", help="what each pass did: nodes before and after, and its time"
    )
    options.add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs `webrt inspect` and returns the exit code; errors are raised as WebrtError."""
    report = _of_plan(args) if options.is_plan(args.model) else _of_model(args)
    print(json.dumps(report, indent=1, ensure_ascii=False) if args.json else "\n".join(_lines(report)))
    return 0


def _bounds(plan: Plan) -> dict[str, list[int]]:
    """The lowest and the highest size of free dims that are held between two."""
    given = plan.meta.get("bounds")
    found = given.items() if isinstance(given, dict) else ()
    return {str(name): pair for name, pair in found if isinstance(pair, list) and len(pair) == 2}


def describe(plan: Plan, before: Counter[str] | None = None) -> dict[str, Any]:
    """The report on a plan, as JSON can write it; `before` counts the operators of the model as it was written."""
    every = list(walk(plan.steps))
    launches = Counter(s.alternatives[0][0] for s in every if isinstance(s, Dispatch))
    return {
        "producer": " ".join(str(plan.meta.get(k) or "") for k in ("producer_name", "producer_version")).strip(),
        "opsets": plan.meta.get("opsets", {}),
        "target": plan.target.get("name", ""),
        "inputs": [_value(plan, v) for v in plan.inputs],
        "outputs": [_value(plan, v) for v in plan.outputs],
        "known": {name: entry["text"] for name, entry in plan.meta.get("known", {}).items()},
        "overridable": plan.meta.get("overridable", []),
        "dims": sorted({d for v in plan.inputs for d in _sizes(plan, v) or () if isinstance(d, str)}),
        "bounds": _bounds(plan),
        "operators": {"before": None if before is None else dict(before.most_common()), "after": _operators(plan)},
        "placement": [dict(p.__dict__) for p in plan.placement],
        "steps": dict(Counter(s.kind for s in every)),
        "kernels": [{"name": k.name, "hash": k.hash, "dispatches": launches[i]} for i, k in enumerate(plan.kernels)],
        "slots": [
            {"label": s.label, "bytes": slot_bytes(t.dims, s.size), "holds": holds}
            for t in _tables(plan)
            for s, holds in zip(t.slots, held(t))
        ],
        "constants": {"count": len(plan.constants), "bytes": sum(c.nbytes for c in plan.constants)},
        "params_bytes": plan.params_size,
        "memory": _memory(plan),
    }


def _memory(plan: Plan) -> dict[str, int | None]:
    """Bytes that a device of the plan's target holds, and the least that would do: constants and the tensors that are
    needed at one time; None where sizes are free, the least also where branches or loops have slots of their own."""
    constants, live = sum(c.nbytes for c in plan.constants), plan.meta.get("live_bytes")
    held = footprint(plan, Target.from_json(plan.target)) if isinstance(live, int) else None
    if held is None or not isinstance(live, int):
        return {"peak": None, "lower_bound": None}
    nested = any(isinstance(s, (Branch, Loop)) for s in plan.steps)
    return {"peak": held.total, "lower_bound": None if nested else constants + live}


def _tables(plan: Plan) -> list[Plan]:
    """The plan and those of the bodies of its steps."""
    return [plan, *(plan.within(b) for s in walk(plan.steps) if isinstance(s, (Branch, Loop)) for b in s.bodies)]


def _of_plan(args: argparse.Namespace) -> dict[str, Any]:
    return {"file": str(args.model), **describe(options.load_plan(args.model))}


def _of_model(args: argparse.Namespace) -> dict[str, Any]:
    parts.need("webrt.compiler", "compiling a model")
    from webrt.compiler import frontend
    from webrt.compiler.compile import compile_model

    passes: list[PassRecord] = []
    with options.compiling(args.model):
        model = frontend.read_model(args.model)
        plan = compile_model(model, options.compile_options(args, Bars(), passes=passes.append))
    before = Counter(f"{n.domain}:{n.op_type}" if n.domain else n.op_type for n in model.graph.node)
    report = {"file": str(args.model), **describe(plan, before)}
    return {**report, "passes": [p.__dict__ for p in passes]} if args.passes else report


def _operators(plan: Plan) -> dict[str, int]:
    return dict(Counter(p.op for p in plan.placement).most_common())


def _value(plan: Plan, info: ValueInfo) -> dict[str, Any]:
    return {"name": info.name, "type": info.dtype or "no tensor", "shape": _sizes(plan, info)}


def _sizes(plan: Plan, info: ValueInfo) -> list[int | str] | None:
    return None if info.shape is None else [size_text(plan.dims, d) for d in info.shape]


def _lines(report: dict[str, Any]) -> Iterable[str]:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in report["opsets"].items())
    yield f"{report['file']}  ({', '.join(filter(None, (report['producer'], f'opset {opsets}')))})"
    for title in ("inputs", "outputs"):
        yield f"\n{title}"
        yield from (f"  {v['name']}: {v['type']}{_shape(v['shape'])}{_fixed(report, v, title)}" for v in report[title])
    if report["dims"]:
        bounds = {name: f" ({low} to {high})" for name, (low, high) in report["bounds"].items()}
        yield f"\nfree dims\n  {', '.join(name + bounds.get(name, '') for name in report['dims'])}"
    yield from _operator_lines(report["operators"]["before"], report["operators"]["after"])
    yield from _pass_lines(report.get("passes", []))
    yield from _placement_lines(report["placement"])
    yield from _memory_lines(report)


def _fixed(report: dict[str, Any], value: dict[str, Any], title: str) -> str:
    text = report["known"].get(value["name"]) if title == "inputs" else None
    return "" if text is None else f" (fixed{f' to {text}' if text else ''})"


def _shape(sizes: list[int | str] | None) -> str:
    return " of unknown rank" if sizes is None else f"[{', '.join(map(str, sizes))}]"


def _operator_lines(before: dict[str, int] | None, after: dict[str, int]) -> Iterable[str]:
    if before is None:
        yield f"\noperators: {counted(sum(after.values()), 'node')}"
        yield from (f"  {op:<32} {n:>5}" for op, n in after.items())
        return
    yield f"\noperators: {counted(sum(before.values()), 'node')} before, {sum(after.values())} after"
    yield from (f"  {op:<32} {before.get(op, 0):>5} → {after.get(op, 0):<5}" for op in before | after)


def _pass_lines(passes: list[dict[str, Any]]) -> Iterable[str]:
    if passes:
        yield "\npasses: nodes before and after (of the fusions: kernels)"
    for p in passes:
        change = f"{p['before']:>5} → {p['after']:<5}" if p["before"] != p["after"] else f"{p['before']:>5}        "
        yield f"  {p['name']:<32} {change} {1000 * p['seconds']:>8.1f} ms"


def _placement_lines(placement: list[dict[str, Any]]) -> Iterable[str]:
    yield "\nplacement"
    groups: dict[tuple[str, str, str], Counter[str]] = {}
    for p in placement:
        reason = p["reason"] if p["provider"] == "cpu" or p["bytes"] else ""
        groups.setdefault((p["provider"], p["how"], reason), Counter())[p["op"]] += 1
    for (provider, how, reason), ops in groups.items():
        names = ", ".join(f"{op} ({n})" if n > 1 else op for op, n in ops.most_common())
        yield f"  {ops.total():>5} {provider}, {how}{f' ({reason})' if reason else ''}: {_short(names)}"


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _first(lines: Iterable[str]) -> Iterable[str]:
    every = list(lines)
    yield from every[:MOST_LINES]
    if len(every) > MOST_LINES:
        yield f"  … and {len(every) - MOST_LINES} more (--json shows all)"


def _memory_lines(report: dict[str, Any]) -> Iterable[str]:
    kernels, slots = report["kernels"], report["slots"]
    yield f"\nsteps\n  {', '.join(f'{n} {kind}' for kind, n in report['steps'].items()) or 'none'}"
    yield f"\nkernels: {len(kernels)}"
    by_use = sorted(kernels, key=lambda k: -k["dispatches"])
    yield from _first(f"  {k['name']:<32} {k['hash'][:12]}  {counted(k['dispatches'], 'dispatch')}" for k in by_use)
    known = [s["bytes"] for s in slots if isinstance(s["bytes"], int)]
    free = len(slots) - len(known)
    yield f"\nslots: {len(slots)}, {sum(known)} bytes" + (
        f" and {free} whose size depends on free dims" if free else ""
    )
    yield from _first(
        f"  {i:>4} {_short(str(s['bytes']), 60)} bytes: {_short(', '.join(s['holds']), 100)}"
        for i, s in enumerate(slots)
    )
    yield f"\nconstants: {report['constants']['count']}, {report['constants']['bytes']} bytes"
    peak, least = report["memory"]["peak"], report["memory"]["lower_bound"]
    if peak is None:
        yield "\nmemory: depends on free dims; fix them with --dim NAME=SIZE"
    else:
        bound = "" if least is None else f"; the least that would do is {least / 1e6:.2f} MB"
        yield f"\nmemory: {peak / 1e6:.2f} MB at its peak{bound}"
