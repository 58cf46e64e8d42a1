"""Operators that repeat: Expand and Tile."""

from __future__ import annotations

from webrt import dims as D
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node
from webrt.lowering import Builder, Info, broadcast_shapes, op
from webrt.ops.view import View, move


def _expand_shape(n: Node) -> list[Info]:
    return [(n.input(0).dtype, broadcast_shapes(n.input(0).known_shape, n.dims(1)))]


def _tile_shape(n: Node) -> list[Info]:
    shape, repeats = n.input(0).known_shape, n.dims(1)
    if len(shape) != len(repeats):
        raise InvalidModel(f"{len(repeats)} repeats are given for rank {len(shape)}")
    if any(isinstance(r, int) and r < 0 for r in repeats):
        raise ShapeError(f"the repeats {list(repeats)} are not all at least 0")
    return [(n.input(0).dtype, tuple(D.mul(d, r) for d, r in zip(shape, repeats)))]


@op("Expand", since=8, shape=_expand_shape)
def expand(n: Node, b: Builder) -> None:
    x, target = n.input(0), n.output().known_shape
    view = View.of([1] * (len(target) - x.rank) + list(x.known_shape))
    for axis, size in enumerate(target):
        have = view.shape[axis]
        if have == 1:
            view = view.repeat(axis, size)
        elif have != size:
            stride = D.select(D.eq(have, 1), 0, view.strides[axis])
            steps = (*view.strides[:axis], stride, *view.strides[axis + 1 :])
            view = View((*view.shape[:axis], size, *view.shape[axis + 1 :]), steps)
    move(b, n.output(), x, view, "expand")


@op("Tile", since=6, shape=_tile_shape)
def tile(n: Node, b: Builder) -> None:
    """Each axis is read as (repeats, size)."""
    x, repeats = n.input(0), n.dims(1)
    whole = View.of(x.known_shape)
    shape = [d for pair in zip(repeats, whole.shape) for d in pair]
    steps = [s for stride in whole.strides for s in (0, stride)]
    move(b, n.output(), x, View(tuple(shape), tuple(steps)), "tile")
