"""Operators that reorder axes: Transpose, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import Builder, Info, op
from webrt.ops.view import View, move


def _perm(n: Node) -> list[int]:
    rank = n.input(0).rank
    perm = [int(a) for a in n.attr("perm") or reversed(range(rank))]
    if sorted(perm) != list(range(rank)):
        raise InvalidModel(f"perm {perm} is no permutation of {rank} axes")
    return perm


def _transpose_shape(n: Node) -> list[Info]:
    shape = n.input(0).known_shape
    return [(n.input(0).dtype, tuple(shape[a] for a in _perm(n)))]


def _nchw(n: Node) -> tuple[Dim, Dim, Dim, Dim, int]:
    shape, block = n.input(0).known_shape, int(n.attr("blocksize"))
    if len(shape) != 4 or block < 1:
        raise ShapeError(f"needs four axes and a positive blocksize, got {list(shape)} and {block}")
    batch, channels, height, width = shape
    return batch, channels, height, width, block


def _divided(what: str, size: Dim, by: int) -> Dim:
    if isinstance(size, int) and size % by:
        raise ShapeError(f"{what} of {size} are not divisible by {by}")
    return D.floordiv(size, by)


def _is_dcr(n: Node) -> bool:
    mode = n.attr("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise UnsupportedOp(f"mode {mode!r}")
    return bool(mode == "DCR")


def _depth_to_space_shape(n: Node) -> list[Info]:
    batch, channels, height, width, block = _nchw(n)
    shape = (batch, _divided("channels", channels, block * block), D.mul(height, block), D.mul(width, block))
    return [(n.input(0).dtype, shape)]


def _space_to_depth_shape(n: Node) -> list[Info]:
    batch, channels, height, width, block = _nchw(n)
    rows, columns = _divided("rows", height, block), _divided("columns", width, block)
    return [(n.input(0).dtype, (batch, D.mul(channels, block * block), rows, columns))]


@op("Transpose", shape=_transpose_shape)
def transpose(n: Node, b: Builder) -> None:
    move(b, n.output(), n.input(0), View.of(n.input(0).known_shape).permute(_perm(n)), "transpose")


@op("DepthToSpace", shape=_depth_to_space_shape)
def depth_to_space(n: Node, b: Builder) -> None:
    """DCR splits the channels into (block, block, depth), CRD into (depth, block, block)."""
    batch, channels, height, width, s = _nchw(n)
    depth = D.floordiv(channels, s * s)
    b.check(D.eq(D.mod(channels, s * s), 0), f"DepthToSpace: {channels} channels are not divisible by {s * s}")
    dcr = _is_dcr(n)
    split = (s, s, depth) if dcr else (depth, s, s)
    perm = (0, 3, 4, 1, 5, 2) if dcr else (0, 1, 4, 2, 5, 3)
    move(b, n.output(), n.input(0), View.of((batch, *split, height, width)).permute(perm), "depth_to_space")


@op("SpaceToDepth", shape=_space_to_depth_shape)
def space_to_depth(n: Node, b: Builder) -> None:
    """DCR joins (block, block, depth) to the channels, CRD (depth, block, block)."""
    batch, channels, height, width, s = _nchw(n)
    for what, size in (("rows", height), ("columns", width)):
        b.check(D.eq(D.mod(size, s), 0), f"SpaceToDepth: {size} {what} are not divisible by {s}")
    split = (batch, channels, D.floordiv(height, s), s, D.floordiv(width, s), s)
    perm = (0, 3, 5, 1, 2, 4) if _is_dcr(n) else (0, 1, 3, 5, 2, 4)
    move(b, n.output(), n.input(0), View.of(split).permute(perm), "space_to_depth")
