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
        _set(name, value, value)
    _set("CPU", cpu, cpu + 1)  # SIGXCPU first, which tells the parent why; a process that ignores it is killed
    memory = f"{limits.memory / 1e9:.1f} GB of memory" if sys.platform == "linux" else "memory is not limited here"
    return f"{memory}, {cpu} s of processor time, no file, no process, no descriptor, no core dump"


def _set(name: str, soft: int, hard: int) -> None:
    """Sets a limit where the system has it, as low as the one that holds already."""
    kind = getattr(resource, f"RLIMIT_{name}", None)
    if kind is not None:
        most = resource.getrlimit(kind)[1]
        ceiling = hard if most == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(kind, (min(soft, ceiling), ceiling))
