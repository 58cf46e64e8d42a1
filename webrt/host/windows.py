"""Sliding windows over spatial axes: sizes, padding, and the strided views that convolutions and pools loop over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call
from webrt.host.values import Array


@dataclass(frozen=True)
class Windows:
    """Windows over a spatial shape; `sizes` is how many there are along each axis.

    `begin` and `end` are pads; with ceil_mode a last window may reach beyond them.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    spatial: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        """The spatial shape that every window lies in."""
        return tuple(
            max(b + n + e, (o - 1) * s + (k - 1) * d + 1)
            for b, n, e, o, s, k, d in zip(
                self.begin, self.spatial, self.end, self.sizes, self.strides, self.kernel, self.dilations
            )
        )

    @property
    def trivial(self) -> bool:
        """Whether each window is one element and the windows are the elements."""
        return self.sizes == self.spatial and all(k == 1 for k in self.kernel) and not any(self.begin)

    def pad(self, x: Array, fill: Any) -> Array:
        """x [N, C, spatial] inside the padded shape; pads below zero cut."""
        if self.padded == self.spatial and not any(self.begin):
            return x
        result = np.full(x.shape[:2] + self.padded, fill, dtype=x.dtype)
        to = tuple(slice(max(b, 0), max(b + n, 0)) for b, n in zip(self.begin, self.spatial))
        target = result[(slice(None), slice(None), *to)]
        cut = tuple(slice(max(-b, 0), max(-b, 0) + n) for b, n in zip(self.begin, target.shape[2:]))
        target[...] = x[(slice(None), slice(None), *cut)]
        return result

    def views(self, padded: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
        """For each kernel position, the elements [N, C, sizes] that it meets in all windows."""
        for position in itertools.product(*(range(k) for k in self.kernel)):
            cuts = tuple(
                slice(p * d, p * d + (o - 1) * s + 1 if o else 0, s)
                for p, d, o, s in zip(position, self.dilations, self.sizes, self.strides)
            )
            yield position, padded[(slice(None), slice(None), *cuts)]


def make_windows(call: Call, spatial: Sequence[int], kernel: Sequence[int], ceil: bool = False) -> Windows:
    """The windows that a node's strides, dilations, pads and auto_pad make over a spatial shape."""
    rank = len(spatial)
    strides, dilations = _spread(call, "strides", rank), _spread(call, "dilations", rank)
    if len(kernel) != rank:
        raise ShapeError(f"a kernel of {len(kernel)} axes for an input of {rank} spatial axes; ranks must agree")
    if min([*strides, *dilations, *kernel], default=1) < 1:
        raise ShapeError(f"strides {strides}, dilations {dilations} and kernel {list(kernel)} must be positive")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    begin, end = _pads(call, spatial, reach, strides)
    sizes = []
    for n, r, s, b, e in zip(spatial, reach, strides, begin, end):
        room = n + b + e - r
        if room < 0 and not (ceil and room > -s):
            raise ShapeError(
                f"a window of {r} does not fit into {n} elements padded by {b} and {e}; feed a larger input"
            )
        count = (-(-room // s) if ceil else room // s) + 1
        sizes.append(count - 1 if ceil and (count - 1) * s >= n + b else count)
    return Windows(tuple(kernel), strides, dilations, begin, end, tuple(spatial), tuple(sizes))


def _spread(call: Call, name: str, rank: int) -> tuple[int, ...]:
    values = call.ints(name) or [1] * rank
    if len(values) != rank:
        raise ShapeError(f"{name} has {len(values)} entries for {rank} spatial axes; give one per axis")
    return tuple(values)


def _pads(
    call: Call, spatial: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank, mode = len(spatial), str(call.get("auto_pad", "NOTSET"))
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(spatial, reach, strides)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        return (less, more) if mode == "SAME_UPPER" else (more, less)
    pads = call.ints("pads") or [0] * (2 * rank)
    if mode == "VALID":
        pads = [0] * (2 * rank)
    if len(pads) != 2 * rank:
        raise ShapeError(f"pads has {len(pads)} entries for {rank} spatial axes; give two per axis")
    return tuple(pads[:rank]), tuple(pads[rank:])
