"""`webrt sandbox-status`: which layers confine a compilation on this system."""

from __future__ import annotations

import argparse
import dataclasses
import json

EXAMPLES = """examples:
  webrt sandbox-status                      each layer, on or missing, as a fresh worker process has it
  webrt sandbox-status --json
  webrt sandbox-status --require-sandbox    exit code 1 where a layer is missing"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt sandbox-status`."""
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--require-sandbox", action="store_true", help="a layer that is missing is an error")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt sandbox-status` and returns the exit code; raises SandboxError where no worker starts."""
    from webrt import sandbox

    layers = sandbox.status()
    if args.json:
        print(json.dumps([dataclasses.asdict(layer) for layer in layers], indent=1))
    else:
        for layer in layers:
            print(f"{layer.name:<12} {'on' if layer.on else 'MISSING':<8} {layer.detail}")
    return int(args.require_sandbox and not all(layer.on for layer in layers))
