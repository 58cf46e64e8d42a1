"""The `webrt` command."""

from webrt.cli.main import main

__all__ = ["main"]
