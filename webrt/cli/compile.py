"""`webrt compile`: a model to a plan, without any device."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from webrt.cli import options
from webrt.cli.progress import Bars
from webrt.errors import WebrtError
from webrt.plan import PlacedNode, save

EXAMPLES = """examples:
  webrt compile model.onnx                             writes ./model.webrt
  webrt compile model.onnx -o plan.webrt --onnx optimised.onnx
  webrt compile model.onnx --dim batch=1 --strict      one batch size; no node may run on the CPU
  webrt compile model.onnx --known shape=shape.npy     an input whose elements decide shapes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt compile`."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT",
        help="the plan (.webrt) or the optimised model (.onnx) to write (default: MODEL.webrt, here)",
    )  # fmt: skip
    parser.add_argument("--onnx", type=Path, metavar="OUT.onnx", help="write the optimised model as well")
    options.add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs `webrt compile` and returns the exit code; errors are raised as WebrtError."""
    from webrt.compiler.compile import compile_model

    plan_path, onnx_path = _outputs(args)
    with _arriving(onnx_path) as part, options.naming(args.model):
        plan = compile_model(args.model, options.compile_options(args, Bars(), optimized_path=part))
    if plan_path:
        save(plan, plan_path)
    for path in (plan_path, onnx_path):
        if path:
            print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    print(summary(plan.placement))
    return 0


def summary(placement: Sequence[PlacedNode]) -> str:
    """Who runs how many nodes, on one line."""
    host = sum(p.provider == "cpu" for p in placement)
    free = sum(p.provider != "cpu" and p.how in ("alias", "folded") for p in placement)
    return f"{len(placement)} nodes: {len(placement) - host - free} on WebGPU, {host} on the CPU, {free} need no work"


def _outputs(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Where the plan and the optimised model go. Raises WebrtError where that is unclear or would replace the model."""
    plan_path: Path | None = args.output or Path(args.model.with_suffix(".webrt").name)
    onnx_path: Path | None = args.onnx
    if plan_path and plan_path.suffix == ".onnx":
        if onnx_path:
            raise WebrtError("two .onnx outputs: give the plan's name (.webrt) to -o, or leave --onnx out")
        plan_path, onnx_path = None, plan_path
    for path in (plan_path, onnx_path):
        if path and path.exists() and args.model.exists() and path.samefile(args.model):
            raise WebrtError(f"{path} is the model itself; choose another output")
        if path and not path.parent.is_dir():
            raise WebrtError(f"cannot write {path}: there is no folder {path.parent}")
    return plan_path, onnx_path


@contextlib.contextmanager
def _arriving(path: Path | None) -> Iterator[Path | None]:
    """A name to write to, in a folder beside `path`; the file is renamed to `path` when the block ends well."""
    if path is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        part = Path(folder, path.name)
        yield part
        os.replace(part, path)
