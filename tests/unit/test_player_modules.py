"""player.js names every module of its graph, so that a page that has it asks for all others at once."""

from __future__ import annotations

import re

from webrt.resources import web_dir
from webrt.target import FEATURES

PYTHON_ONLY = "pyodide.js"


def test_player_js_names_every_module() -> None:
    folder = web_dir()
    named = set(re.findall(r'from "\./player/([a-z]+\.js)"', (folder / "player.js").read_text(encoding="utf-8")))
    assert named | {PYTHON_ONLY} == {path.name for path in (folder / "player").glob("*.js")}


def test_features_are_the_same_in_python_and_in_javascript() -> None:
    text = (web_dir() / "player" / "common.js").read_text(encoding="utf-8")
    listed = text.partition("WEBGPU_FEATURES = new Set([")[2].partition("]);")[0]
    assert set(re.findall(r'"([\w-]+)"', listed)) == FEATURES
