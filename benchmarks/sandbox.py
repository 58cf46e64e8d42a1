"""What confinement costs: `webrt compile --sandbox` and `--no-sandbox`, process start to artifact, as JSON.

    python -m benchmarks.sandbox MODEL.onnx [--repeat 5]

The two alternate; each time is the smallest of its runs, in seconds. `allowed` is 1.3 × the unconfined time + 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(model: Path, folder: Path, flag: str) -> float:
    """The wall-clock time of one compilation in a fresh process. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-m", "webrt.cli", "compile", str(model), flag, "-o", str(folder / "out.webrt")]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def measure(model: Path, repeat: int) -> dict[str, object]:
    """The smallest times of both ways, their ratio, and what is allowed."""
    times: dict[str, list[float]] = {"--no-sandbox": [], "--sandbox": []}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(repeat):
            for flag, row in times.items():
                row.append(round(seconds(model, Path(name), flag), 3))
    best = {flag: min(row) for flag, row in times.items()}
    allowed = round(1.3 * best["--no-sandbox"] + 0.3, 3)
    within = best["--sandbox"] <= allowed
    return {"model": model.stem, "best": best, "allowed": allowed, "within": within, "runs": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    print(json.dumps(measure(args.model, args.repeat), indent=1))


if __name__ == "__main__":
    main()
