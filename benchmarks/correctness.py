"""Runs models natively and prints, as JSON, placements, times and the distance from the expected outputs.

python -m benchmarks.correctness                     the public models of models.toml
python -m benchmarks.correctness --models DIR        every DIR/NAME.onnx with DIR/NAME.npz beside it
python -m benchmarks.correctness --only NAME         one of them
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

import numpy as np

from benchmarks.models import Model, add_arguments, chosen, cosine, error_of
from webrt.inference import InferenceSession


def measure(model: Model, providers: list[str]) -> dict[str, Any]:
    """One model's row."""
    start = time.perf_counter()
    session = InferenceSession(str(model.path), providers=providers)
    created = time.perf_counter()
    session.run(None, dict(model.feeds))
    first = time.perf_counter()
    outputs = session.run(None, dict(model.feeds))
    second = time.perf_counter()
    names = [o.name for o in session.get_outputs()]
    expected = dict(model.expected) or _onnxruntime(model)
    placement = session.get_placement()
    row = {
        "model": model.name,
        "providers": session.get_providers(),
        "nodes": dict(Counter(f"{p.provider}:{p.how}" for p in placement)),
        "cpu_nodes": dict(Counter(f"{p.op}: {p.reason}" for p in placement if p.provider == "cpu")),
        "seconds": {
            "session": round(created - start, 3),
            "first_run": round(first - created, 3),
            "second_run": round(second - first, 4),
        },
        "outputs": {
            n: {
                "error": error_of(np.asarray(o), expected[n]),
                "cosine": round(cosine(np.asarray(o), expected[n]), 6),
            }
            for n, o in zip(names, outputs, strict=True)
        },
    }
    session.close()
    return row


def _onnxruntime(model: Model) -> dict[str, Any]:
    import onnxruntime as ort

    session = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(model.feeds)), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--cpu", action="store_true", help="the CPU provider alone")
    args = parser.parse_args()
    providers = ["CPUExecutionProvider"] if args.cpu else ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    for model in chosen(args):
        print(json.dumps(measure(model, providers)), flush=True)


if __name__ == "__main__":
    main()
