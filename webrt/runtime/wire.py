"""Host values as they cross between Python and player.js, in the form of web/player/pyodide.js."""

from __future__ import annotations

from typing import Any, TypeAlias

from webrt.dtypes import BY_NAME
from webrt.plan import ValueInfo
from webrt.runtime import tensor as T

Wire: TypeAlias = list[Any]
"""[name, element type, dims, bytes], or None for bytes that the other side does not need or has."""


def to_wire(info: ValueInfo, value: Any) -> Wire:
    """What player.js needs of a host value: bytes where a device or a size may need them, else its shape at most."""
    shape = T.shape_of(value)
    if shape is None:
        return [info.name, info.dtype, None, None]
    dtype = T.dtype_name(value)
    needed = info.place is not None or info.elements > 0
    return [info.name, dtype, list(shape), T.to_bytes(value) if needed else None]


def from_wire(tensor: Wire, info: ValueInfo) -> Any:
    """The array that crossed."""
    _, dtype, dims, data = tensor
    return T.from_bytes(data, BY_NAME[dtype or info.dtype], dims)
