"""Operators that change the shape alone, and those that tell it: Reshape, Flatten, Squeeze, Unsqueeze, Identity, Shape,
Size."""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, NotConstant, ShapeError, UnsupportedType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, normalize_axis, op, same_as_first
from webrt.ops.args import ints
from webrt.ops.view import movable


def write_dims(b: Builder, out: Value, values: Sequence[Dim]) -> None:
    """Writes sizes, known at each run, to an integer or bool tensor of as many elements."""
    converted = {T.I64: "i64_from_i32(bitcast<i32>(v[i]))", T.I32: "bitcast<i32>(v[i])", T.BOOL: "v[i] != 0u"}
    if out.dtype not in converted:
        raise UnsupportedType(f"sizes are not written as {out.dtype}")
    names = [f"v{k}" for k in range(len(values))]
    text = f"var v = array<u32, {len(names)}>({', '.join(f'p.{k}' for k in names)});\nreturn {converted[out.dtype]};"
    b.map(out, text if names else "return Out();", params=dict(zip(names, values)), name="sizes")


def reshaped(shape: Sequence[Dim], target: Sequence[Dim], allowzero: bool) -> tuple[Dim, ...]:
    """ONNX's Reshape: 0 keeps a size unless `allowzero`, one -1 takes what is left; sizes of `target` may be symbolic.

    Raises ShapeError or InvalidModel where the numbers cannot fit."""
    if sum(t == -1 for t in target) > 1:
        raise InvalidModel(f"the target shape {list(target)} has more than one -1")
    kept = [_kept(shape, i, t, allowzero) for i, t in enumerate(target)]
    factors = [D.select(D.eq(t, -1), 1, k) if not D.at_least(k, 0) else k for t, k in zip(target, kept)]
    total, known = D.prod(shape), D.prod(factors)
    out = []
    for t, k in zip(target, kept):
        if D.at_least(k, 0):
            out.append(k)
            continue
        if known == 0 or (isinstance(total, int) and isinstance(known, int) and total % known and t == -1):
            raise ShapeError(f"{total} elements cannot take the shape {list(target)}")
        divisor = known if t == -1 else D.maximum(known, 1)  # where t is no -1, the quotient is not used
        out.append(D.select(D.eq(t, -1), D.floordiv(total, divisor), k))
    if isinstance(total, int) and all(isinstance(d, int) for d in out) and D.prod(out) != total:
        raise ShapeError(f"{total} elements cannot take the shape {list(target)}")
    return tuple(out)


def _kept(shape: Sequence[Dim], i: int, t: Dim, allowzero: bool) -> Dim:
    if allowzero or (isinstance(t, int) and t != 0) or (not isinstance(t, int) and D.at_least(t, 0)):
        return t
    if t == 0 and i >= len(shape):
        raise ShapeError(f"the target shape keeps axis {i} of a tensor of rank {len(shape)}")
    return D.select(D.eq(t, 0), shape[i], t) if i < len(shape) else t


def _reshape_shape(n: Node) -> list[Info]:
    x = n.input(0)
    return [(x.dtype, reshaped(x.known_shape, n.dims(1), bool(n.attr("allowzero", 0))))]


def _flatten_shape(n: Node) -> list[Info]:
    shape, axis = n.input(0).known_shape, n.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ShapeError(f"axis {axis} is out of range for rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return [(n.input(0).dtype, (D.prod(shape[:axis]), D.prod(shape[axis:])))]


def _squeezed_axes(n: Node) -> set[int]:
    shape, axes = n.input(0).known_shape, ints(n, "axes", 1)
    if axes is not None:
        named = {normalize_axis(a, len(shape)) for a in axes}
        if len(named) != len(axes):
            raise InvalidModel(f"axes {list(axes)} name one axis twice")
        return named
    if not all(isinstance(d, int) for d in shape):
        raise NotConstant(f"which axes of {n.input(0)!r} are 1 is not known before the run")
    return {a for a, d in enumerate(shape) if d == 1}


def _squeeze_shape(n: Node) -> list[Info]:
    shape, axes = n.input(0).known_shape, _squeezed_axes(n)
    for a in axes:
        if D.eq(shape[a], 1) == 0:
            raise ShapeError(f"axis {a} has size {shape[a]}, it cannot be squeezed")
    return [(n.input(0).dtype, tuple(d for a, d in enumerate(shape) if a not in axes))]


def _unsqueeze_shape(n: Node) -> list[Info]:
    shape, axes = n.input(0).known_shape, ints(n, "axes", 1) or []
    rank = len(shape) + len(axes)
    new = {normalize_axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise InvalidModel(f"axes {axes} name one axis twice")
    rest = iter(shape)
    return [(n.input(0).dtype, tuple(1 if a in new else next(rest) for a in range(rank)))]


def _shape_part(n: Node) -> tuple[Dim, ...]:
    shape = n.input(0).known_shape
    return shape[n.attr("start", 0) : n.attr("end", len(shape))]


@op("Reshape", since=5, shape=_reshape_shape)
def reshape(n: Node, b: Builder) -> None:
    movable(n.input(0))
    fits = D.eq(n.input(0).elements, n.output().elements)
    wanted = [D.brief(d) for d in (n.dims(1) if n.has(1) else n.output().known_shape)]
    b.check(fits, f"Reshape: {D.brief(n.input(0).elements)} elements do not fill [{', '.join(wanted)}]")
    b.alias(n.output(), n.input(0))


@op("Flatten", shape=_flatten_shape)
@op("Unsqueeze", shape=_unsqueeze_shape)
@op("Identity", shape=same_as_first)
def same_bytes(n: Node, b: Builder) -> None:
    movable(n.input(0))
    b.alias(n.output(), n.input(0))


@op("Squeeze", shape=_squeeze_shape)
def squeeze(n: Node, b: Builder) -> None:
    movable(n.input(0))
    for a in sorted(_squeezed_axes(n)):
        size = n.input(0).known_shape[a]
        b.check(D.eq(size, 1), f"Squeeze: axis {a} has size {size}, not 1")
    b.alias(n.output(), n.input(0))


@op("Shape", shape=lambda n: [(T.I64, (len(_shape_part(n)),))])
def shape_of(n: Node, b: Builder) -> None:
    write_dims(b, n.output(), _shape_part(n))


@op("Size", shape=lambda n: [(T.I64, ())])
def size_of(n: Node, b: Builder) -> None:
    write_dims(b, n.output(), [n.input(0).elements])
