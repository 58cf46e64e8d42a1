"""Runs cases in worker processes and gathers what they come to; a worker that dies is replaced after its case."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

MAX_FINDINGS = 200
"""After so many, the rest is not run."""

PATIENCE = 120
"""Seconds without a word after which a worker is ended: it waits for something, and uses no processor."""


@dataclass
class Outcome:
    """`verdicts`: cases by class of verdict. `findings`: (number, what, where)."""

    verdicts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str, str]] = field(default_factory=list)

    def text(self, kind: str, seed: int, shown: int = 40) -> str:
        """For people: counts, and one case of each kind of finding."""
        counts = ", ".join(f"{n} {name}" for name, n in self.verdicts.most_common())
        kinds: dict[tuple[str, str], list[int]] = {}
        for number, what, where in self.findings:
            kinds.setdefault((what.splitlines()[0][:160], where), []).append(number)
        worst = sorted(kinds.items(), key=lambda k: -len(k[1]))[:shown]
        lines = [f"  {len(n)}× {what} | {where} | --case {kind} {seed} {n[0]}" for (what, where), n in worst]
        return "\n".join([f"{kind}, seed {seed}: {counts}; {len(self.findings)} findings", *lines])


def run(kind: str, seed: int, first: int, last: int, folder: str = "") -> Outcome:
    """Cases `first` to `last` of "models" or "plans"; `folder` holds models that replace the seeds."""
    outcome = Outcome()
    while first < last and len(outcome.findings) < MAX_FINDINGS:
        first = _one_worker(kind, seed, first, last, folder, outcome)
    return outcome


def _one_worker(kind: str, seed: int, first: int, last: int, folder: str, outcome: Outcome) -> int:
    """Runs until the worker ends; returns the number of the case to go on with."""
    command = [sys.executable, "-m", "tests.fuzz.worker", kind, str(seed), str(first), str(last), folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        last_words = _Tail(process.stderr)
        for line in _lines(process):
            number, what, *where = json.loads(line)
            if where:
                outcome.findings.append((number, what, where[0]))
            outcome.verdicts["finding" if where else what.split(":")[0]] += 1
            first = number + 1
        code = process.wait()
    if first < last:
        outcome.findings.append((first, _death(code), last_words.where()))
        outcome.verdicts["finding"] += 1
    return first + 1


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """The worker's lines; ends it when none comes for PATIENCE seconds."""
    arrived: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            arrived.put(line)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=PATIENCE)
        except queue.Empty:
            process.kill()
            return
        if line is None:
            return
        yield line


class _Tail:
    """The last lines of a pipe, read as they come."""

    def __init__(self, pipe: IO[str] | None) -> None:
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: IO[str] | None) -> None:
        for line in pipe or ():
            self._lines = [*self._lines[-40:], line.strip()]

    def where(self) -> str:
        """The innermost calls of a traceback, or the last lines."""
        self._thread.join(5)
        calls = [x.replace('File "', "").replace('", line ', ":") for x in self._lines if x.startswith('File "')]
        return " < ".join(c.rsplit("/", 1)[-1] for c in calls[:6]) or " ".join(self._lines[-3:])[:300]


def _death(code: int) -> str:
    if code == -signal.SIGPROF:
        return "hang: more than 10 s of processor time"
    return f"the process ended: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
