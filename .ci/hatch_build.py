"""Puts `shaders/` and `web/` into wheels; an editable install uses them where they are (see webrt/resources.py)."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DataFolders(BuildHookInterface[Any]):
    """Adds the two folders to a wheel as `webrt/_data`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds; `version` is "standard" or "editable"."""
        if version == "standard":
            build_data["force_include"] |= {"shaders": "webrt/_data/shaders", "web": "webrt/_data/web"}
