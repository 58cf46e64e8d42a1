"""Operators that only move or make elements are computed where their elements are read."""

from __future__ import annotations

from collections.abc import Iterable

from webrt import dims as D
from webrt import dtypes as T
from webrt.compiler.groups import MAX_STEPS, exact
from webrt.compiler.lines import Lines
from webrt.errors import UnsupportedOp, UnsupportedType
from webrt.ir import Value
from webrt.lowering import Builder, normalize_axis
from webrt.ops.concat import LARGE, in_fours, is_large
from webrt.ops.outline import Outline, launch_outlines, needed, of_formula, of_node, stored
from webrt.ops.view import bits_of, unit
from webrt.schemas import MS_DOMAIN

_LOOKUP = f"{MS_DOMAIN}:GatherBlockQuantized"
MOVES = frozenset(
    {"Transpose", "Slice", "Split", "Expand", "Tile", "Concat", "Pad", "Gather", "GatherND", "GatherElements",
     "DepthToSpace", "SpaceToDepth", "Range", "Reshape", "Flatten", "Squeeze", "Unsqueeze", _LOOKUP}
)  # fmt: skip
"""Operators whose results cost no arithmetic worth storing."""

INJECTIVE = MOVES - {"Expand", "Tile", "Gather", "GatherND", "GatherElements", "Range", _LOOKUP}
"""Those that load no element twice."""

TYPES = frozenset({T.F32, T.F16, T.I32, T.U32, T.I64, T.U64, T.BOOL, T.I8, T.U8, T.I16, T.U16})

STORED = 1 << 20
"""Elements from which on a large concatenation that another kernel could take in is worth its memory."""

REACH = 6
"""Formulas between a line and a move that it might take in."""


def fuse_moves(lines: Lines) -> None:
    """Elementwise nodes, Concat, Pad, Gather … and the Transpose, Slice, Range … that they read → one kernel."""
    outlines = _Outlines(lines)
    for last in reversed(range(len(lines.placed))):
        if lines.placed[last].how in ("kernel", "copy") and outlines.distance[last] <= REACH:
            _fuse(lines, outlines, last)
    lines.drop_unread()


class _Outlines:
    """The outlines of lines, made when they are asked for, and how many formulas each is away from a move."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._known: dict[int, dict[Value, Outline]] = {}
        self.distance: list[int] = []
        for i, p in enumerate(lines.placed):
            makers = [lines.maker[v] for v in p.node.given() if v in lines.maker]
            before = [self.distance[k] for k in makers if k < i]  # a folded line may stand before what made its input
            near = 1 + min(before, default=REACH)
            self.distance.append(0 if self.moves(i) else near if lines.formula(i) is not None else REACH + 1)

    def moves(self, i: int) -> bool:
        """Whether a line on the device only moves or makes elements."""
        p = self._lines.placed[i]
        return p.how in ("kernel", "copy", "alias") and p.node.op in MOVES

    def cheap(self, i: int) -> bool:
        """Whether a line may be computed more than once: moves, and formulas of integers."""
        step = self._lines.formula(i)
        return self.moves(i) or (step is not None and step.out.dtype not in T.FLOATS)

    def reader(self, i: int) -> bool:
        """Whether a line can take in what it reads."""
        return self.moves(i) or self._lines.formula(i) is not None

    def once(self, i: int, v: Value) -> bool:
        """Whether line i, each of whose elements is computed once, loads each element of v once at most."""
        step, node = self._lines.formula(i), self._lines.placed[i].node
        if step is not None:
            return D.at_least(v.elements, step.out.elements)
        return node.op in INJECTIVE and (node.op != "Pad" or str(node.attr("mode", "constant")) == "constant")

    def together(self, v: Value) -> bool:
        """Whether all who read the value's elements read the same one at the same place."""
        readers = self._lines.readers.get(v, set())
        steps = [self._lines.formula(i) for i in readers]
        return len(readers) == 1 or all(s is not None and s.out.shape == v.shape for s in steps)

    def apart(self, i: int, least: int = LARGE) -> bool:
        """Whether line i is a large concatenation of fours: a software adapter loads of all parts for each element that
        another kernel takes from one, or takes in."""
        node = self._lines.placed[i].node
        if self._lines.target.kind != "software" or node.op != "Concat":
            return False
        return is_large(node.output(), least) and in_fours(node)

    def looks_up(self, i: int) -> bool:
        """Whether line i is a large lookup of rows of whole fours: it moves four elements at once, where a software
        adapter would work out the index of each again."""
        node = self._lines.placed[i].node
        if self._lines.target.kind != "software" or node.op != "Gather" or not is_large(node.output()):
            return False
        x = node.input(0)
        inner = D.prod(x.known_shape[normalize_axis(node.attr("axis", 0), x.rank) + 1 :])
        return unit(bits_of(x), (inner,)) >= 4

    def making(self, i: int, v: Value) -> dict[Value, Outline]:
        """The outline of a value that line i makes and of tensors within the line that it takes, if there are any."""
        return needed(self._of(i), v)

    def _of(self, i: int) -> dict[Value, Outline]:
        if i not in self._known:
            step = self._lines.formula(i)
            found: list[Outline] = []
            if step is not None:
                found = [of_formula(step)]
            elif self.moves(i):
                found = of_node(self._lines.placed[i].node, self._lines.target)
            self._known[i] = {o.out: o for o in found}
        return self._known[i]


