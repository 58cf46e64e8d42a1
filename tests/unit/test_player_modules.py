"""player.js names every module of its graph, so that a page that has it asks for all others at once."""

from __future__ import annotations

import re

from webrt.resources import web_dir

PYTHON_ONLY = "pyodide.js"


def test_player_js_names_every_module() -> None:
    folder = web_dir()
    named = set(re.findall(r'from "\./player/([a-z]+\.js)"', (folder / "player.js").read_text(encoding="utf-8")))
    assert named | {PYTHON_ONLY} == {path.name for path in (folder / "player").glob("*.js")}
