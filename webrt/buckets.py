"""Sizes that are about the same, for what was measured at some and is used at others."""

from __future__ import annotations

from collections.abc import Iterable


def bucket_of(numbers: Iterable[int]) -> tuple[int, ...]:
    """Numbers as unsigned words, rounded up to powers of two."""
    words = (n & 0xFFFFFFFF for n in numbers)
    return tuple(1 << (n - 1).bit_length() if n else 0 for n in words)
