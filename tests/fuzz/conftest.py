"""The fixtures of the browser tests, for the cases too."""

from tests.web.conftest import base_url, browser, context, files, player

__all__ = ["base_url", "browser", "context", "files", "player"]
