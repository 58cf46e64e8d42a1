"""Arguments that are attributes at some opsets and inputs at others."""

from __future__ import annotations

from webrt.dims import Dim
from webrt.ir import Node


def ints(n: Node, attribute: str, index: int) -> list[int] | None:
    """The integers of input `index`, else of the attribute; None where neither is given. Raises NotConstant."""
    if n.has(index):
        return [int(x) for x in n.const(index).flat]
    found = n.attr(attribute)
    return None if found is None else [int(x) for x in found]


def sizes(n: Node, attribute: str, index: int) -> list[Dim] | None:
    """As `ints`, but the input's integers may be symbolic."""
    if n.has(index):
        return list(n.dims(index))
    found = n.attr(attribute)
    return None if found is None else [int(x) for x in found]
