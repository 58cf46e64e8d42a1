"""Confines this process for good: what it may still do is compute, and read and write the descriptors 0, 1 and 2.

Each layer says for itself whether it is on. Linux has all of them (x86-64 and aarch64); macOS has resource limits,
closed descriptors and an empty environment; Windows has an empty environment only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["NAMES", "Layer", "Limits", "lock"]


@dataclass(frozen=True)
class Limits:
    """What a confined process may use: `memory` bytes of address space, `seconds` of wall-clock time (the parent's
    clock), `cpu_seconds` of processor time (None: a little more than `seconds`), `output` bytes returned."""

    memory: int = 4 << 30
    seconds: float = 300.0
    cpu_seconds: int | None = None
    output: int = 2 << 30

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Layer:
    """One layer: whether it is on, and what it does or why it is off."""

    name: str
    on: bool
    detail: str


class Missing(Exception):
    """A layer cannot be switched on; the text says why."""


def lock(limits: Limits) -> list[Layer]:
    """Switches on every layer that this system has, for this process and for good.

    Only one thread may be running: some layers hold for the calling thread alone.
    """
    from webrt.confine import rlimits  # noqa: F401 - before files are out of reach

    if sys.platform == "linux":
        from webrt.confine import landlock, privileges, seccomp  # noqa: F401
    return [_layer(name, action, limits) for name, action in _LAYERS]


def _layer(name: str, action: Callable[[Limits], str], limits: Limits) -> Layer:
    try:
        return Layer(name, True, action(limits))
    except (Missing, OSError, ValueError, ImportError) as e:
        return Layer(name, False, str(e))


def _environment(limits: Limits) -> str:
    os.environ.clear()
    return "no environment variables"


def _descriptors(limits: Limits) -> str:
    if os.name != "posix":
        raise Missing("handles are not inherited, but none is closed afterwards")
    os.closerange(3, 1 << 16)
    return "only the pipes to the parent are open"


def _rlimits(limits: Limits) -> str:
    from webrt.confine import rlimits

    return rlimits.apply(limits)


def _linux(name: str) -> Callable[[Limits], str]:
    def apply(limits: Limits) -> str:
        if sys.platform != "linux":
            raise Missing(f"only Linux has it, this is {sys.platform}")
        from webrt.confine import landlock, privileges, seccomp

        return {
            "privileges": privileges.drop, "tracing": privileges.not_dumpable, "landlock": landlock.restrict,
            "seccomp": seccomp.install,
        }[name]()  # fmt: skip

    return apply


_LAYERS: tuple[tuple[str, Callable[[Limits], str]], ...] = (
    ("environment", _environment),
    ("descriptors", _descriptors),
    ("privileges", _linux("privileges")),
    ("tracing", _linux("tracing")),
    ("landlock", _linux("landlock")),
    ("rlimits", _rlimits),
    ("seccomp", _linux("seccomp")),
)
NAMES = tuple(name for name, _ in _LAYERS)
