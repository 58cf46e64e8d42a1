"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from webrt.errors import InputError, NotConstant, WebrtError
from webrt.files import plain_file
from webrt.target import PRESETS, Target

if TYPE_CHECKING:
    from webrt.cli.assets import Progress
    from webrt.compiler.options import CompileOptions
    from webrt.plan import Plan

LEVELS = ("disabled", "basic", "extended", "all")
PROVIDERS = ("webgpu", "cpu")
T = TypeVar("T")


def add_compile_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that decide how a model is compiled."""
    parser.add_argument("--level", choices=LEVELS, default="all", help="graph optimisation (default: all)")
    parser.add_argument(
        "--dim", type=dim_or_bounds, action="append", default=[], metavar="NAME=SIZE",
        help="a free dim's size, or its bounds (1..512): it stays free then, and other sizes are refused",
    )  # fmt: skip
    parser.add_argument(
        "--denotation", type=dim, action="append", default=[], metavar="NAME=SIZE",
        help="the size of the dims that the model denotes so (DATA_BATCH=1)",
    )  # fmt: skip
    parser.add_argument(
        "--disable", action="append", default=[], metavar="PASS",
        help="a pass to leave out, by the name that `webrt inspect --passes` shows; may be repeated",
    )  # fmt: skip
    add_provider_arguments(parser)
    parser.add_argument(
        "--place", type=pair, action="append", default=[], metavar="NODE=PROVIDER",
        help="the provider of a node: webgpu (an error where that cannot run it) or cpu; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--target", default="webgpu", metavar="TARGET",
        help=f"the device to compile for: {', '.join(PRESETS)}, or a .json file (default: webgpu, any device)",
    )  # fmt: skip
    parser.add_argument(
        "--known", type=pair, action="append", default=[], metavar="NAME=VALUE",
        help="the elements of an input (or new ones of an initializer) that are fixed at compile time: a .npy or .npz "
        "file, or JSON of its type",
    )  # fmt: skip


def add_input_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """--input (also called `names`), --random-seed and --dim."""
    parser.add_argument(
        "--input", *names, action="append", default=[], metavar="NAME=VALUE",
        help="a .npy or .npz file or JSON numbers; or just FILE.npz with an array for each input",
    )  # fmt: skip
    parser.add_argument("--random-seed", type=int, default=0, metavar="N", help="for inputs not given (default: 0)")
    parser.add_argument("--dim", type=dim, action="append", default=[], metavar="NAME=SIZE", help="a free dim's size")


def add_provider_arguments(parser: argparse.ArgumentParser) -> None:
    """--provider and --strict."""
    parser.add_argument(
        "--provider", choices=PROVIDERS, action="append", default=[],
        help="who may run nodes, in order of preference; may be repeated (default: webgpu, then cpu)",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="a node on the CPU is an error")


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def dim(text: str) -> tuple[str, int]:
    """NAME=SIZE; the name may contain `=`."""
    name, sign, value = text.rpartition("=")
    if not (name and sign and value.isdecimal() and len(value) < 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, int(value)


def dim_or_bounds(text: str) -> tuple[str, int | tuple[int, int]]:
    """NAME=SIZE or NAME=LOWEST..HIGHEST."""
    name, _, value = text.rpartition("=")
    low, dots, high = value.partition("..")
    if not dots:
        return dim(text)
    if not (low and high):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=LOWEST..HIGHEST: both bounds are needed")
    bounds = (dim(f"{name}={low}")[1], dim(f"{name}={high}")[1])
    if bounds[0] > bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: no size is from {low} to {high}")
    return name, bounds


def once(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Pairs as a dict. Raises InputError where a name has two values."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise InputError(f"--{option} {name} is given twice: {shown(found[name])} and {shown(value)}")
    return found


def shown(value: object) -> str:
    """A value as the command line has it."""
    return f"{value[0]}..{value[1]}" if isinstance(value, tuple) else f"{value!s:.200}"


def compile_options(args: argparse.Namespace, progress: Progress | None = None, **more: Any) -> CompileOptions:
    """What `add_compile_arguments` parsed. Raises WebrtError for a target or an array that cannot be read."""
    from webrt.compiler.options import CompileOptions

    what = f"Compiling {args.model.name}"
    report = None if progress is None else lambda stage, done, total: progress(what, done, total)
    return CompileOptions(
        level=args.level, providers=tuple(args.provider) or PROVIDERS, strict=args.strict, target=target(args.target),
        known_inputs={name: read_known(name, text) for name, text in once("known", args.known).items()},
        free_dims=once("dim", args.dim), denotations=once("denotation", args.denotation),
        places=once("place", args.place), disabled=tuple(args.disable), progress=report, **more,
    )  # fmt: skip


def target(name: str) -> Target:
    """A preset, or the Target in a JSON file. Raises WebrtError for anything else."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise WebrtError(f"there is no target {name!r}: use {', '.join(PRESETS)}, or the path of a .json file")
    with naming(path):
        return Target.from_json(read_text(path))


