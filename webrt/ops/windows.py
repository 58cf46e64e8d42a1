"""Sliding windows: what convolutions and pools share. Sizes per spatial axis, and the output's size as a Dim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webrt import dims as D
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node
from webrt.lowering import Builder


@dataclass(frozen=True)
class Axis:
    """A window along one spatial axis; `before` and `after` are the padding, symbolic for SAME_UPPER and SAME_LOWER."""

    size: Dim
    kernel: int
    stride: int
    dilation: int
    before: Dim
    after: Dim
    out: Dim

    @property
    def reach(self) -> int:
        """Elements from the first to the last tap."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def trivial(self) -> bool:
        """Whether the axis has one element, one tap and no padding."""
        return self.size == 1 and self.kernel == 1 and self.before == 0 and self.after == 0 and self.out == 1


def attribute(n: Node, name: str, rank: int, default: int, per: int = 1) -> list[int]:
    """A list attribute with `per` integers per spatial axis; raises InvalidModel for another length."""
    given = n.attr(name) or [default] * (per * rank)
    if len(given) != per * rank:
        raise InvalidModel(f"{name} has {len(given)} integers, {per * rank} are needed for {rank} spatial axes")
    return [int(x) for x in given]


def windows(n: Node, spatial: Sequence[Dim], kernel: Sequence[int]) -> list[Axis]:
    """The windows of a node by its strides, dilations, pads, auto_pad and ceil_mode (absent ones are ONNX's defaults).

    Source: the formulas in ONNX's text of Conv and MaxPool. A last window that would start in the padding at the end is
    dropped at every opset, as onnxruntime does; ONNX says so from opset 22 on.
    """
    rank = len(spatial)
    strides, dilations = attribute(n, "strides", rank, 1), attribute(n, "dilations", rank, 1)
    pads = attribute(n, "pads", rank, 0, per=2)
    if min([*strides, *dilations, *kernel], default=1) < 1:
        raise InvalidModel("strides, dilations and kernel_shape have to be positive")
    mode = str(n.attr("auto_pad", "NOTSET"))
    ceil = bool(n.attr("ceil_mode", 0))
    return [
        _axis(size, k, s, d, (pads[i], pads[rank + i]), mode, ceil)
        for i, (size, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations))
    ]


def check_fit(b: Builder, axes: Sequence[Axis]) -> None:
    """Refuses inputs that are smaller than the window, padding included."""
    for a in axes:
        padded = D.add(D.add(a.size, a.before), a.after)
        b.check(D.le(a.reach, padded), f"a window of {a.reach} elements does not fit in {a.size} with padding")


def _axis(size: Dim, kernel: int, stride: int, dilation: int, pads: tuple[int, int], mode: str, ceil: bool) -> Axis:
    reach = (kernel - 1) * dilation + 1
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        out = D.ceildiv(size, stride)
        total = D.maximum((out - 1) * stride + reach - size, 0)
        half = D.floordiv(total, 2)
        before, after = (half, total - half) if mode == "SAME_UPPER" else (total - half, half)
        return Axis(size, kernel, stride, dilation, before, after, out)
    if mode not in ("NOTSET", "VALID", ""):
        raise InvalidModel(f"auto_pad is {mode!r}")
    low, high = (0, 0) if mode == "VALID" else pads
    room = size + low + high - reach
    if isinstance(room, int) and room < 0:
        raise ShapeError(f"a window of {reach} elements does not fit in {size} with padding")
    out = D.floordiv(room, stride) + 1
    if ceil and stride > 1:
        more = D.ceildiv(room, stride) + 1
        out = more - D.lt(size + low - 1, (more - 1) * stride)
    return Axis(size, kernel, stride, dilation, low, high, out)
