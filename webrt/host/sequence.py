"""Sequences of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from webrt.errors import ShapeError, UnsupportedType
from webrt.host.reduce import normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, HostValue

Sequence = list[Any]


def _place(position: Array, size: int, what: str) -> int:
    """A position counted from the front; raises IndexError outside [-size, size - 1]."""
    index = int(position.reshape(-1)[0])
    if not -size <= index < size:
        raise IndexError(f"position {index} is out of range for a sequence of {size} ({what})")
    return index % size if size else 0


@op("SequenceConstruct")
def construct(call: Call, *tensors: HostValue) -> Sequence:
    """A sequence of the inputs."""
    return list(tensors)


@op("SequenceEmpty")
def empty(call: Call) -> Sequence:
    """An empty sequence."""
    return []


@op("SequenceLength")
def length(call: Call, sequence: Sequence) -> Array:
    """The number of tensors."""
    return np.asarray(len(sequence), np.int64)


@op("SequenceAt")
def at(call: Call, sequence: Sequence, position: Array) -> HostValue:
    """The tensor at a position."""
    found: HostValue = sequence[_place(position, len(sequence), "SequenceAt")]
    return found


@op("SequenceErase")
def erase(call: Call, sequence: Sequence, position: Array | None = None) -> Sequence:
    """The sequence without one tensor, by default the last."""
    if not sequence:
        raise IndexError("an empty sequence has nothing to erase")
    index = len(sequence) - 1 if position is None else _place(position, len(sequence), "SequenceErase")
    return sequence[:index] + sequence[index + 1 :]


@op("SequenceInsert")
def insert(call: Call, sequence: Sequence, tensor: HostValue, position: Array | None = None) -> Sequence:
    """The sequence with a tensor put before a position, by default at the end."""
    size = len(sequence)
    index = size if position is None else int(position.reshape(-1)[0])
    if not -size <= index <= size:
        raise IndexError(f"position {index} is out of range for a sequence of {size}")
    index = index + size if index < 0 else index
    return [*sequence[:index], tensor, *sequence[index:]]


@op("ConcatFromSequence")
def concat(call: Call, sequence: Sequence) -> Array:
    """The tensors joined along an axis, or stacked along a new one."""
    if not sequence:
        raise ShapeError("an empty sequence cannot be joined")
    rank = sequence[0].ndim
    if call.integer("new_axis"):
        return np.stack(sequence, normal_axis(call.integer("axis"), rank + 1))
    return np.concatenate(sequence, normal_axis(call.integer("axis"), rank))


@op("SplitToSequence")
def split(call: Call, x: Array, sizes: Array | None = None) -> Sequence:
    """x cut along an axis into a sequence: single slices, chunks of one size, or given sizes."""
    axis = normal_axis(call.integer("axis"), x.ndim)
    total = x.shape[axis]
    if sizes is None:
        parts = np.split(x, total, axis) if total else []
        return [np.squeeze(p, axis) for p in parts] if not call.integer("keepdims") else parts
    if sizes.ndim == 0:
        each = int(sizes)
        if each <= 0:
            raise ShapeError(f"the chunk size is {each}; it must be positive")
        counts = [min(each, total - i) for i in range(0, total, each)]
    else:
        counts = [int(n) for n in sizes]
    if sum(counts) != total or min(counts, default=0) < 0:
        raise ShapeError(f"sizes {counts} do not add up to {total} on axis {axis}")
    ends = np.cumsum([0, *counts])
    return [np.take(x, np.arange(a, b), axis) for a, b in itertools.pairwise(ends)]


@op("SequenceMap", outer=True)
def sequence_map(
    call: Call, outer: Mapping[str, HostValue], sequence: Sequence, *others: HostValue
) -> tuple[Sequence, ...]:
    """The body's outputs for each tensor; other sequences go along, other tensors stay the same."""
    body = call.graphs["body"]
    results: list[Sequence] = [[] for _ in body.outputs]
    for i, item in enumerate(sequence):
        rest = [o[i] if isinstance(o, list) else o for o in others]
        for collected, value in zip(results, body.run([item, *rest], outer)):
            if not isinstance(value, np.ndarray):
                raise UnsupportedType("the body of SequenceMap must return tensors")
            collected.append(value)
    return tuple(results)
