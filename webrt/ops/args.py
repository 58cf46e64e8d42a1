"""Arguments that are attributes at some opsets and inputs at others."""

from __future__ import annotations

from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.ir import Node


def _check_vector(n: Node, name: str, index: int) -> None:
    shape = n.input(index).known_shape
    if len(shape) > 1:
        raise ShapeError(f"{name} is a vector; it has shape {list(shape)}")


def ints(n: Node, attribute: str, index: int) -> list[int] | None:
    """The integers of input `index`, else of the attribute; None where neither is given. Raises NotConstant."""
    if n.has(index):
        _check_vector(n, attribute, index)
        return [int(x) for x in n.const(index).flat]
    found = n.attr(attribute)
    return None if found is None else [int(x) for x in found]


def sizes(n: Node, attribute: str, index: int) -> list[Dim] | None:
    """As `ints`, but the input's integers may be symbolic."""
    if n.has(index):
        _check_vector(n, attribute, index)
        return list(n.dims(index))
    found = n.attr(attribute)
    return None if found is None else [int(x) for x in found]
