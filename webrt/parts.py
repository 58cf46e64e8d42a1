"""Which of webrt's two packages are here: `webrt` runs plans, `webrt-compiler` adds the rest to the same folder.

An install from a source tree has all of it, as one package.
"""

from __future__ import annotations

import importlib.util
import sys

from webrt.errors import PlacementError

COMPILER = "webrt-compiler"


def has(module: str) -> bool:
    """Whether a module of webrt is installed, "webrt.compiler" for example; it is not imported."""
    return importlib.util.find_spec(module) is not None


def need(module: str, what: str) -> None:
    """Raises PlacementError, which says how to get it, where `what` needs a module that is not installed."""
    if has(module):
        return
    if sys.platform == "emscripten":
        raise PlacementError(f"{what} needs more than this page loaded: await pyodide.loadPackage('{COMPILER}') first")
    raise PlacementError(f"{what} needs the package {COMPILER}, which is not installed: pip install {COMPILER}")
