"""How long a compilation may take and how much memory, by sizes that are predicted before each step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from webrt.errors import ModelError, WebrtError

MACHINE = 0.75
"""The part of the machine's memory that a compilation may take where nobody says how much."""
UNKNOWN = 2 << 30
"""Bytes that are taken to be there where the system does not tell."""


def _of_machine() -> int:
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN
    return int(found * MACHINE) if found > 0 else UNKNOWN


MEMORY = _of_machine()
"""The bytes that a compilation may take by default; asked for at import, since a locked process may not ask."""


@dataclass
class Bounds:
    """`end`: when a compilation has to end, by time.monotonic(); None is never. `memory`: bytes that the model's data
    and what is computed of it may take, of which `taken` are gone."""

    end: float | None = None
    memory: int = MEMORY
    taken: int = 0

    @staticmethod
    def of(seconds: float | None, memory: int | None) -> Bounds:
        """Those of a compilation that starts now; None is no limit on time, and the machine's own on memory."""
        end = None if seconds is None else time.monotonic() + seconds
        return Bounds(end, MEMORY if memory is None else memory)

    @property
    def left(self) -> int:
        """The bytes that may still be taken."""
        return max(0, self.memory - self.taken)

    def check(self, what: str) -> None:
        """Raises ModelError where the time is over."""
        if self.end is not None and time.monotonic() > self.end:
            raise ModelError(f"out of time: compiling took longer than allowed (during {what}); raise the limit")

    def take(self, count: int, what: str) -> None:
        """Counts bytes that are about to be allocated. Raises ModelError where they are more than are left."""
        if count > self.left:
            raise ModelError(
                f"out of memory: {what} needs {count} bytes, and compiling has taken {self.taken} of {self.memory}; "
                "raise the limit"
            )
        self.taken += count


@contextmanager
def told(error: type[WebrtError], what: str) -> Iterator[None]:
    """Around a public function: what Python runs out of is told as `error`; `what` says who did."""
    try:
        yield
    except MemoryError as e:
        raise error(f"out of memory: {what} needs more than this process can have ({e})".replace(" ()", "")) from e
    except RecursionError as e:
        raise error(f"{what} is nested deeper than can be followed; flatten it") from e
    except OverflowError as e:
        raise error(f"{what} has a number that is too large ({e}); make it smaller") from e
