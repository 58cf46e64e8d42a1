"""What Chromium's processes below this one use, read from /proc; None where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_N = TypeVar("_N", int, float)

PROC = Path("/proc")


def held() -> int | None:
    """Bytes of anonymous and shared memory, of renderers."""
    return _sum(lambda folder: sum(1024 * int(_status(folder)[key].split()[0]) for key in ("RssAnon", "RssShmem")))


def cpu_seconds() -> float | None:
    """Seconds of CPU time, of all threads, since the renderers began."""
    return _sum(_seconds)


def cpu_by_process(mark: bytes) -> dict[int, float]:
    """Seconds of CPU time by process, of those whose command lines hold `mark`; empty where there is no /proc."""
    return _each(_seconds, mark)


def _seconds(folder: Path) -> float:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # utime and stime, proc(5)


def _sum(use: Callable[[Path], _N]) -> _N | None:
    found = list(_each(use, b"--type=renderer").values())
    return sum(found[1:], start=found[0]) if found else None


def _each(use: Callable[[Path], _N], mark: bytes) -> dict[int, _N]:
    if not (PROC / "self" / "status").exists():
        return {}
    parents: dict[int, int] = {}
    used: dict[int, _N] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            pid = int(folder.name)
            try:
                parents[pid] = int(_status(folder)["PPid"])
                if mark in (folder / "cmdline").read_bytes():
                    used[pid] = use(folder)
            except (OSError, KeyError, ValueError):
                continue  # the process has ended, or is the kernel's
    return {pid: amount for pid, amount in used.items() if _is_mine(pid, parents)}


def _status(folder: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())


def _is_mine(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False
