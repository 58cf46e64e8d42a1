"""Islands of WebGPU among nodes of the CPU provider: those that cost less on the CPU are moved there.

An island is a maximal group of lines on WebGPU that values connect. It may move where it lies between nodes on the CPU
(it reads what one of them makes, and one of them reads what it makes), so that a model without such nodes never has one
moved; where all its nodes move elements, are plain formulas or reductions; and where its sizes are known, or bounded by
the caller. An If, a Loop or a Scan, what reads a size back, and nodes that the caller places keep theirs where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from webrt import dims as D
from webrt.compiler import places
from webrt.compiler.lines import Lines
from webrt.compiler.normalize import RANDOM
from webrt.compiler.partition import Placed
from webrt.errors import counted
from webrt.ir import Graph, Value
from webrt.lowering import CopyBytes, Launch, ReadBack

NAME = "move_islands"

WAIT, DISPATCH, TRANSFER, NODE = 250, 10, 10, 35
"""Microseconds: a submit with the wait for what it computes, a dispatch, a transfer of few bytes between host and
device, a small node on the CPU. Measured natively on two software adapters; in a page a wait takes 1200."""
TRANSFERRED, TOUCHED = 1000, 300
"""Bytes in a microsecond: of a transfer; that a node on the CPU reads and writes."""
REDUCTIONS = frozenset(
    {*(f"Reduce{how}" for how in ("Sum", "Mean", "Max", "Min", "Prod")), "ArgMax", "ArgMin", "Softmax", "CumSum"}
)
ON_DEVICE = frozenset({"kernel", "copy", "alias", "branch", "loop"})


@dataclass(frozen=True)
class _Cost:
    """Microseconds, and what they are made of."""

    here: float
    there: float
    what: str


def move_islands(lines: Lines, graph: Graph, sizes: Mapping[str, int | tuple[int, int]]) -> None:
    """Islands that cost less on the CPU → nodes of the CPU provider. `sizes`: of free dims, or (lowest, highest)."""
    if not any(p.how == "host" for p in lines.placed):
        return
    highest = {name: size if isinstance(size, int) else size[1] for name, size in sizes.items()}
    island_of = islands_of(lines)
    members: dict[int, list[int]] = {}
    for i, island in island_of.items():
        members.setdefault(island, []).append(i)
    movable = {n for n, ms in members.items() if all(_may_move(lines.placed[i], graph) for i in ms)}
    waits = [w for w in waits_of(lines, island_of) if w <= movable]
    together = _together(waits)
    alone = {n: n for n in members}
    for grouping in (together, alone):
        groups: dict[int, list[int]] = {}
        for n in sorted(movable):
            groups.setdefault(grouping.get(n, n), []).extend(members[n])
        count = Counter(grouping[min(w)] for w in waits if len({grouping[n] for n in w}) == 1)
        for n, group in groups.items():
            _move(lines, sorted(group), count[n], highest)
        movable -= {n for n in movable if lines.placed[members[n][0]].how == "host"}


def _move(lines: Lines, group: Sequence[int], waits: int, highest: Mapping[str, int]) -> None:
    cost = _cost(lines, group, waits, highest)
    if cost is not None and cost.there < cost.here:
        reason = f"moved to the CPU provider: there about {cost.there:.0f} µs, on WebGPU about {cost.here:.0f}"
        for i in group:
            p = lines.placed[i]
            lines.placed[i] = Placed(p.node, "host", f"{reason} ({cost.what})", checks=p.checks)


def _cost(lines: Lines, group: Sequence[int], waits: int, highest: Mapping[str, int]) -> _Cost | None:
    """None where the group does not lie between nodes on the CPU, or a size is not known."""
    placed = [lines.placed[i] for i in group]
    up = {v for p in placed for v in p.node.given() if _on_host(lines, [lines.maker[v]] if v in lines.maker else [])}
    made = [v for p in placed for v in p.node.outputs if v is not None]
    down = {v for v in made if _on_host(lines, lines.readers.get(v, ()))}
    crossing = _bytes([*up, *down], highest)
    touched = _bytes([*made, *(v for p in placed for v in p.node.given())], highest)
    if not up or not down or crossing is None or touched is None:
        return None
    dispatches, transfers = _dispatches(placed), len(up) + len(down)
    here = waits * WAIT + dispatches * DISPATCH + transfers * TRANSFER + crossing / TRANSFERRED
    what = f"{counted(dispatches, 'dispatch')}, {counted(transfers, 'transfer')} of {crossing} bytes"
    return _Cost(here, len(placed) * NODE + touched / TOUCHED, f"{what}, {counted(waits, 'wait')}")


def _on_host(lines: Lines, which: Iterable[int]) -> bool:
    return any(lines.placed[i].how == "host" for i in which)


def _dispatches(placed: Sequence[Placed]) -> int:
    """How many there are where formulas share one."""
    formulas = any(p.elementwise for p in placed)
    steps = (s for p in placed if not p.elementwise for s in p.steps)
    return formulas + sum(isinstance(s, (Launch, CopyBytes)) for s in steps)


def _bytes(values: Iterable[Value], highest: Mapping[str, int]) -> int | None:
    """Bytes of all of them; at the highest sizes that the caller allows. None where nobody knows."""
    total = 0
    for v in values:
        elements = D.substitute(v.elements, dict(highest)) if v.shape is not None else None
        if not isinstance(elements, int) or v.dtype is None:
            return None
        total += v.dtype.nbytes(elements)
    return total


def _may_move(p: Placed, graph: Graph) -> bool:
    """Whether a line's node is quick on the CPU, and free to go."""
    quick = p.how in ("copy", "alias") or p.elementwise or p.moves or p.node.op in REDUCTIONS
    stays = p.node.op in RANDOM or any(isinstance(s, ReadBack) for s in p.steps) or p.how in ("branch", "loop")
    return bool(quick) and not stays and not places.wished_for(p.node, graph)


def islands_of(lines: Lines) -> dict[int, int]:
    """For each line on WebGPU the first of its island."""
    parent: dict[int, int] = {}
    for i, p in enumerate(lines.placed):
        if p.how in ON_DEVICE:
            parent[i] = i
            for v in (*p.node.given(), *p.node.outer):
                if lines.maker.get(v, -1) in parent:
                    _unite(parent, lines.maker[v], i)
    return {i: _root(parent, i) for i in parent}


def waits_of(lines: Lines, island_of: Mapping[int, int]) -> Iterator[frozenset[int]]:
    """For each time that nodes of the CPU wait for what WebGPU computes: the islands that they wait for."""
    fetched: set[Value] = set()
    sources: set[int] = set()
    for i, p in enumerate(lines.placed):
        if p.how == "host":
            wanted = {v for v in (*p.node.given(), *p.node.outer) if lines.maker.get(v, -1) in island_of} - fetched
            fetched |= wanted
            sources |= {island_of[lines.maker[v]] for v in wanted}
        elif i in island_of and p.how != "alias" and sources:
            yield frozenset(sources)
            sources = set()
    if sources:
        yield frozenset(sources)


def _together(waits: Collection[frozenset[int]]) -> dict[int, int]:
    """For each island of these the first of those that have to move together if a wait is to be saved."""
    parent = {n: n for w in waits for n in w}
    for w in waits:
        for n in w:
            _unite(parent, min(w), n)
    return {n: _root(parent, n) for n in parent}


def _root(parent: dict[int, int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _unite(parent: dict[int, int], a: int, b: int) -> None:
    a, b = _root(parent, a), _root(parent, b)
    parent[max(a, b)] = min(a, b)
