"""Operators that rearrange elements or shapes without computing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from webrt.errors import ShapeError
from webrt.host.reduce import normal_axes, normal_axis
from webrt.host.registry import Call, op
from webrt.host.values import Array, HostValue


@op("Identity")
def identity(call: Call, x: HostValue) -> HostValue:
    """The input itself: a tensor, a sequence, a map or none."""
    return x


@op("Reshape", until=5)
def reshape_attribute(call: Call, x: Array) -> Array:
    """The elements in another shape, an attribute."""
    return _reshape(x, call.ints("shape") or [], False)


@op("Reshape", since=5)
def reshape(call: Call, x: Array, shape: Array) -> Array:
    """The elements in another shape: 0 copies a size (unless allowzero), -1 takes what is left."""
    return _reshape(x, shape.reshape(-1).tolist(), bool(call.get("allowzero", 0)))


def _reshape(x: Array, shape: Sequence[int], zero_allowed: bool) -> Array:
    if not zero_allowed:
        if any(n == 0 and i >= x.ndim for i, n in enumerate(shape)):
            raise ShapeError(f"shape {list(shape)} copies a size that {x.shape} does not have")
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    known = int(np.prod([n for n in shape if n >= 0]))
    if list(shape).count(-1) == 1 and known == 0 and x.size == 0:
        raise ShapeError(f"-1 in {list(shape)} is not determined for an empty tensor; give the size")
    return x.reshape(tuple(int(n) for n in shape))


@op("Flatten")
def flatten(call: Call, x: Array) -> Array:
    """A matrix, split at `axis`."""
    axis = call.integer("axis")
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis <= x.ndim:
        raise ShapeError(f"axis {axis} is out of range for rank {x.ndim}")
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


@op("Transpose")
def transpose(call: Call, x: Array) -> Array:
    """Axes permuted, reversed by default."""
    perm = call.ints("perm")
    if not perm:
        return x.T
    if sorted(perm) != list(range(x.ndim)):
        raise ShapeError(f"perm {perm} is no permutation of {x.ndim} axes")
    return np.transpose(x, perm)


@op("Squeeze", until=13)
def squeeze_attribute(call: Call, x: Array) -> Array:
    """Axes of size 1 removed, named by an attribute."""
    return _squeeze(x, call.ints("axes"))


@op("Squeeze", since=13)
def squeeze(call: Call, x: Array, axes: Array | None = None) -> Array:
    """Axes of size 1 removed, named by an input; all of them where it is absent."""
    return _squeeze(x, None if axes is None else axes.reshape(-1).tolist())


def _squeeze(x: Array, axes: Sequence[int] | None) -> Array:
    if axes is None:
        return np.squeeze(x)
    chosen = normal_axes(axes, x.ndim)
    wrong = [a for a in chosen if x.shape[a] != 1]
    if wrong:
        raise ShapeError(f"axes {wrong} of {x.shape} are not 1; only such axes can be removed")
    return np.squeeze(x, chosen)


@op("Unsqueeze", until=13)
def unsqueeze_attribute(call: Call, x: Array) -> Array:
    """Axes of size 1 inserted, named by an attribute."""
    axes = call.ints("axes") or []
    return np.expand_dims(x, normal_axes(axes, x.ndim + len(axes)))


@op("Unsqueeze", since=13)
def unsqueeze(call: Call, x: Array, axes: Array) -> Array:
    """Axes of size 1 inserted, named by an input; they count in the output."""
    return np.expand_dims(x, normal_axes(axes, x.ndim + axes.size))


@op("Concat")
def concat(call: Call, *inputs: Array) -> Array:
    """Tensors joined along an axis."""
    if any(x.ndim == 0 for x in inputs):
        raise ShapeError("a scalar cannot be concatenated; reshape it to [1]")
    axis = normal_axis(call.integer("axis", 1), inputs[0].ndim)
    return np.concatenate(inputs, axis)


@op("Split", until=13)
def split_attribute(call: Call, x: Array) -> tuple[Array, ...]:
    """Parts along an axis, sizes an attribute."""
    return _split(call, x, call.ints("split"))


@op("Split", since=13)
def split(call: Call, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    """Parts along an axis, sizes an input; equal parts where it is absent, the last one smaller."""
    return _split(call, x, None if sizes is None else sizes.reshape(-1).tolist())


def _split(call: Call, x: Array, sizes: Sequence[int] | None) -> tuple[Array, ...]:
    axis = normal_axis(call.integer("axis", 0), x.ndim)
    total, parts = x.shape[axis], len(call.outputs)
    if call.get("num_outputs", parts) != parts:
        raise ShapeError(f"num_outputs is {call.get('num_outputs')}, the node has {parts} outputs")
    if not sizes:
        each = -(-total // parts)
        sizes = [min(each, max(total - i * each, 0)) for i in range(parts)]
    if sum(sizes) != total or min(sizes) < 0 or len(sizes) != len(call.outputs):
        raise ShapeError(f"sizes {list(sizes)} for {len(call.outputs)} outputs do not add up to {total} on axis {axis}")
    ends = np.cumsum([0, *sizes])
    cut: list[slice] = [slice(None)] * x.ndim
    found = []
    for start, end in itertools.pairwise(ends):
        cut[axis] = slice(int(start), int(end))
        found.append(x[tuple(cut)])
    return tuple(found)


@op("Expand")
def expand(call: Call, x: Array, shape: Array) -> Array:
    """x broadcast with a shape, in both directions."""
    full = np.broadcast_shapes(x.shape, tuple(int(n) for n in shape.reshape(-1)))
    return np.broadcast_to(x, full).copy()


@op("Tile")
def tile(call: Call, x: Array, repeats: Array) -> Array:
    """x repeated along each axis."""
    if repeats.size != x.ndim or (repeats < 0).any():
        raise ShapeError(f"repeats {repeats.tolist()} for rank {x.ndim}; one count per axis, none negative")
    return np.tile(x, tuple(int(n) for n in repeats))


@op("DepthToSpace")
def depth_to_space(call: Call, x: Array) -> Array:
    """Blocks of channels moved into space."""
    block, crd = call.integer("blocksize"), str(call.get("mode", "DCR")) == "CRD"
    n, c, h, w = _four(x)
    if c % block**2:
        raise ShapeError(f"{c} channels are no multiple of {block} squared")
    c //= block**2
    if crd:
        parts = x.reshape(n, c, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(n, block, block, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c, h * block, w * block)


@op("SpaceToDepth")
def space_to_depth(call: Call, x: Array) -> Array:
    """Blocks of space moved into channels."""
    block, crd = call.integer("blocksize"), str(call.get("mode", "DCR")) == "CRD"
    n, c, h, w = _four(x)
    if h % block or w % block:
        raise ShapeError(f"{h} × {w} is no multiple of {block}")
    parts = x.reshape(n, c, h // block, block, w // block, block)
    order = (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)
    return parts.transpose(order).reshape(n, c * block**2, h // block, w // block)


def _four(x: Array) -> tuple[int, int, int, int]:
    if x.ndim != 4:
        raise ShapeError(f"rank 4 is needed, got {x.shape}")
    return x.shape[0], x.shape[1], x.shape[2], x.shape[3]


@op("ReverseSequence")
def reverse_sequence(call: Call, x: Array, lengths: Array) -> Array:
    """The first `length` steps of each sequence turned round."""
    batch, time = normal_axis(call.integer("batch_axis"), x.ndim), normal_axis(call.integer("time_axis"), x.ndim)
    if lengths.shape != (x.shape[batch],) or (lengths < 0).any() or (lengths > x.shape[time]).any():
        raise ShapeError(f"lengths {lengths.tolist()} do not fit axis {batch} and {time} of {x.shape}")
    steps, ends = np.arange(x.shape[time]), lengths.astype(np.int64)[:, None]
    order = np.where(steps < ends, ends - 1 - steps, steps)
    shape = [1] * x.ndim
    shape[batch], shape[time] = order.shape
    order = (order if batch < time else order.T).reshape(shape)
    return np.take_along_axis(x, np.broadcast_to(order, x.shape), time)
