"""Dispatches per run against the nodes that onnxruntime executes for the same model, as JSON.

    python -m benchmarks.dispatches --models DIR           every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks.dispatches --models DIR --only NAME
    python -m benchmarks.dispatches --models DIR --update  counts onnxruntime's nodes again (onnxruntime_nodes.toml)

A launch is one dispatch; one that reads what the launch before it wrote for the same node under the same name (a sum in
parts, the second stage of a reduction), or writes more of it (a large operand's next band), is an extra pass of one
algorithm and not counted. All copies of one node count
as one dispatch, and so does a node on the CPU. onnxruntime's nodes are those of its CPU provider at
ORT_ENABLE_EXTENDED that a run executes, without METADATA: those only give bytes another shape.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.models import Model, folder_models, print_ratios
from webrt.compiler.compile import compile_model
from webrt.errors import NotConstant
from webrt.inference import InferenceSession
from webrt.plan import Copy, Dispatch, Place, Plan

NODES = Path(__file__).with_name("onnxruntime_nodes.toml")
METADATA = frozenset({"Constant", "Shape", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_STAGE = re.compile(r"_(part|merge)$")


def count(plan: Plan) -> Counter[str]:
    """`counted`: what stands for dispatches, by the rules above; `dispatches`, `copies` and `host`: all steps."""
    counts: Counter[str] = Counter(s.kind if s.kind != "copy" else "copies" for s in plan.steps)
    counts["dispatches"] = counts.pop("dispatch", 0)
    counts["counted"] = counts["host"] + len({s.node for s in plan.steps if isinstance(s, Copy)})
    last: tuple[int, str] | None = None
    written: set[Place] = set()
    for step in plan.steps:
        if not isinstance(step, Dispatch):
            continue
        name = (step.node, _STAGE.sub("", plan.kernels[step.alternatives[0][0]].name))
        again = name == last and any(place in written for place, *_ in step.bindings)
        counts["counted"] += not again
        last, written = name, {place for place, access, *_ in step.bindings if access == "w"}
    return counts


def executed_nodes(model: Model) -> int:
    """The nodes that onnxruntime's CPU provider runs at ORT_ENABLE_EXTENDED, by its own profile."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(model.feeds))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    kernels = [e for e in events if e["cat"] == "Node" and e["name"].endswith("_kernel_time")]
    nodes = {(e["name"], e["args"]["op_name"], e["args"]["node_index"]) for e in kernels}
    return sum(op not in METADATA for _, op, _ in nodes)


def plan_of(model: Model) -> Plan:
    """The plan that serves the model's feeds; a run finds it where their elements decide shapes."""
    try:
        return compile_model(model.path)
    except NotConstant:
        with InferenceSession(str(model.path)) as session:
            session.run(None, dict(model.feeds))
            return session.plan


def measure(model: Model, nodes: int) -> dict[str, Any]:
    """One model's row."""
    counts = count(plan_of(model))
    return {"model": model.name, **counts, "onnxruntime": nodes, "ratio": round(counts["counted"] / nodes, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="a folder of .onnx and .npz files")
    parser.add_argument("--only", help="this model only")
    parser.add_argument("--update", action="store_true", help="write onnxruntime_nodes.toml")
    args = parser.parse_args()
    models = [m for m in folder_models(args.models) if args.only in (None, m.name)]
    known = tomllib.loads(NODES.read_text(encoding="utf-8"))["nodes"] if NODES.exists() else {}
    if args.update:
        known |= {m.name: executed_nodes(m) for m in models}
        lines = [f"{name} = {n}" for name, n in sorted(known.items())]
        head = "# Nodes that onnxruntime executes, by benchmarks/dispatches.py.\n\n[nodes]\n"
        NODES.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print_ratios(measure(m, known[m.name]) for m in models if m.name in known)


if __name__ == "__main__":
    main()
