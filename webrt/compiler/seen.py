"""Values seen through what only moves their elements: as views of the tensors that those nodes read."""

from __future__ import annotations

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
    while (further := _source(lines, seen, scaled)) is not None:
        seen = further
    return seen


def through(inner: View, outer: View) -> View | None:
    """`outer`, a view of the tensor that `inner` is of another one, as a view of that; None where it is no such."""
    own = strides(inner.shape)
    moves: list[Dim] = []
    for size, step in zip(outer.shape, outer.strides, strict=True):
        found = 0 if size == 1 or step == 0 else _along(inner, own, size, step)
        if found is None:
            return None
        moves.append(found)
    start = 0 if outer.offset == 0 else _along(inner, own, 1, outer.offset)
    return None if start is None else View(outer.shape, tuple(moves), D.add(inner.offset, start))


def _source(lines: Lines, seen: Seen, scaled: bool) -> Seen | None:
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


def _along(inner: View, own: tuple[Dim, ...] | list[Dim], size: Dim, step: Dim) -> Dim | None:
    """The stride in the source of an axis that moves by `step` elements of what `inner` shows."""
    for extent, stride, moves in zip(inner.shape, own, inner.strides, strict=True):
        if extent == 1 or stride == 0:
            continue
        times = D.floordiv(step, stride)
        if times != 0 and D.mul(times, stride) == step and D.at_least(extent, D.mul(times, size)):
            return D.mul(times, moves)
    return None
