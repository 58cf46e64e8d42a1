"""Concat: copies where each input is one run of whole words, else one kernel that picks the input by position, or on
software adapters, where large inputs are rows of fours, one for each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Variant, grid, normalize_axis, op, static_product
from webrt.ops import picks
from webrt.ops.view import aligned, bits_of, channels_to_last, copied, element_type, movable, unit, unit_type

LARGE = 1 << 14
FREE = 32
"""Elements from which on a concatenation is large, and what a free size counts."""


def _concat_shape(n: Node) -> list[Info]:
    first = n.input(0)
    axis = normalize_axis(n.attr("axis", 1), first.rank)
    if not first.rank:
        raise ShapeError("scalars cannot be concatenated")
    shape = list(first.known_shape)
    shape[axis] = 0
    for v in n.given():
        if v.rank != first.rank or v.dtype != first.dtype:
            raise InvalidModel(f"inputs {first!r} and {v!r} differ in rank or type")
        for a, d in enumerate(v.known_shape):
            if a == axis:
                shape[a] = D.add(shape[a], d)
            elif D.eq(shape[a], d) == 0:
                raise ShapeError(f"inputs {first!r} and {v!r} differ along axis {a}")
            elif isinstance(d, int):
                shape[a] = d
    return [(first.dtype, tuple(shape))]


def join(b: Builder, out: Value, parts: Sequence[Value], axis: int, name: str = "concat") -> None:
    """Writes `parts`, which differ in size along `axis` alone, one after another along it."""
    movable(*parts)
    shape = out.known_shape
    outer = shape[:axis]
    rows = [D.prod((v.known_shape[axis], *shape[axis + 1 :])) for v in parts]
    kept = [(v, r) for v, r in zip(parts, rows) if r != 0] or [(parts[0], rows[0])]
    bits, row = bits_of(out), D.prod(shape[axis:])
    if len(kept) == 1:
        b.alias(out, kept[0][0])
        return
    runs, least = static_product(outer), _least([r for _, r in kept])
    if aligned(bits, *(r for _, r in kept)) and copied(runs, D.floordiv(D.mul(least, bits), 8)):
        _copy_runs(b, out, kept, runs or 1, row)
        return
    fours = unit(bits, [r for _, r in kept]) * bits == 128
    if b.target.kind == "software" and fours and is_large(out) and len(b.windows(out)) == 1:
        _part_by_part(b, out, kept, row, name)
        return
    room = b.target.limit("maxStorageBuffersPerShaderStage") - 1
    while len(kept) > room:
        kept = [_merged(b, kept[k : k + room], outer, name) for k in range(0, len(kept), room)]
    _pick(b, out, kept, name)


def _least(rows: Sequence[Dim]) -> Dim:
    known = [r for r in rows if isinstance(r, int)]
    return min(known) if len(known) == len(rows) else 0


def _copy_runs(b: Builder, out: Value, kept: Sequence[tuple[Value, Dim]], runs: int, row: Dim) -> None:
    for k in range(runs):
        at = D.mul(row, k)
        for v, r in kept:
            b.copy(v, D.mul(r, k), out, at, r)
            at = D.add(at, r)


def _merged(b: Builder, kept: Sequence[tuple[Value, Dim]], outer: Sequence[Dim], name: str) -> tuple[Value, Dim]:
    """Some parts as one: a device binds only so many buffers at once."""
    if len(kept) == 1:
        return kept[0]
    row: Dim = sum((r for _, r in kept), start=0)
    out = b.temp(element_type(kept[0][0]), (*outer, row))
    _pick(b, out, kept, name)
    return out, row


def _part_by_part(b: Builder, out: Value, kept: Sequence[tuple[Value, Dim]], row: Dim, name: str) -> None:
    """A launch for each part: a software adapter would load of all of them for each unit of the output."""
    units = 128 // bits_of(out)
    at: Dim = 0
    for v, r in kept:
        count = D.floordiv(v.elements, units)
        b.launch(
            Variant("concat_part", grid(count), vec={"x": 4, "out": 4}), reads={"x": v}, writes={"out": out},
            params={"n": count, "own": D.floordiv(r, units), "row": D.floordiv(row, units), "at": at},
            as_type={"x": T.U32, "out": T.U32}, name=name,
        )  # fmt: skip
        at = D.add(at, D.floordiv(r, units))


def _pick(b: Builder, out: Value, kept: Sequence[tuple[Value, Dim]], name: str) -> None:
    """One invocation per unit of out: its place in the row tells the input."""
    bits = bits_of(out)
    k = unit(bits, (r for _, r in kept))
    kind, vec = unit_type(bits * k)
    end: Dim = 0
    params: dict[str, Dim | float] = {}
    for i, (_, r) in enumerate(kept):
        size = D.floordiv(r, k)
        end = D.add(end, size)
        params |= {f"r{i}": size, f"e{i}": end}
    text = picks.pick([f"x{i}[{picks.at(i)}]" if vec == 4 else f"load_x{i}({picks.at(i)})" for i in range(len(kept))])
    reads = {f"x{i}": v for i, (v, _) in enumerate(kept)}
    names = [*reads, "out"]
    b.map(
        out, text, reads=reads, params=params, name=name,
        as_type=dict.fromkeys(names, kind), vec=dict.fromkeys(names, vec),
    )  # fmt: skip


def _axis(n: Node) -> int:
    """The axis in the output as it lies in memory."""
    rank = n.output().rank
    axis = normalize_axis(n.attr("axis", 1), rank)
    return channels_to_last(range(rank)).index(axis) if n.channels_last else axis


def is_large(v: Value, least: int = LARGE) -> bool:
    """Whether a concatenation of so many elements is worth dispatches of its own, where they are faster."""
    return math.prod(d if isinstance(d, int) else FREE for d in v.known_shape) >= least


def in_fours(n: Node) -> bool:
    """Whether a Concat moves 128 bits at once."""
    bits, axis = bits_of(n.output()), _axis(n)
    return unit(bits, [D.prod(v.known_shape[axis:]) for v in n.given()]) * bits == 128


@op("Concat", since=4, shape=_concat_shape)
def concat(n: Node, b: Builder) -> None:
    out, axis = n.output(), _axis(n)
    for v in n.given():
        for a, (have, want) in enumerate(zip(v.known_shape, out.known_shape)):
            if a != axis:
                b.check(D.eq(have, want), f"Concat: inputs differ along axis {a}: {have} and {want}")
    join(b, out, n.given(), axis)
