"""Progress on the terminal: one line that is redrawn, or one line per stage where the output is no terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Bars:
    """A `Progress` that draws bars on `stream` (standard error by default)."""

    _WIDTH = 24

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._what = ""
        self._drawn = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows that `done` of `total` bytes (or steps, when small) of `what` are done."""
        finished = done >= total
        if what != self._what:
            self._what, self._drawn = what, 0.0
            if not self._live:
                self._stream.write(f"{what} …\n")
        if self._live and (finished or time.monotonic() - self._drawn > 0.1):
            self._drawn = time.monotonic()
            self._stream.write("\r\x1b[K" + self._line(done, total) + ("\n" if finished else ""))
        self._stream.flush()
        if finished:
            self._what = ""

    def _line(self, done: int, total: int) -> str:
        share = min(1.0, done / total) if total else 1.0
        filled = round(share * self._WIDTH)
        amount = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if total > 10_000 else f"{done} of {total}"
        return f"{self._what:<44.44} {'█' * filled}{'░' * (self._WIDTH - filled)} {share:4.0%}  {amount}"
