"""What a caller may ask of a run besides its outputs: to end early, and to end within a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from webrt.errors import RunTerminated


class Control:
    """`check` is called between submits, steps, host steps and iterations; `stop()` is asked there. `timeout` are the
    seconds from now on after which a check ends the run, and for which one wait for the device may last; None for any
    number."""

    def __init__(self, stop: Callable[[], bool] = lambda: False, timeout: float | None = None) -> None:
        self.stopped, self.timeout = stop, timeout
        self._end = None if timeout is None else time.monotonic() + timeout

    def check(self) -> None:
        """Raises RunTerminated where the caller wants the run to end, or its time is over."""
        if self.stopped():
            raise RunTerminated("the run was ended by its caller (RunOptions.terminate)")
        if self.over:
            raise RunTerminated(f"the run did not end within its {self.timeout:g} s (session.run_timeout)")

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self._end is not None and time.monotonic() >= self._end