def _fuse(lines: Lines, outlines: _Outlines, last: int) -> None:
    p = lines.placed[last]
    results = [v for v in p.node.outputs if v is not None]
    apart = outlines.apart(last) or outlines.looks_up(last)
    own = outlines.making(last, results[0]) if len(results) == 1 and not apart else {}
    if not own or not _typed(own.values()):
        return
    members = _grow(lines, outlines, last, own)
    owned = _owned(lines, {lines.maker[v] for v in members if v in lines.maker}, last)
    taken = {*owned, *(lines.maker[v] for v in members if v in lines.maker)} - {last}
    moved = [i for i in (*taken, last) if outlines.moves(i) and lines.placed[i].how != "alias"]
    if not moved or all(lines.placed[i].how == "alias" for i in taken):
        return
    builder = Builder(lines.target, f"{last}.fused")
    try:
        launch_outlines(builder, results[0], members, "elements")
    except (UnsupportedOp, UnsupportedType):
        return
    lines.merge(last, [i for i in sorted(owned) if i != last], builder, lines.reading(p.node, builder))


def _grow(lines: Lines, outlines: _Outlines, last: int, members: dict[Value, Outline]) -> dict[Value, Outline]:
    """The outlines that one kernel computes: those of line `last` and of what it loads, as far as that is worth it."""
    room = lines.target.limit("maxStorageBuffersPerShaderStage") - 1
    inside = {last}
    waiting = [(v, False, outlines.once(last, v)) for v in stored(members)]
    while waiting and len(members) < MAX_STEPS:
        v, again, once = waiting.pop()
        i = lines.maker.get(v)
        if i is None or v in members or v in lines.kept or not outlines.making(i, v):
            continue
        alone = not again and lines.only_for(v, inside)
        if not alone and not (outlines.cheap(i) and all(outlines.reader(k) for k in lines.readers[v])):
            continue
        if outlines.apart(i, STORED) or not (outlines.moves(i) or _exact(lines, i)):
            continue
        if not (outlines.cheap(i) or (once and outlines.together(v))):
            continue
        added = outlines.making(i, v)
        more = {**members, **added}
        if len(stored(more)) > room or not _typed(more.values()):
            continue
        members = more
        inside |= {i} if alone else set()
        waiting += [(u, not alone, once and outlines.once(i, u)) for u in stored(added)]
    return members


def _owned(lines: Lines, makers: set[int], last: int) -> set[int]:
    """Those of the lines whose values nobody but they, and line `last`, reads."""
    owned = {last}
    for i in sorted(makers, reverse=True):
        outputs = [v for v in lines.placed[i].node.outputs if v is not None]
        if all(lines.only_for(v, owned) for v in outputs):
            owned.add(i)
    return owned


def _exact(lines: Lines, i: int) -> bool:
    """Whether line i is a formula whose result need not be stored."""
    step = lines.formula(i)
    return step is not None and exact(step)


def _typed(outlines: Iterable[Outline]) -> bool:
    """Whether all that is computed and loaded has a type that a function can return."""
    return all(v.dtype in TYPES for o in outlines for v in (o.out, *o.reads.values()))
