"""What a caller asks of a compilation, checked before anything is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from webrt.compiler import fuse, islands, normalize, order
from webrt.compiler.options import CompileOptions, Level
from webrt.compiler.places import PROVIDERS
from webrt.errors import InputError

MAX_SIZE = 2**31 - 1

PASS_NAMES = (
    *(name for name, _ in normalize.PASSES), islands.NAME, order.NAME, *(name for name, _ in fuse.PASSES), "parts",
    "in_place",
)  # fmt: skip
"""All passes, in order; those of normalize.REQUIRED run even where they are switched off."""


def check(options: CompileOptions) -> None:
    """Raises InputError for a level, a provider, a pass, a time or bounds of a size that no compilation knows."""
    _known("level", [options.level], get_args(Level))
    if not options.providers:
        raise InputError(f"no provider is listed; the providers are {' and '.join(PROVIDERS)}")
    _known("provider", options.providers, PROVIDERS)
    _known("pass", options.disabled, PASS_NAMES)
    if options.seconds is not None and not options.seconds >= 0:
        raise InputError(f"compiling may take a number of seconds, not {options.seconds!r}")
    for name, size in options.free_dims.items():
        if not _is_size(size) and not _are_bounds(size):
            raise InputError(
                f"the dim {name!r} is given {size!r}; a size is an integer from 0 to 2**31 - 1, "
                "and bounds are two of them, (lowest, highest)"
            )


def _known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    if isinstance(names, str):
        raise InputError(f"a list of names is needed, not {names!r}")
    for name in names:
        if name not in known:
            raise InputError(f"there is no {what} {name!r}; there are {', '.join(known)}")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_SIZE


def _are_bounds(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_size, value)) and value[0] <= value[1]
