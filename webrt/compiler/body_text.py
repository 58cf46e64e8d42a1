"""What function bodies in ONNX's text format are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from webrt.ir import Node

Lines: TypeAlias = list[str] | None
"""The nodes of a body; None where it cannot be written (a rank is not known yet)."""
Writer: TypeAlias = Callable[[Node], Lines]

CONV = ("auto_pad: string", "dilations: ints", "group: int", "kernel_shape: ints", "pads: ints", "strides: ints")
POOL = ("auto_pad: string", "ceil_mode: int", "kernel_shape: ints", "pads: ints", "strides: ints")


def given(*attributes: str) -> str:
    """Attributes of the caller, handed on under their names where it has them."""
    return ", ".join(f"{name}: {kind} = @{name}" for name, kind in (a.split(": ") for a in attributes))


def floats(**values: float) -> str:
    """Attributes of these values."""
    return ", ".join(f"{k}: float = {float(v)!r}" for k, v in values.items())


def rank_of(n: Node, index: int = 0) -> int | None:
    """The rank of an input, where it is known."""
    return n.input(index).rank if n.input(index).shape is not None else None


def turned(x: str, y: str, rank: int, *, first: bool) -> str:
    """y = x with its channels first, or last."""
    perm = [0, rank - 1, *range(1, rank - 1)] if first else [0, *range(2, rank), 1]
    return f"{y} = Transpose <perm = {perm}> ({x})"


def softmax_rows(rows: str, like: str, y: str) -> list[str]:
    """y = softmax over the last axis of `rows`, in the shape of `like`."""
    return [
        f"shares = Softmax <axis = -1> ({rows})", f"shape = Shape ({like})", f"{y} = Reshape (shares, shape)"
    ]  # fmt: skip


def formal(n: Node, index: int) -> str:
    """The formal name of an input that the node has; empty where it is absent."""
    return str(n.schema.inputs[index].name) if n.has(index) else ""
