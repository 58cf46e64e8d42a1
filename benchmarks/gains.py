"""What a pass of the compiler gains: models compiled without it and with it, run in turn, as JSON lines.

    python -m benchmarks.gains fuse_transposes                     the cases below, made for that pass
    python -m benchmarks.gains fuse_epilogues --models DIR         every DIR/NAME.onnx with DIR/NAME.npz beside it
    python -m benchmarks.gains fuse_norms --models DIR --only NAME --repeat 15

`with` and `without` are medians in milliseconds of the process's CPU time for a run, which on a software adapter is
that of kernels too; `ratio` is the median over the pairs of with / without (below 1: the pass gains). A model that the
pass leaves as it is has null there. The names of passes are those of `webrt inspect --passes`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.levels import plan_for
from benchmarks.models import Model, add_arguments, chosen, print_ratios, seconds_of
from webrt.host import CpuProvider
from webrt.planfile import dump
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

CASES: dict[str, dict[str, str]] = {
    "fuse_transposes": {
        "left_512x512": "float[512,512] x, float[512,512] y => t = Transpose<perm=[1,0]>(x) z = MatMul(t, y)",
        "left_384x196": "float[384,196] x, float[384,384] y => t = Transpose<perm=[1,0]>(x) z = MatMul(t, y)",
        "right_64_rows": "float[64,1024] x, float[1024,1024] y => t = Transpose<perm=[1,0]>(y) z = MatMul(x, t)",
        "right_1_row": "float[1,1024] x, float[1024,1024] y => t = Transpose<perm=[1,0]>(y) z = MatMul(x, t)",
        "heads_12x197x64": "float[197,12,64] x, float[197,12,64] y => q = Transpose<perm=[1,0,2]>(x) "
        "k = Transpose<perm=[1,2,0]>(y) z = MatMul(q, k)",
    },
}
"""For a pass, by name: a graph's inputs and nodes as onnx's parser reads them; `z` is the output."""


def cases(name: str, folder: Path) -> Iterator[Model]:
    """The models of CASES for a pass, written to `folder`; none where there are none."""
    random = np.random.default_rng(0)
    for case, text in CASES.get(name, {}).items():
        inputs, nodes = text.split(" => ")
        graph = f"case ({inputs}) => (float z) {{ {nodes} }}"
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
        path = folder / f"{case}.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
        yield Model(case, path, {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()})


def measure(model: Model, name: str, repeat: int) -> dict[str, Any]:
    """One model's row. Raises OptionError for a pass that there is not."""
    plans = [plan_for(model, options) for options in ({}, {"disabled": (name,)})]
    row: dict[str, Any] = {"model": model.name, "with": None, "without": None, "ratio": None}
    if dump(plans[0]) == dump(plans[1]):
        return row
    with (
        Session(plans[0], NativeDevice(), CpuProvider()) as within,
        Session(plans[1], NativeDevice(), CpuProvider()) as without,
    ):
        runs = [partial(session.run, None, dict(model.feeds)) for session in (within, without)]
        for run in runs:
            run()
        pairs = [[seconds_of(run) for run in runs] for _ in range(repeat)]
    return row | {
        "with": round(1e3 * statistics.median(a for a, _ in pairs), 2),
        "without": round(1e3 * statistics.median(b for _, b in pairs), 2),
        "ratio": round(statistics.median(a / b for a, b in pairs), 3),
    }


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="PASS", help="the pass")
    add_arguments(parser)
    parser.add_argument("--repeat", type=int, default=9, metavar="N", help="pairs of runs (default: 9)")
    args = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        made = args.models is None and args.name in CASES
        own = (m for m in cases(args.name, Path(folder)) if args.only in (None, m.name))
        print_ratios((measure(m, args.name, args.repeat) for m in (own if made else chosen(args))), "ratio")


if __name__ == "__main__":
    main()
