"""The `webrt` command: compile, run, inspect, bench, profile, tune, site, sandbox-status.

Exit codes: 0 done, 1 an error that is told in one message (a WebrtError, a file that cannot be read or written),
2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from webrt.cli import bench as bench_command
from webrt.cli import compile as compile_command
from webrt.cli import inspect as inspect_command
from webrt.cli import profile as profile_command
from webrt.cli import run as run_command
from webrt.cli import sandbox_status
from webrt.cli import site as site_command
from webrt.cli import tune as tune_command
from webrt.errors import WebrtError

_ABOUT = "Runs ONNX models on WebGPU, and compiles them for it without any GPU."
_EXAMPLES = """examples:
  webrt inspect model.onnx                  what is in it, and what would run where
  webrt compile model.onnx                  writes model.webrt; needs no GPU
  webrt run model.onnx --input x=x.npy      runs it here, prints the outputs
  webrt profile model.onnx --html p.html    where the time goes
  webrt tune model.onnx                     measures which kernels are the fastest here
  webrt site folder --serve                 the page, with everything it needs

`webrt COMMAND --help` shows more. Exit codes: 0 done, 1 an error (told in one message), 2 wrong usage."""
_SITE_EXAMPLES = """examples:
  webrt site public                         a static folder for any web server
  webrt site public --serve --port 8080     and look at it now
  webrt site public --no-demo               without the OCR demo's model"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(
        prog="webrt", description=_ABOUT, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"webrt {importlib.metadata.version('webrt')}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, about, examples, module in (
        ("compile", "a model to a .webrt plan, without any device", compile_command.EXAMPLES, compile_command),
        ("run", "runs a model or a plan on this machine", run_command.EXAMPLES, run_command),
        ("inspect", "shows what is in a model or a plan", inspect_command.EXAMPLES, inspect_command),
        ("bench", "measures how fast models run on this machine", bench_command.EXAMPLES, bench_command),
        ("profile", "shows where a model's time goes, kernel by kernel", profile_command.EXAMPLES, profile_command),
        ("tune", "measures which kernels are the fastest on this machine", tune_command.EXAMPLES, tune_command),
        ("site", "makes a static folder with the page and all it needs", _SITE_EXAMPLES, site_command),
        ("sandbox-status", "shows what confines a compilation here", sandbox_status.EXAMPLES, sandbox_status),
    ):
        sub = commands.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(sub)
        sub.set_defaults(action=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code (see the module's docstring); raises SystemExit for wrong usage."""
    args = parser().parse_args(argv)
    try:
        code = int(args.action(args))
        sys.stdout.flush()
        return code
    except WebrtError as error:
        return _fail(args.command, str(error))
    except BrokenPipeError:
        # The reader of our output is gone (`webrt inspect … | head`); Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(args.command, f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt as error:
        what = str(error) or "nothing was written"
        print(f"{chr(10) if sys.stderr.isatty() else ''}webrt {args.command}: interrupted; {what}", file=sys.stderr)
        return 130


def _fail(command: str, message: str) -> int:
    print(f"webrt {command}: {message}", file=sys.stderr)
    return 1
