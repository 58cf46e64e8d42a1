"""Arguments of `webrt compile` that store or compute a model in fewer bits, and the lines that tell what that cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from webrt.cli import options
from webrt.compiler.options import Precision
from webrt.errors import InputError, WebrtError, counted

SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--f16, --weights, --block, --int8, --calibration, --sample."""
    group = parser.add_argument_group("fewer bits", "The model's numbers change; with --sample it is told by how much.")
    group.add_argument("--f16", action="store_true", help="half precision, with f32 islands where it would overflow")
    group.add_argument(
        "--weights", choices=("int8", "int4"), default="", help="matrices of weights in 8 or 4 bits; f32 elsewhere"
    )
    group.add_argument(
        "--block", type=int, default=32, metavar="N", help="weights that share a scale: 16 to 256 (default: 32)"
    )
    group.add_argument(
        "--int8", action="store_true", help="static quantisation of Conv, MatMul and Gemm (needs --sample)"
    )
    group.add_argument(
        "--calibration", choices=("minmax", "entropy"), default="minmax",
        help="how --int8 finds ranges: all that samples had, or without rare extremes (default: minmax)",
    )  # fmt: skip
    group.add_argument(
        "--sample", type=Path, action="append", default=[], metavar="X.npz",
        help="arrays by input name (or in:NAME); may be repeated",
    )  # fmt: skip


def read(args: argparse.Namespace) -> Precision:
    """What the arguments ask for. Raises WebrtError for a sample that cannot be read or that nothing uses."""
    if args.sample and not (args.f16 or args.weights or args.int8):
        raise InputError("--sample has no use without --f16, --weights or --int8")
    samples = tuple(_sample(path) for path in args.sample)
    return Precision(args.f16, args.weights, args.block, args.int8, args.calibration, samples)


def lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The report of `webrt.compiler.precision`, for people."""
    for kind in ("int8", "int4"):
        if "weights" in told.get(kind, {}):
            w = told[kind]
            noun = "matrix" if w["weights"] == 1 else "matrices"
            yield (
                f"{kind}: {w['weights']} weight {noun}, {w['bytes_before'] / 1e6:.1f} -> "
                f"{w['bytes_after'] / 1e6:.1f} MB; the least exact is off by {100 * w['largest_loss']:.2f} % (RMS)"
            )
        elif kind in told:
            by = f"{told[kind]['method']} over {counted(told[kind]['samples'], 'sample')}"
            yield f"{kind}: {counted(told[kind]['nodes'], 'node')} quantised, by {by}"
    if "f16" in told:
        islands = list(told["f16"]["islands"].items())
        yield f"f16: {counted(told['f16']['nodes'], 'node')}; {len(islands)} in f32"
        yield from (f"  {name}: {reason}" for name, reason in islands[:SHOWN])
        if len(islands) > SHOWN:
            yield f"  and {len(islands) - SHOWN} more"
    for name, d in told.get("difference", {}).items():
        off, size = d["largest_difference"], d["largest_value"]
        yield f"{name}: off by at most {off:.3g} where the largest value is {size:.3g}; cosine {d['cosine']:.6f}"


def _sample(path: Path) -> dict[str, Any]:
    """Arrays by input name; of a file that has `in:` names, those only."""
    try:
        arrays = options.read_arrays(path)
    except WebrtError as error:
        raise WebrtError(f"{error.what}; a sample is an .npz file with an array for each input") from error
    marked = {name.removeprefix("in:"): a for name, a in arrays.items() if name.startswith("in:")}
    return marked or arrays
