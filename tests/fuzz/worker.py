"""The process that runs cases: `python -m tests.fuzz.worker KIND SEED FIRST LAST FOLDER`, one line of JSON per case.

A case that takes more than SECONDS of processor time ends the process by SIGPROF, with a traceback on the standard
error; memory is limited to MEMORY bytes above what the seeds take.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import signal
import sys
from pathlib import Path
from random import Random

from tests.fuzz import judge

SECONDS = 10
MEMORY = 1 << 30


def main(kind: str, seed: int, first: int, last: int, folder: str) -> None:
    """Prints [number, verdict] per case, and [number, what, where] for a finding."""
    _warm_up(kind, folder)
    _limit()
    for number in range(first, last):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            line = [number, _verdict(kind, seed, number, folder)]
        except judge.Finding as e:
            line = [number, e.what, e.where]
        print(json.dumps(line), flush=True)


def _verdict(kind: str, seed: int, number: int, folder: str) -> str:
    if kind == "plans":
        return judge.plan_verdict(judge.plan_case(seed, number), Random(number))
    return judge.compile_verdict(*judge.model_case(seed, number, folder))


def _warm_up(kind: str, folder: str) -> None:
    """Loads modules and seeds, so that neither counts for a case."""
    judge.plan_case(0, 0)
    if kind == "models":
        judge.model_case(0, 0, folder)


def _limit() -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
