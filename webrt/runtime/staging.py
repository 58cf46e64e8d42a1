"""Buffers that are kept from run to run: for read-backs, and for outputs that stay on the device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from webrt.runtime.device import padded

SMALLEST = 4096


class Sized(Protocol):
    """Anything with a size in bytes."""

    @property
    def nbytes(self) -> int: ...


B = TypeVar("B", bound=Sized)


class Staging(Generic[B]):
    """Hands out buffers of at least a size; may be used from several threads."""

    def __init__(
        self,
        alloc: Callable[[int], B],
        free: Callable[[B], None],
        largest: int,
        smallest: int = SMALLEST,
        most: int | None = None,
    ) -> None:
        """`largest`, `smallest`: the most and the fewest bytes that a buffer may have. `most`: how many may wait."""
        self._alloc, self._free, self._largest, self._smallest = alloc, free, largest, smallest
        self._most = most
        self._idle: list[B] = []
        self._lock = threading.RLock()

    @property
    def idle(self) -> int:
        """How many buffers wait for the next taker."""
        return len(self._idle)

    def take(self, nbytes: int) -> B:
        """The smallest idle buffer that fits; else a new one, half as large again, in place of a smaller one."""
        with self._lock:
            fitting = [b for b in self._idle if b.nbytes >= nbytes]
            chosen = min(fitting or self._idle, key=lambda b: b.nbytes, default=None)
            if chosen is not None:
                self._idle.remove(chosen)
        if chosen is not None and fitting:
            return chosen
        if chosen is not None:
            self._free(chosen)
        roomy = min(padded(max(self._smallest, nbytes + nbytes // 2)), self._largest // 16 * 16)
        return self._alloc(max(padded(nbytes), roomy))

    def give(self, buffer: B) -> None:
        """Takes a buffer back, or frees it where enough wait."""
        with self._lock:
            if self._most is None or len(self._idle) < self._most:
                self._idle.append(buffer)
                return
        self._free(buffer)

    def drop(self) -> None:
        """Frees the idle buffers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for b in idle:
            self._free(b)

    def close(self) -> None:
        """Frees the idle buffers, and from now on those that come back."""
        with self._lock:
            self._most = 0
        self.drop()
