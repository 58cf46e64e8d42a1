"""Operators that cut: Slice and Split."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node
from webrt.lowering import Builder, Info, Shape, normalize_axis, op
from webrt.ops.args import ints, sizes
from webrt.ops.view import View, move

FAR = 2**31 - 1
"""Bounds from here on mean "to the end": no axis is longer."""
MOST_ELEMENTS = 2**40
"""No tensor, on a device or off it, has as many elements."""


@dataclass(frozen=True)
class Cut:
    """`count` elements of `axis` from `start` on, `step` apart; start is valid or count is 0."""

    axis: int
    start: Dim
    count: Dim
    step: int


def cut(axis: int, start: Dim, end: Dim, step: int, size: Dim) -> Cut:
    """ONNX's Slice of one axis: negative bounds count from the end, then are clamped. Raises ShapeError for step 0."""
    if step == 0:
        raise ShapeError(f"the slice of axis {axis} has step 0")
    if step > 0:
        first = D.maximum(0, _from_end(start, size))
        last = D.minimum(_from_end(end, size), size)
        count = D.maximum(0, D.ceildiv(D.sub(last, first), step))
        return Cut(axis, D.minimum(first, size), count, step)
    first = D.minimum(_from_end(start, size), D.sub(size, 1))
    if not (isinstance(start, int) and start >= -1):
        first = D.maximum(0, first)
    last = D.maximum(-1, _from_end(end, size)) if not _below(end) else -1
    count = D.minimum(D.maximum(0, D.ceildiv(D.sub(first, last), -step)), size)
    return Cut(axis, D.maximum(first, 0), count, step)


def _below(bound: Dim) -> bool:
    return isinstance(bound, int) and bound <= -FAR


def _from_end(bound: Dim, size: Dim) -> Dim:
    if isinstance(bound, int):
        if abs(bound) >= FAR:
            return size if bound > 0 else -1
        return bound if bound >= 0 else D.add(size, bound)
    return D.select(D.lt(bound, 0), D.add(size, bound), bound)


def _cuts(n: Node) -> list[Cut]:
    shape = n.input(0).known_shape
    starts, ends = sizes(n, "starts", 1) or [], sizes(n, "ends", 2) or []
    given = ints(n, "axes", 3)
    axes = list(range(len(starts))) if given is None else [normalize_axis(a, len(shape)) for a in given]
    steps = ints(n, "steps", 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(set(axes)) != len(axes) or len(axes) > len(shape):
        raise InvalidModel(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit together")
    ends = [_end(e, shape, a) for e, a in zip(ends, axes)]
    return [cut(a, s, e, t, shape[a]) for a, s, e, t in zip(axes, starts, ends, steps)]


def _end(bound: Dim, shape: Shape, axis: int) -> Dim:
    """The bound, or FAR where a tensor with the other axes' sizes is too small for it: exporters write bounds
    such as 10^9 for "to the end", and sizes that stay free are simpler without."""
    others = math.prod(d for k, d in enumerate(shape) if k != axis and isinstance(d, int) and d > 0)
    return FAR if isinstance(bound, int) and bound * others >= MOST_ELEMENTS else bound


def _slice_shape(n: Node) -> list[Info]:
    shape = list(n.input(0).known_shape)
    for c in _cuts(n):
        shape[c.axis] = c.count
    return [(n.input(0).dtype, tuple(shape))]


def _parts(n: Node) -> list[Dim]:
    """The size of each output along the axis."""
    shape = n.input(0).known_shape
    total, count = shape[normalize_axis(n.attr("axis", 0), len(shape))], len(n.outputs)
    given = sizes(n, "split", 1)
    if n.attr("num_outputs", count) != count:
        raise InvalidModel(f"num_outputs is {n.attr('num_outputs')}, the node has {count} outputs")
    if given is not None:
        if len(given) != count:
            raise InvalidModel(f"{len(given)} sizes are given for {count} outputs")
        if D.eq(sum(given), total) == 0:
            raise ShapeError(f"parts {given} do not fill an axis of {total}")
        return given
    if n.opset < 18 and isinstance(total, int) and total % count:
        raise ShapeError(f"an axis of {total} does not split into {count} equal parts")
    each = D.ceildiv(total, count) if n.opset >= 18 else D.floordiv(total, count)
    last = D.sub(total, D.mul(each, count - 1))
    if not D.at_least(last, 0):
        last = D.maximum(last, 0)
    return [*[each] * (count - 1), last if n.opset >= 18 else each]


def _split_shape(n: Node) -> list[Info]:
    shape = n.input(0).known_shape
    axis = normalize_axis(n.attr("axis", 0), len(shape))
    return [(n.input(0).dtype, (*shape[:axis], size, *shape[axis + 1 :])) for size in _parts(n)]


@op("Slice", shape=_slice_shape)
def slice_(n: Node, b: Builder) -> None:
    view = View.of(n.input(0).known_shape)
    for c in _cuts(n):
        view = view.cut(c.axis, c.start, c.count, c.step)
    move(b, n.output(), n.input(0), view, "slice")


@op("Split", shape=_split_shape)
def split(n: Node, b: Builder) -> None:
    x, start, parts = n.input(0), 0, _parts(n)
    axis = normalize_axis(n.attr("axis", 0), x.rank)
    total: Dim = sum(parts, start=0)
    b.check(D.eq(total, x.known_shape[axis]), f"Split: parts of {total} do not fill an axis of {x.known_shape[axis]}")
    at: Dim = start
    for out, size in zip(n.outputs, parts):
        if out is not None:
            move(b, out, x, View.of(x.known_shape).cut(axis, at, size), "split")
        at = D.add(at, size)
