"""numpy's broadcasting as index arithmetic: from an output's flat index to each operand's.

Adjacent axes that every operand reads the same way are one axis, so the usual forms (equal shapes, a scalar, a vector
along the last axes, one value per channel) need no division, or one. The text depends on how the axes are read only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webrt import dims as D
from webrt.dims import Dim
from webrt.lowering import Shape, strides

FULL, ONE, EITHER = "f", "1", "?"
"""How an operand reads an axis: along it, always its only element, or as the size turns out at the run."""


@dataclass(frozen=True)
class Layout:
    """Collapsed sizes of the output; how each operand reads each axis, and its strides (elements) there."""

    sizes: Shape
    reads: Mapping[str, str]
    strides: Mapping[str, Shape]

    @property
    def fours(self) -> bool:
        """Whether four output elements at 4v … 4v+3 always lie along the last axis of every operand that moves."""
        if not self.sizes or any(r[-1] == EITHER for r in self.reads.values()):
            return False
        return len(self.sizes) == 1 or D.mod(self.sizes[-1], 4) == 0

    def wide(self, name: str) -> bool:
        """Whether an operand moves along the last axis."""
        return self.reads[name][-1:] == FULL


@dataclass(frozen=True)
class Address:
    """WGSL statements, then the index of each operand as an expression; `params` are the sizes that they use."""

    lines: Sequence[str]
    index: Mapping[str, str]
    params: Mapping[str, Dim]


def align(out: Sequence[Dim], shapes: Mapping[str, Sequence[Dim]]) -> Layout:
    """The layout of operands that broadcast to `out`."""
    sizes: list[Dim] = []
    axes: list[list[tuple[str, Dim]]] = []
    own = {name: strides(shape) for name, shape in shapes.items()}
    for k, size in enumerate(out):
        if size == 1:
            continue
        column = [_read(size, shape, own[name], k - len(out)) for name, shape in shapes.items()]
        hows = [how for how, _ in column]
        if axes and EITHER not in hows and hows == [how for how, _ in axes[-1]]:
            sizes[-1], axes[-1] = D.mul(sizes[-1], size), column
        else:
            sizes.append(size)
            axes.append(column)
    return Layout(
        tuple(sizes),
        {name: "".join(c[i][0] for c in axes) for i, name in enumerate(shapes)},
        {name: tuple(c[i][1] for c in axes) for i, name in enumerate(shapes)},
    )


def address(layout: Layout, i: str, per: int = 1) -> Address:
    """The operands' indices for output index `i`, a WGSL name.

    With `per` 4, i and the index of operands that are `wide` count fours of elements; the layout must be `fours`."""
    last = len(layout.sizes) - 1
    params: dict[str, Dim] = {}
    needed: set[int] = set()
    index: dict[str, str] = {}
    for name, reads in layout.reads.items():
        if ONE not in reads and EITHER not in reads:
            index[name] = i if reads else "0u"
            continue
        scale = per if layout.wide(name) else 1
        inner = max((k for k, how in enumerate(reads) if how != ONE), default=-1)
        terms = []
        for k, how in enumerate(reads):
            if how == ONE:
                continue
            needed.add(k)
            if how == FULL and k == inner:
                terms.append(f"c{k}")
                continue
            params[f"{name}_{k}"] = D.floordiv(layout.strides[name][k], scale)
            terms.append(f"c{k} * p.{name}_{k}")
        index[name] = " + ".join(terms) or "0u"
    lines, sizes = _coordinates(layout.sizes, needed, i, per, last)
    return Address(lines, index, params | sizes)


def _coordinates(sizes: Shape, needed: set[int], i: str, per: int, last: int) -> tuple[list[str], dict[str, Dim]]:
    lines: list[str] = []
    params: dict[str, Dim] = {}
    rest = i
    for k in range(last, 0, -1):
        if not any(n <= k for n in needed):
            break
        params[f"d{k}"] = D.floordiv(sizes[k], per) if k == last else sizes[k]
        lines.append(f"let r{k} = {rest} / p.d{k};")
        if k in needed:
            lines.append(f"let c{k} = {rest} - r{k} * p.d{k};")
        rest = f"r{k}"
    if 0 in needed:
        lines.append(f"let c0 = {rest};")
    return lines, params


def _read(size: Dim, shape: Sequence[Dim], own: Sequence[Dim], axis: int) -> tuple[str, Dim]:
    """How an operand reads the axis (negative, from the end) of an output that has `size` there."""
    have = shape[axis] if -axis <= len(shape) else 1
    if have == 1:
        return ONE, 0
    if have == size:
        return FULL, own[axis]
    return EITHER, D.select(D.eq(have, 1), 0, own[axis])
