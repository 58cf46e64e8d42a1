"""Values seen through what only moves their elements: as views of the tensors that those nodes read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from webrt import dims as D
from webrt.compiler.lines import Lines
from webrt.compiler.rewrite import number
from webrt.dims import Dim
from webrt.ir import Value
from webrt.lowering import Alias, Window, strides
from webrt.ops.view import View


@dataclass(frozen=True)
class Seen:
    """Axes of interest as a view of a tensor's elements, which are to be multiplied by `scale`."""

    x: Value
    view: View
    scale: float = 1.0


def trace(lines: Lines, seen: Seen, scaled: bool = False) -> Seen:
    """The same elements of the first tensor that is more than a view of another (`scaled`: or a multiple)."""
    while (further := source_of(lines, seen, scaled)) is not None:
        seen = further
    return seen


def through(inner: View, outer: View) -> View | None:
    """`outer`, a view of the tensor that `inner` is of another one, as a view of that; None where it is no such."""
    own = strides(inner.shape)
    found = [_along(own, inner.shape, step) for step in outer.strides]
    moves: list[Dim] = []
    for size, step, place in zip(outer.shape, outer.strides, found, strict=True):
        if size == 1 or step == 0:
            moves.append(0)
            continue
        if place is None or not _inside(place, size, inner.shape, found):
            return None
        moves.append(D.mul(place[1], inner.strides[place[0]]))
    start = _along(own, inner.shape, outer.offset) if outer.offset != 0 else (0, 0)
    if start is None or (outer.offset != 0 and not _inside(start, 1, inner.shape, ())):
        return None
    at = D.mul(start[1], inner.strides[start[0]]) if outer.offset != 0 else 0
    return View(outer.shape, tuple(moves), D.add(inner.offset, at))


def source_of(lines: Lines, seen: Seen, scaled: bool = False) -> Seen | None:
    """The same elements of what the line that makes them reads; None where that is more than a view (`scaled`: or a
    multiple)."""
    i = lines.maker.get(seen.x)
    if i is None or lines.placed[i].how not in ("kernel", "copy", "alias"):
        return None
    p = lines.placed[i]
    for step in p.steps:
        if isinstance(step, Alias) and step.out is seen.x:
            return replace(seen, x=step.source)
    for out, source, view in p.moves:
        if out is seen.x and not isinstance(source, Window):
            further = through(view, seen.view)
            return None if further is None else replace(seen, x=source, view=further)
    if scaled and p.node.op in ("Mul", "Div") and lines.formula(i) is not None:
        return _multiple(p.node.inputs, p.node.op == "Div", seen)
    return None


def _multiple(operands: list[Value | None], divided: bool, seen: Seen) -> Seen | None:
    a, b = operands
    if number(a) is not None and not divided:
        a, b = b, a
    factor = number(b)
    if a is None or factor is None or factor == 0 or a.shape != seen.x.shape or a.dtype != seen.x.dtype:
        return None
    return replace(seen, x=a, scale=seen.scale / factor if divided else seen.scale * factor)


def _along(own: Sequence[Dim], shape: Sequence[Dim], step: Dim) -> tuple[int, Dim] | None:
    """(axis, count): moving by `step` elements is moving by so many places of an axis of a tensor of `shape`."""
    for a, (extent, stride) in enumerate(zip(shape, own, strict=True)):
        if extent == 1 or stride == 0:
            continue
        times = D.floordiv(step, stride)
        if times != 0 and D.mul(times, stride) == step:
            return a, times
    return None


def _inside(place: tuple[int, Dim], size: Dim, shape: Sequence[Dim], others: Sequence[tuple[int, Dim] | None]) -> bool:
    """Whether `size` such moves stay on their axis: there is room for them, or the next larger move begins there."""
    axis, times = place
    return D.at_least(shape[axis], D.mul(times, size)) or (axis, D.mul(times, size)) in others
