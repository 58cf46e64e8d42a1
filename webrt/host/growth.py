"""How large an output becomes, before it is made: operators whose outputs can be far larger than what they are fed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from webrt.errors import ShapeError
from webrt.host.values import Array, HostValue

MOST_ELEMENTS = 1 << 31
"""Elements of one tensor; where a system promises more memory than it has, asking for more ends the process."""

Shape: TypeAlias = Sequence[int]


def _broadcast(*inputs: Array) -> Shape:
    return np.broadcast_shapes(*(x.shape for x in inputs))


def _expand(x: Array, shape: Array) -> Shape:
    return np.broadcast_shapes(x.shape, _integers(shape))


def _tile(x: Array, repeats: Array) -> Shape:
    return [size * times for size, times in zip(x.shape, _integers(repeats))]


def _fill(shape: Array) -> Shape:
    return _integers(shape)


def _range(start: Array, limit: Array, delta: Array) -> Shape:
    count = (float(limit.item()) - float(start.item())) / float(delta.item())
    return [math.ceil(count)] if 0 < count < math.inf else []


def _one_hot(indices: Array, depth: Array, values: Array) -> Shape:
    return [*indices.shape, int(depth.item())]


def _integers(values: Array) -> tuple[int, ...]:
    return tuple(int(v) for v in values.ravel().tolist())


_BINARY = (
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual",
    "LessOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Min", "Max", "Sum", "Mean", "Where",
)  # fmt: skip
_SHAPES: dict[str, Callable[..., Shape]] = {
    **dict.fromkeys(_BINARY, _broadcast),
    "Expand": _expand, "Tile": _tile, "ConstantOfShape": _fill, "Range": _range, "OneHot": _one_hot,
}  # fmt: skip


def check(op: str, inputs: Sequence[HostValue]) -> None:
    """Raises ShapeError where the output of an operator of ONNX's own domain has more than 2³¹ elements. What the
    operator itself refuses is left to it."""
    predicted = _SHAPES.get(op)
    if predicted is None or not all(isinstance(x, np.ndarray) for x in inputs):
        return
    try:
        shape = [int(size) for size in predicted(*inputs)]
    except (TypeError, ValueError, ArithmeticError):
        return  # the operator says what is wrong
    count = math.prod(shape)
    if all(size >= 0 for size in shape) and count > MOST_ELEMENTS:
        raise ShapeError(
            f"the output would have the shape {shape}: {count} elements, at most {MOST_ELEMENTS} are possible; "
            "feed smaller inputs"
        )
