"""Which input an element of a concatenation comes from, and what inputs that are computed alike have in common.

Branches that neighbours take apart are all run one after another. Where inputs are the same function of the same
tensor but for parameters, such as slices or shifted copies of one, a kernel picks the parameters and runs it once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webrt.ir import Value

if TYPE_CHECKING:
    from webrt.ops.outline import Outline

_PICK = re.compile(r"let o = i / p\.e(\d+);\n")


def at(branch: int) -> str:
    """The index in input `branch` of element i."""
    return f"o * p.r{branch} + j" + (f" - p.e{branch - 1}" if branch else "")


def head(count: int) -> list[str]:
    """The statements that tell the row `o` of element i and its place `j` there, of so many inputs."""
    return [f"let o = i / p.e{count - 1};", f"let j = i - o * p.e{count - 1};"]


def pick(reads: Sequence[str]) -> str:
    """The body of a function of i: what each input gives by `reads`, one after another along rows of p.r0, p.r1, …
    elements that end at p.e0, p.e1, …"""
    lines = [f"if (j < p.e{k}) {{ return {read}; }}" for k, read in enumerate(reads[:-1])]
    return "\n".join([*head(len(reads)), *lines, f"return {reads[-1]};"])


def branches(outline: Outline) -> int:
    """How many inputs an outline picks from; 0 where it is none that `pick` made."""
    found = _PICK.match(outline.body)
    return int(found[1]) + 1 if found else 0


@dataclass(frozen=True)
class Family:
    """Inputs of a pick that are alike: their numbers, and for each the values that it is computed by, in one order."""

    members: tuple[int, ...]
    trees: tuple[tuple[Value, ...], ...]

    def differing(self, k: int, outlines: Mapping[Value, Outline]) -> list[str]:
        """The parameters of the k-th values in which the members differ."""
        first, *others = (outlines[tree[k]].params for tree in self.trees)
        return [name for name, x in first.items() if any(params[name] != x for params in others)]


def families(outline: Outline, outlines: Mapping[Value, Outline]) -> list[Family]:
    """The inputs that are alike, where there are several, the largest family first."""
    shapes, found = _Shapes(outlines), dict[int, list[int]]()
    inputs = [outline.reads[f"x{k}"] for k in range(branches(outline))]
    for k, v in enumerate(inputs):
        if v in outlines:
            found.setdefault(shapes.of(v), []).append(k)
    made = []
    for members in found.values():
        trees = tuple(_tree(inputs[k], outlines) for k in members)
        if len(members) > 1 and all(trees):
            made.append(Family(tuple(members), trees))
    return sorted(made, key=lambda f: -len(f.members))


@dataclass
class _Shapes:
    """Numbers for what alike values have in common: all but the sizes among their parameters."""

    outlines: Mapping[Value, Outline]
    numbers: dict[Any, int] = field(default_factory=dict)
    known: dict[Value, int] = field(default_factory=dict)

    def of(self, v: Value) -> int:
        if v not in self.known:
            self.known[v] = self.numbers.setdefault(self._key(v), len(self.numbers))
        return self.known[v]

    def _key(self, v: Value) -> Any:
        if v not in self.outlines:
            return v
        o = self.outlines[v]
        params = tuple((name, x if isinstance(x, float) else None) for name, x in o.params.items())
        return v.dtype, o.body, (*o.fns,), (*o.use,), params, tuple((name, self.of(x)) for name, x in o.reads.items())


def _tree(v: Value, outlines: Mapping[Value, Outline]) -> tuple[Value, ...]:
    """The values that v is computed by, itself first; none where one of them is read twice."""
    found, waiting = list[Value](), [v]
    while waiting:
        value = waiting.pop()
        if value in found:
            return ()
        if value in outlines:
            found.append(value)
            waiting += outlines[value].reads.values()
    return tuple(found)


def chain(members: Sequence[int], of: Mapping[int, str], ends: Mapping[int, str]) -> str:
    """Of the branch that element i is in what `of` has for it. It is one of the members: the first of which `ends`
    holds, else the last."""
    text = of[members[-1]]
    for k in reversed(members[:-1]):
        text = f"select({text}, {of[k]}, {ends[k]})"
    return text


def inside(members: Sequence[int], count: int) -> str:
    """Whether element i is in one of these branches, of `count`."""
    each = []
    for k in members:
        ends = [*([f"j >= p.e{k - 1}"] if k else []), *([f"j < p.e{k}"] if k < count - 1 else [])]
        each.append(f"({' & '.join(f'({end})' for end in ends)})")
    return " | ".join(each)
