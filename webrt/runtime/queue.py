"""What a run has recorded and not yet submitted; the steps within its steps record here too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from webrt.plan import Bytes
from webrt.runtime.control import Control
from webrt.runtime.device import Command, Device, Range
from webrt.runtime.tensor import upload

if TYPE_CHECKING:
    from webrt.runtime.profile import Recorder
    from webrt.runtime.stats import RunStats

MAX_PENDING = 4096
"""Commands that are recorded before they are submitted without need, and submitted before a loop waits for them."""


class Queue:
    """`control` may end the run before each submit, `recorder` times it."""

    def __init__(self, device: Device, stats: RunStats, control: Control, recorder: Recorder | None = None) -> None:
        self.device, self.stats, self.control, self.recorder = device, stats, control, recorder
        self._pending: list[Command] = []
        self._ahead = 0

    def add(self, commands: Iterable[Command]) -> None:
        self._pending += commands
        if len(self._pending) > MAX_PENDING:
            self.flush()

    def submit(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Runs what is pending; the bytes of the ranges."""
        if not self._pending and not any(r.nbytes for r in ranges):
            return [memoryview(bytearray()) for _ in ranges]
        self.control.check()
        commands, self._pending = self._pending, []
        data = (self.recorder or self.device).submit(commands, ranges, timeout=self.control.timeout)
        self._ahead = 0 if any(r.nbytes for r in ranges) else self._ahead + len(commands)
        self.stats.submits += 1
        self.stats.down += sum(r.nbytes for r in ranges)
        return data

    def flush(self) -> None:
        """Submits what is pending: before a buffer that it uses is written or freed."""
        if self._pending:
            self.submit(())

    def rest(self, where: Range) -> None:
        """Waits, by a read of `where`, once more than MAX_PENDING commands were submitted that nobody waited for."""
        if self._ahead > MAX_PENDING:
            self.submit([where._replace(nbytes=min(where.nbytes, 4))])

    def write(self, target: Range, data: Bytes) -> None:
        """Puts bytes into a buffer after all that is pending."""
        self.flush()
        upload(self.device, target.buffer, data, target.offset)
        self.stats.up += memoryview(data).nbytes
