"""What confinement costs, as JSON.

    python -m benchmarks.sandbox MODEL.onnx [--repeat 5]

`cold`: `webrt compile --sandbox` and `--no-sandbox`, process start to artifact; allowed is 1.3 × the unconfined time
+ 0.3 s. `warm`: a `sandbox.Compiler` whose spare is ready, and the same compilation in this process; allowed is 1.1 ×
the latter + 50 ms. The two of a pair alternate; each time is the smallest of its runs, in seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from webrt import planfile, sandbox
from webrt.compiler.compile import compile_model

PAUSE = 3.0
"""Seconds in which a new spare gets ready."""


def seconds(model: Path, folder: Path, flag: str) -> float:
    """The wall-clock time of one compilation in a fresh process. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "webrt.cli", "compile", str(model), flag, "-o", str(folder / "out.webrt")]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def cold(model: Path, repeat: int) -> dict[str, Any]:
    """The command, with and without a sandbox."""
    times: dict[str, list[float]] = {"--no-sandbox": [], "--sandbox": []}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(repeat):
            for flag, row in times.items():
                row.append(seconds(model, Path(name), flag))
    return summary(times["--no-sandbox"], times["--sandbox"], 1.3, 0.3)


def warm(model: Path, repeat: int) -> dict[str, Any]:
    """The pool, and this process."""
    here, there = [], []
    with sandbox.Compiler() as compiler:
        for _ in range(repeat + 1):
            time.sleep(PAUSE)
            start = time.perf_counter()
            made = compiler.compile(model)
            there.append(time.perf_counter() - start)
            time.sleep(PAUSE)
            start = time.perf_counter()
            data = planfile.dump(compile_model(model))
            here.append(time.perf_counter() - start)
            if data != made.plan:
                raise SystemExit("the two plans differ")
    return summary(here[1:], there[1:], 1.1, 0.05)


def summary(plain: list[float], confined: list[float], factor: float, more: float) -> dict[str, Any]:
    """The smallest times, what is allowed, and all of them."""
    allowed = factor * min(plain) + more
    rows = {"unconfined": min(plain), "confined": min(confined), "allowed": allowed}
    return {
        **{k: round(v, 3) for k, v in rows.items()}, "within": min(confined) <= allowed,
        "runs": [[round(t, 3) for t in row] for row in (plain, confined)],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    report = {"model": args.model.stem, "cold": cold(args.model, args.repeat), "warm": warm(args.model, args.repeat)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
