"""`webrt run`: a model or a plan, once or several times, on this machine."""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webrt.cli import options
from webrt.cli.progress import Bars
from webrt.errors import InputError, ShapeError, WebrtError, counted
from webrt.files import atomic_file
from webrt.options import CPU, WEBGPU
from webrt.plan import PlacedNode

if TYPE_CHECKING:
    from webrt.inference import InferenceSession

EXAMPLES = """examples:
  webrt run model.onnx                                 random inputs
  webrt run model.onnx --input x=x.npy --output y.npz
  webrt run model.onnx --input ids='[[1, 2, 3]]' --dim batch=1 --repeat 10
  webrt run plan.webrt --input feeds.npz --provider webgpu"""
_PROVIDERS = {"webgpu": WEBGPU, "cpu": CPU}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt run`."""
    parser.add_argument("model", type=Path, metavar="MODEL|PLAN", help="an .onnx or a .webrt file")
    options.add_input_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="DIR|FILE.npz", help="write the outputs, one .npy each in DIR")
    parser.add_argument(
        "--provider", choices=options.PROVIDERS, action="append", default=[], help="in order of preference"
    )
    parser.add_argument("--strict", action="store_true", help="a node on the CPU is an error")
    parser.add_argument("--repeat", type=positive, default=1, metavar="N", help="run so many times (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt run` and returns the exit code; errors are raised as WebrtError."""
    from webrt.cli import feeds

    bars = Bars()
    _check_output(args.output)
    with options.naming(args.model):
        what = f"Loading {args.model.name}"
        bars(what, 0, 1)
        start = time.perf_counter()
        report = lambda _, done, total: bars(what, min(done, total - 1), total)  # noqa: E731
        session = open_session(args.model, args.provider, strict=args.strict, progress=report)
        loaded = time.perf_counter() - start
        bars(what, 1, 1)
    made, notes = feeds.make_feeds(
        session.get_inputs(), args.input, options.once("dim", args.dim), args.random_seed, session.fixed_inputs
    )
    times = []
    for i in range(args.repeat):
        bars("Running", i, args.repeat)
        start = time.perf_counter()
        outputs = _run_once(session, made, notes)
        times.append(time.perf_counter() - start)
    bars("Running", args.repeat, args.repeat)
    named = {info.name: value for info, value in zip(session.get_outputs(), outputs, strict=True)}
    print("\n".join(_report(session, notes, named, loaded, times)))
    if args.output:
        with options.writing(f"files of {args.output}"):
            _write(args.output, named)
    return 0


def _run_once(session: InferenceSession, made: Mapping[str, Any], notes: Sequence[str]) -> list[Any]:
    try:
        return session.run(None, made)
    except (InputError, ShapeError) as error:
        if notes:
            error.what += f" (made up here: {'; '.join(notes)}: give --input or --dim)"
        raise error.at() from error.__cause__


def open_session(
    path: Path, providers: Sequence[str], *, strict: bool, progress: Callable[[str, int, int], None] | None = None,
    webgpu: Mapping[str, Any] | None = None,
) -> InferenceSession:  # fmt: skip
    """A session over a model or a plan; `providers` are "webgpu" and "cpu", none for both; `webgpu` are options."""
    from webrt.inference import InferenceSession
    from webrt.options import SessionOptions

    settings = SessionOptions()
    settings.progress = progress
    if strict:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    wanted = [(_PROVIDERS[p], webgpu or {} if p == "webgpu" else {}) for p in providers or options.PROVIDERS]
    return InferenceSession(path, settings, providers=wanted)


def summary(placement: Sequence[PlacedNode]) -> str:
    """Who runs how many nodes, on one line."""
    host = sum(p.provider == "cpu" for p in placement)
    free = sum(p.provider != "cpu" and p.how in ("alias", "folded") for p in placement)
    nodes, needs = counted(len(placement), "node"), "needs" if free == 1 else "need"
    return f"{nodes}: {len(placement) - host - free} on WebGPU, {host} on the CPU, {free} {needs} no work"


def describe(name: str, value: Any) -> str:
    """An output on one line: name, type, shape, least, greatest and mean element."""
    if not hasattr(value, "dtype"):
        return f"{name}: {type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else f"{name}: {value!r}"
    what = f"{name}: {value.dtype}{list(value.shape)}"
    if value.size == 0 or value.dtype.kind not in "fiub":
        return what
    numbers = value.astype("float64")
    return f"{what}  min {numbers.min():.6g}  max {numbers.max():.6g}  mean {numbers.mean():.6g}"


def _report(
    session: InferenceSession, notes: Sequence[str], outputs: Mapping[str, Any], loaded: float, times: Sequence[float]
) -> Iterable[str]:
    from webrt.runtime.devices import adapter_name

    yield f"adapter    {adapter_name(session.device)}"
    yield f"placement  {summary(session.get_placement())}"
    for title, lines in (("input", notes), ("output", [describe(n, v) for n, v in outputs.items()])):
        yield from (f"{title:<10} {line}" for line in lines)
    yield f"loaded     {loaded * 1e3:.1f} ms"
    yield f"first run  {times[0] * 1e3:.1f} ms"
    if len(times) > 1:
        later = times[1:]
        median = statistics.median(later)
        yield f"later runs {min(later) * 1e3:.1f} ms at best, {median * 1e3:.1f} ms median of {len(later)}"


def _check_output(path: Path | None) -> None:
    """Raises WebrtError before the work where the outputs could not be written."""
    if path and path.suffix == ".npy":
        raise WebrtError(f"cannot write {path}: --output takes a folder (one .npy for each output) or a .npz file")
    if path and path.suffix == ".npz" and not path.parent.is_dir():
        raise WebrtError(f"cannot write {path}: there is no folder {path.parent}")
    if path and path.suffix != ".npz" and path.exists() and not path.is_dir():
        raise WebrtError(f"{path} is neither a folder nor a .npz file")


def _write(path: Path, outputs: Mapping[str, Any]) -> None:
    import numpy as np

    arrays = {name: _plain(name, value) for name, value in outputs.items()}
    if path.suffix == ".npz":
        with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, array, allow_pickle=False)
    else:
        path.mkdir(parents=True, exist_ok=True)
        for name, array in zip(file_names(list(arrays)), arrays.values(), strict=True):
            with atomic_file(path / name) as file:
                np.save(file, array, allow_pickle=False)
    print(f"wrote      {path}")


def _plain(name: str, value: Any) -> Any:
    """An array that a .npy file can hold; raises WebrtError for sequences and maps."""
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise WebrtError(f"output {name!r} is a {type(value).__name__}; only tensors can be written")
    return value.astype(str) if value.dtype == object else value


def file_names(names: Sequence[str]) -> list[str]:
    """A different plain file name for each output: a model's names may hold anything, `../` among it."""
    taken: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:100] or "output"
        numbered = (f"{plain}.{i}" for i in itertools.count(1))
        taken[next(n for n in itertools.chain([plain], numbered) if n not in taken)] = None
    return [f"{name}.npy" for name in taken]


def positive(text: str) -> int:
    """A number above 0 of the command line."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
