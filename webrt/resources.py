"""Finds the WGSL bodies and the page's files, in a wheel and in a checkout alike.

A wheel carries the repository's top-level `shaders/` and `web/` as `webrt/_data/shaders` and `webrt/_data/web`.
An editable install has no `_data`: the folders beside the package are used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from webrt.errors import WebrtError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder `name` ("shaders" or "web"), packaged or else at the top of the repository.

    Raises WebrtError where neither exists, which means a damaged install.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise WebrtError(f"webrt's folder {name!r} is not installed; install the package again")


def shader_path(name: str) -> Path:
    """The path of the WGSL body `name`, such as "softmax" or "lib/reduce"; the suffix .wgsl may be left out.

    Raises WebrtError for a name that does not exist or that points outside the folder.
    """
    folder = data_dir("shaders").resolve()
    path = (folder / (name if name.endswith(".wgsl") else f"{name}.wgsl")).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise WebrtError(f"there is no WGSL body named {name!r}")
    return path


@cache
def shader_text(name: str) -> str:
    """The text of the WGSL body `name`; raises as `shader_path` does."""
    return shader_path(name).read_text(encoding="utf-8")


def load_shaders() -> None:
    """Reads every WGSL body now, for a process that cannot open files later."""
    folder = data_dir("shaders")
    for path in folder.rglob("*.wgsl"):
        shader_text(path.relative_to(folder).with_suffix("").as_posix())


def web_dir() -> Path:
    """The folder with the page's files (player.js, index.html, …)."""
    return data_dir("web")
