"""setrlimit(2): memory, processor time, files, processes, descriptors, core dumps."""

from __future__ import annotations

import math
import sys

from webrt.confine import Limits, Missing

if sys.platform != "win32":
    import resource


def apply(limits: Limits) -> str:
    """Raises Missing where the system has no such limits (Windows)."""
    if sys.platform == "win32":
        raise Missing("Windows has no resource limits; a job object is not written")
    cpu = limits.cpu_seconds if limits.cpu_seconds is not None else math.ceil(limits.seconds) + 1
    wanted = {"AS": limits.memory, "FSIZE": 0, "NPROC": 0, "NOFILE": 0, "CORE": 0}
    for name, value in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    memory = f"{limits.memory / 1e9:.1f} GB of memory" if sys.platform == "linux" else "memory is not limited here"
    return f"{memory}, {cpu} s of processor time, no file, no process, no descriptor, no core dump"
