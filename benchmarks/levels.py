"""Each optimiser level, and the highest without each of its passes, against the level "disabled", as JSON.

    python -m benchmarks.levels --models DIR               every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks.levels --models DIR --only NAME

`error` is the largest difference of an output as a fraction of that output's largest magnitude; `worst` names what
has it. What gives the same plan as another is run once; `runs` counts what was run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import numpy as np

from benchmarks.models import Array, Model, add_arguments, chosen, error_of
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.compiler.fuse import PASSES as EXTENDED
from webrt.compiler.normalize import PASSES as BASIC
from webrt.compiler.options import Level
from webrt.errors import NotConstant
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.planfile import dump
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

ON_SLOTS = ("in_place", "parts")


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is compared, by name: options of a compilation."""
    for level in get_args(Level):
        yield level, {"level": level}
    for name in (*(n for n, _ in BASIC), *(n for n, _ in EXTENDED), *ON_SLOTS):
        yield f"all but {name}", {"disabled": (name,)}


def plan_for(model: Model, options: Mapping[str, Any]) -> Plan:
    """A plan for the model's feeds: elements that decide shapes are known, and so are sizes where they decide."""
    try:
        return compile_model(model.path, CompileOptions(**options))
    except NotConstant as e:
        known = {name: model.feeds[name] for name in e.roots}
    try:
        return compile_model(model.path, CompileOptions(**options, known_inputs=known))
    except NotConstant:
        return compile_model(model.path, CompileOptions(**options, known_inputs=dict(model.feeds)))


def run(plan: Plan, model: Model) -> dict[str, Array]:
    """The plan's outputs, by name."""
    feeds = {v.name: model.feeds[v.name] for v in plan.inputs if v.name in model.feeds}
    with Session(plan, NativeDevice(), CpuProvider()) as session:
        return {o.name: np.asarray(a) for o, a in zip(plan.outputs, session.run(None, feeds), strict=True)}


def measure(model: Model) -> dict[str, Any]:
    """One model's row."""
    plain: dict[str, Array] = {}
    errors: dict[str, float] = {}
    known: dict[bytes, float] = {}
    for name, options in variants():
        plan = plan_for(model, options)
        data = dump(plan)
        if data not in known:
            got = run(plan, model)
            plain = plain or got
            known[data] = max(error_of(got[k], plain[k]) for k in plain)
        errors[name] = known[data]
    worst = max(errors, key=errors.__getitem__)
    return {"model": model.name, "runs": len(known), "variants": len(errors), "error": errors[worst], "worst": worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    args = parser.parse_args()
    for model in chosen(args):
        print(json.dumps(measure(model)), flush=True)


if __name__ == "__main__":
    main()
