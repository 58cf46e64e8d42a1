"""What a caller may ask of a run besides its outputs: to end early, and not to wait for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

from webrt.errors import RunTerminated


class Control:
    """`stop()` is asked between submits and host steps; `timeout` are the seconds that the run may wait for the device,
    None for any number."""

    def __init__(self, stop: Callable[[], bool] = lambda: False, timeout: float | None = None) -> None:
        self.stopped = stop
        self._end = None if timeout is None else time.monotonic() + timeout

    def check(self) -> None:
        """Raises RunTerminated where the caller wants the run to end."""
        if self.stopped():
            raise RunTerminated("the run was ended by its caller (RunOptions.terminate)")

    @property
    def left(self) -> float | None:
        """The seconds that are left, at least 0."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())
