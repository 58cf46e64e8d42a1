"""What sessions log."""

from __future__ import annotations

import logging

_LEVELS = {0: logging.DEBUG, 1: logging.INFO, 2: logging.WARNING, 3: logging.ERROR, 4: logging.CRITICAL}
_logger = logging.getLogger("webrt")


class Log:
    """The logger "webrt" without the messages below a session's `severity`, which is ONNX Runtime's
    `log_severity_level`: 0 for all of them, 4 for the fatal ones."""

    def __init__(self, severity: int = 0) -> None:
        self._least = _LEVELS.get(severity, logging.CRITICAL)

    def info(self, text: str) -> None:
        """Tells what a user may want to know."""
        self._tell(logging.INFO, text)

    def warning(self, text: str) -> None:
        """Tells what is not as a user would expect it."""
        self._tell(logging.WARNING, text)

    def _tell(self, level: int, text: str) -> None:
        if level >= self._least:
            _logger.log(level, "%s", text)
