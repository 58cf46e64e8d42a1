"""Fuzzing from the command line; `--case KIND SEED NUMBER` shows one case again."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import onnx
import onnx.shape_inference
from google.protobuf.message import DecodeError

from tests.fuzz import judge
from tests.fuzz.run import Outcome, run
from tests.fuzz.worker import SECONDS


def main() -> int:
    """Exit code 1 where a case is a finding."""
    p = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    p.add_argument("--models", type=int, default=0, help="so many model cases")
    p.add_argument("--plans", type=int, default=0, help="so many plan cases")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--first", type=int, default=0, help="the number of the first case")
    p.add_argument("--shards", type=int, default=1, help="processes at work at once")
    p.add_argument("--folder", default="", help="mutate the models of this folder, not the small ones")
    p.add_argument("--case", nargs=3, metavar=("KIND", "SEED", "NUMBER"), help="run one case, with its traceback")
    args = p.parse_args()
    if args.case:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        return show(args.case[0], int(args.case[1]), int(args.case[2]), args.folder)
    found = 0
    for kind, count in (("models", args.models), ("plans", args.plans)):
        if count:
            start = time.monotonic()
            outcome = sharded(kind, args.seed, args.first, args.first + count, args.shards, args.folder)
            print(outcome.text(kind, args.seed))
            print(f"  {count / (time.monotonic() - start):.0f} cases a second", flush=True)
            found += len(outcome.findings)
    return int(found > 0)


def sharded(kind: str, seed: int, first: int, last: int, shards: int, folder: str = "") -> Outcome:
    """The cases, in `shards` processes at once."""
    edges = [first + (last - first) * i // shards for i in range(shards + 1)]
    with ThreadPoolExecutor(shards) as pool:
        parts = list(pool.map(lambda i: run(kind, seed, edges[i], edges[i + 1], folder), range(shards)))
    whole = Outcome()
    for part in parts:
        whole.verdicts.update(part.verdicts)
        whole.findings += part.findings
    return whole


def show(kind: str, seed: int, number: int, folder: str) -> int:
    """Prints the case and its verdict, with the whole traceback of a finding; keeps its bytes in `case.*`."""
    if kind == "plans":
        data = judge.plan_case(seed, number)
        Path("case.webrt").write_bytes(data)
        print(judge.plan_verdict(data, Random(number)))
        return 0
    data, options = judge.model_case(seed, number, folder)
    Path("case.onnx").write_bytes(data)
    try:
        print(onnx.printer.to_text(onnx.ModelProto.FromString(data))[:5000])
    except (DecodeError, RuntimeError, UnicodeDecodeError, onnx.shape_inference.InferenceError) as e:
        print(f"({len(data)} bytes: {e})")
    print({k: v for k, v in options.items() if k != "external_data"})
    print(judge.compile_verdict(data, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
