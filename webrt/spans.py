"""When a place is used: by tensors that have it one after another."""

from __future__ import annotations

from bisect import bisect_left, insort


class Spans:
    """Disjoint spans of steps, each from `first` to `last`, in order."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def idle(self, first: int, last: int) -> int | None:
        """The steps between this span and its nearest neighbour; 0 where it has none, None where it overlaps one."""
        at = bisect_left(self._spans, (first, last))
        gaps = [first - self._spans[at - 1][1]] if at > 0 else []
        gaps += [self._spans[at][0] - last] if at < len(self._spans) else []
        gap = min(gaps, default=0)
        return gap if gap > 0 or not gaps else None

    def add(self, first: int, last: int) -> None:
        """Adds a span that overlaps none."""
        insort(self._spans, (first, last))
