"""The `webrt` command: compile, run, inspect, bench, profile, tune, site, sandbox-status.

Exit codes: 0 done, 1 an error that is told in one message (a WebrtError, a file that cannot be read or written),
2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from webrt import parts
from webrt.cli import options
from webrt.errors import WebrtError

_COMMANDS = {
    "compile": "a model to a .webrt plan, without any device",
    "run": "runs a model or a plan on this machine",
    "inspect": "shows what is in a model or a plan",
    "bench": "measures how fast models run on this machine",
    "profile": "shows where a model's time goes, kernel by kernel",
    "tune": "measures which kernels are the fastest on this machine",
    "site": "makes a static folder with the page and all it needs",
    "sandbox-status": "shows what confines a compilation here",
}
"""Each is a module of this folder; those that need the compile half are not installed without it."""
_ABOUT = "Runs ONNX models on WebGPU, and compiles them for it without any GPU."
_EXAMPLES = """examples:
  webrt inspect model.onnx                  what is in it, and what would run where
  webrt compile model.onnx                  writes model.webrt; needs no GPU
  webrt run model.onnx --input x=x.npy      runs it here, prints the outputs
  webrt profile model.onnx --html p.html    where the time goes
  webrt tune model.onnx                     measures which kernels are the fastest here
  webrt site folder --serve                 the page, with everything it needs

`webrt COMMAND --help` shows more. Exit codes: 0 done, 1 an error (told in one message), 2 wrong usage."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that tells of wrong usage in two lines."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with code 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` shows the arguments.\n")


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    plain = argparse.RawDescriptionHelpFormatter
    top = Parser(prog="webrt", description=_ABOUT, epilog=_EXAMPLES, formatter_class=plain)
    top.add_argument("--version", action="version", version=f"webrt {importlib.metadata.version('webrt')}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, about in _COMMANDS.items():
        if not parts.has(_module(name)):
            commands.add_parser(name, help=f"(with {parts.COMPILER}) {about}")
            continue
        module = importlib.import_module(_module(name))
        sub = commands.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=module.EXAMPLES,
            formatter_class=plain,
        )  # fmt: skip
        module.add_arguments(sub)
        sub.set_defaults(action=module.run, wrong=sub.error)
    return top


def _module(command: str) -> str:
    return f"webrt.cli.{command.replace('-', '_')}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code (see the module's docstring); raises SystemExit for wrong usage."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        if given and given[0] in _COMMANDS:
            parts.need(_module(given[0]), "this command")
    except WebrtError as error:
        options.tell(given[0], error)
        return 1
    args, other = parser().parse_known_args(given)
    if other:
        args.wrong(f"there is no argument {' '.join(other)}")
    try:
        code = int(args.action(args))
        sys.stdout.flush()
        return code
    except WebrtError as error:
        options.tell(args.command, error)
        return 1
    except BrokenPipeError:
        # The reader of our output is gone (`webrt inspect … | head`); Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        options.tell(args.command, error)
        return 1
    except KeyboardInterrupt as error:
        what = str(error) or "nothing was written"
        print(f"{chr(10) if sys.stderr.isatty() else ''}webrt {args.command}: interrupted; {what}", file=sys.stderr)
        return 130
