"""Random numbers of a test, whichever tests ran before it in its process."""

from __future__ import annotations

import functools
import sys
import zlib
from typing import Any

import numpy as np


def begin(test: str) -> None:
    """Every generator that stands in a module of tests begins anew, at a place that follows from the test's name."""
    place = zlib.crc32(test.encode()) << 16
    for generator, state in _generators():
        generator.bit_generator.state = state
        generator.bit_generator.advance(place)  # type: ignore[attr-defined]


@functools.cache
def _generators() -> list[tuple[np.random.Generator, Any]]:
    """Those of all modules that were collected, and how they stood then."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("tests.")]
    found = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, np.random.Generator)}
    return [(generator, generator.bit_generator.state) for generator in found.values()]
