"""The order of nodes on two providers: those of one provider stand together, so that the CPU waits less often."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from webrt.compiler.islands import islands_of, waits_of
from webrt.compiler.lines import Lines
from webrt.compiler.partition import Placed

NAME = "join_segments"


def join_segments(lines: Lines) -> None:
    """Nodes on the CPU with others of WebGPU between, which need not be there → side by side, where that saves a wait
    for the device."""
    if not any(p.how == "host" for p in lines.placed):
        return
    before, waits = lines.placed, _count(lines)
    best = before
    for first in (False, True) if waits > 1 else ():
        order = [before[i] for i in _grouped(lines, first)]
        found = _count(Lines(order, lines.kept, lines.target))
        if found < waits:
            best, waits = order, found
    if best is not before:
        lines.rebuild(best)


def _count(lines: Lines) -> int:
    return sum(1 for _ in waits_of(lines, islands_of(lines)))


def _grouped(lines: Lines, host: bool) -> list[int]:
    """The lines, each after what it needs, all that can run on a provider before the next on the other: beginning with
    the CPU or with WebGPU. What runs nowhere goes along."""
    readers, missing = _needs(lines)
    ready: dict[bool, list[int]] = {False: [], True: []}
    out: list[int] = []
    for i, count in enumerate(missing):
        if count == 0:
            heapq.heappush(ready[_side(lines.placed[i], host)], i)
    while len(out) < len(missing):
        host = host if ready[host] else not host
        i = heapq.heappop(ready[host])
        out.append(i)
        for k in readers[i]:
            missing[k] -= 1
            if missing[k] == 0:
                heapq.heappush(ready[_side(lines.placed[k], host)], k)
    return out


def _side(p: Placed, host: bool) -> bool:
    """Whether a line is of the CPU's; what runs nowhere is of the side that is at work."""
    return host if p.how in ("folded", "fused") else p.how == "host"


def _needs(lines: Lines) -> tuple[Sequence[Sequence[int]], list[int]]:
    """For each line those that read what it makes, and of how many others it reads something. Sizes that a line's
    tensors have come from what it reads, too."""
    readers: list[list[int]] = [[] for _ in lines.placed]
    missing: list[int] = []
    for i, p in enumerate(lines.placed):
        makers = {lines.maker[v] for v in (*p.node.given(), *p.node.outer) if v in lines.maker}
        missing.append(len(makers))
        for k in makers:
            readers[k].append(i)
    return readers, missing
