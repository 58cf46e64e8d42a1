"""`webrt compile`: a model to a plan, without any device."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from webrt.cli import options, precision
from webrt.cli.progress import Bars
from webrt.cli.run import summary
from webrt.errors import WebrtError
from webrt.files import atomic_file
from webrt.plan import PlacedNode
from webrt.planfile import save

EXAMPLES = """examples:
  webrt compile model.onnx                             writes ./model.webrt
  webrt compile model.onnx -o plan.webrt --onnx optimised.onnx
  webrt compile model.onnx --dim batch=1 --strict      one batch size; no node may run on the CPU
  webrt compile model.onnx --weights int4              weights of 4 bits; --f16 and --int8 are other ways
  webrt compile model.onnx --int8 --sample a.npz --sample b.npz -o small.onnx
  webrt compile silero_vad.onnx --known sr=16000       an input whose elements decide shapes; or a .npy file
  webrt compile stranger.onnx --require-sandbox        only where every layer of the sandbox is on"""
Made: TypeAlias = tuple[Sequence[PlacedNode], Mapping[str, Any]]
DUMP = "WEBRT_DUMP"
NOT_CONFINED = "Compiling without a sandbox: a flaw that a hostile model finds has all the rights of this account."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt compile`."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT",
        help="the plan (.webrt) or the optimised model (.onnx) to write (default: MODEL.webrt, here)",
    )  # fmt: skip
    parser.add_argument("--onnx", type=Path, metavar="OUT.onnx", help="write the optimised model as well")
    parser.add_argument(
        "--onnx-data", default="", metavar="NAME",
        help="put the optimised model's large tensors into this file beside it (needs --no-sandbox)",
    )  # fmt: skip
    options.add_compile_arguments(parser)
    precision.add_arguments(parser)
    parser.add_argument(
        "--sandbox", action=argparse.BooleanOptionalAction, default=None,
        help="compile in a process that can only compute (default on Linux; elsewhere it lacks layers, see "
        "`webrt sandbox-status`). Without it, a flaw that a hostile model finds has all the rights of this account",
    )  # fmt: skip
    parser.add_argument("--require-sandbox", action="store_true", help="a layer that is missing is an error")
    parser.add_argument(
        "--memory-limit", type=_positive, metavar="GB",
        help="of the sandboxed process (default: 4.3); without a sandbox, of the model's data and what "
        "is computed of it, by predicted sizes (default: three quarters of the machine's)",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", type=_positive, metavar="SECONDS", help="(default: 300, none without a sandbox)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs `webrt compile` and returns the exit code; errors are raised as WebrtError."""
    plan_path, onnx_path = _outputs(args)
    confined = args.require_sandbox or (sys.platform == "linux" if args.sandbox is None else args.sandbox)
    if args.require_sandbox and args.sandbox is False:
        raise WebrtError("--require-sandbox and --no-sandbox contradict each other")
    if args.onnx_data and (confined or onnx_path is None):
        raise WebrtError(
            "--onnx-data is for an optimised model (--onnx, or -o OUT.onnx) that is compiled with --no-sandbox"
        )
    if confined and os.environ.get(DUMP):
        print(f"{DUMP} is not heeded in the sandbox, where nothing can be written: add --no-sandbox", file=sys.stderr)
    with options.compiling(args.model):
        placement, told = (_confined if confined else _here)(args, plan_path, onnx_path)
    data = onnx_path.with_name(args.onnx_data) if onnx_path and args.onnx_data else None
    for path in (plan_path, onnx_path, data):
        if path and path.exists():
            print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    print(summary(placement))
    for line in precision.lines(told):
        print(line)
    return 0


def _confined(args: argparse.Namespace, plan_path: Path | None, onnx_path: Path | None) -> Made:
    from webrt import sandbox

    standard = sandbox.Limits()
    limits = sandbox.Limits(
        memory=int(args.memory_limit * 1e9) if args.memory_limit else standard.memory,
        seconds=args.time_limit or standard.seconds,
    )
    places = {what: path for what, path in (("plan", plan_path), ("onnx", onnx_path)) if path}
    made = sandbox.compile(
        args.model, options.compile_options(args, Bars(), precision=precision.read(args)), wants=tuple(places),
        limits=limits, require=args.require_sandbox,
    )  # fmt: skip
    with options.writing(" or ".join(map(str, places.values()))):
        for what, path in places.items():
            with atomic_file(path) as out:
                out.write(getattr(made, what))
    return made.placement, made.precision


def _here(args: argparse.Namespace, plan_path: Path | None, onnx_path: Path | None) -> Made:
    from webrt.compiler.compile import compile_model

    print(NOT_CONFINED, file=sys.stderr)
    with _arriving(onnx_path) as part:
        wanted = options.compile_options(
            args, Bars(), optimized_path=part, optimized_data=args.onnx_data, precision=precision.read(args),
            seconds=args.time_limit, memory=int(args.memory_limit * 1e9) if args.memory_limit else None,
        )  # fmt: skip
        plan = compile_model(args.model, wanted)
    if plan_path:
        with options.writing(str(plan_path)):
            save(plan, plan_path)
    return plan.placement, plan.meta.get("precision", {})


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _outputs(args: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Where the plan and the optimised model go. Raises WebrtError where that is unclear or would replace the model."""
    plan_path: Path | None = args.output or Path(args.model.with_suffix(".webrt").name)
    onnx_path: Path | None = args.onnx
    if plan_path and plan_path.suffix == ".onnx":
        if onnx_path:
            raise WebrtError("two .onnx outputs: give the plan's name (.webrt) to -o, or leave --onnx out")
        plan_path, onnx_path = None, plan_path
    for path, known in ((plan_path, (".webrt", ".onnx")), (onnx_path, (".onnx",))):
        if path and path.suffix not in known:
            raise WebrtError(f"cannot write {path}: a plan's name ends in .webrt, an optimised model's in .onnx")
    if args.model.is_file() and options.is_plan(args.model):
        raise WebrtError(
            f"{args.model} is a plan already: run it (`webrt run {args.model}`) or look at it (`webrt inspect "
            f"{args.model}`); compile the .onnx that it was made of for other options"
        )
    for path in (plan_path, onnx_path):
        if path and path.exists() and args.model.exists() and path.samefile(args.model):
            raise WebrtError(f"{path} is the model itself; choose another output")
        if path and not path.parent.is_dir():
            raise WebrtError(f"cannot write {path}: there is no folder {path.parent}")
    return plan_path, onnx_path


@contextlib.contextmanager
def _arriving(path: Path | None) -> Iterator[Path | None]:
    """A name to write to, in a folder beside `path`; what is there is moved beside `path`, and the file to `path`, when
    the block ends well."""
    if path is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        part = Path(folder, path.name)
        yield part
        for other in Path(folder).iterdir():
            if other != part:
                os.replace(other, path.with_name(other.name))
        os.replace(part, path)