def read_text(path: Path) -> str:
    """A UTF-8 file; raises WebrtError where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise WebrtError(f"{path} is no text") from error


def read_known(name: str, text: str) -> Any:
    """What --known gives: the array in a `.npy` or `.npz` file, or what JSON has, which the compiler makes an array of
    the input's type. Raises WebrtError for what is neither."""
    is_file = text.endswith((".npy", ".npz")) or os.path.isfile(text)
    return read_array(Path(text), name) if is_file else _read_python(name, text)


def _read_python(name: str, text: str) -> Any:
    """Numbers, texts or truth values of JSON, or lists of them. Raises InputError, naming the input."""
    import numpy as np

    try:
        given = json.loads(text)
        if np.array(given).dtype.kind not in "iufbU":
            raise TypeError("neither numbers nor texts")
        return given
    except (ValueError, TypeError, RecursionError) as error:
        raise _no_json(name, text, "") from error


def read_json(name: str, text: str, dtype: str) -> Any:
    """An array written as JSON. Raises InputError, naming the input."""
    import numpy as np

    try:
        with np.errstate(over="raise"):
            return np.array(json.loads(text), dtype=object if dtype == "string" else dtype)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise _no_json(name, text, f"{dtype} ") from error


def _no_json(name: str, text: str, of: str) -> InputError:
    what = f"{of}numbers in JSON, such as [1, 2]"
    return InputError(f"input {name!r}: {text!r:.200} is neither a .npy or .npz file nor {what}")


def read_array(path: Path, name: str = "") -> Any:
    """The array in a `.npy` file, or the one called `name` (or the only one) in a `.npz` file.

    Raises WebrtError for what is neither; pickled objects are refused.
    """
    arrays = read_arrays(path)
    if name in arrays or len(arrays) == 1:
        return arrays.get(name, next(iter(arrays.values())))
    raise WebrtError(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}")


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a `.npz` file by name, or of a `.npy` file under the name ""."""
    import numpy as np

    try:
        with plain_file(path, WebrtError).open("rb") as file:
            if not file.read(6).startswith((b"PK", b"\x93NUMPY")):
                raise WebrtError(f"{path} holds no numpy arrays (.npy or .npz)")
        loaded = np.load(path, allow_pickle=False)
        return {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except FileNotFoundError as error:
        raise WebrtError(f"{path}: no such file") from error
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, SyntaxError) as error:
        raise WebrtError(f"{path} holds no numpy arrays (.npy or .npz): {first_line(error)}") from error


def is_plan(path: Path) -> bool:
    """Whether a file is a `.webrt` plan (by its name, else by its first bytes) and not an ONNX model."""
    if path.suffix == ".webrt":
        return True
    with plain_file(path, WebrtError).open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32


def load_plan(path: Path) -> Plan:
    """A plan from its file, checked. Raises PlanError, naming the file."""
    from webrt import planfile, validate

    with naming(path):
        loaded = planfile.load(path)
        validate.validate(loaded)
        return loaded


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the block name the file."""
    try:
        yield
    except WebrtError as error:
        raise error.of_file(str(path)) from error.__cause__


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """An interruption of the block says that `what` may be missing; elsewhere `main` says that nothing was written."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"{what} may be missing or of an earlier run") from error


@contextlib.contextmanager
def compiling(path: Path) -> Iterator[None]:
    """As `naming`; where inputs have to be known, the error says how to give them."""
    with naming(path):
        try:
            yield
        except NotConstant as error:
            missing = [shlex.quote(f"{name}=VALUE") for name in sorted(error.roots - {""})]
            if missing:
                error.what += f": --known {' --known '.join(missing)} (JSON, such as 16000, or a .npy file)"
            raise error.at() from error.__cause__


def tell(command: str, error: Exception) -> None:
    """Prints an error as `webrt` does: with the command's name, on stderr."""
    words = f"{error.filename or 'a file'}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
    print(f"webrt {command}: {words}", file=sys.stderr)


def first_line(error: BaseException) -> str:
    """An error's words, on one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
