"""What an operator's file sees: the `op` decorator, the `Builder`, and how a lowering says no.

A lowering writes device steps for one node. It says no by raising UnsupportedOp, UnsupportedType or NotConstant with a
reason for the placement report; the partitioner then tries the next provider. ShapeError and InvalidModel mean that
the model itself is wrong.

    @op("Relu", since=6, shape=same_as_first)
    def relu(n: Node, b: Builder) -> None:
        b.map(n.output(), "return max(load_x(i), 0.0);", reads={"x": n.input(0)})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from webrt import dims as D
from webrt.builder import WINDOW_ALIGN, Builder
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError, UnsupportedType
from webrt.ir import Node, Value
from webrt.launches import (
    MAX_GROUPS,
    WORKGROUP,
    Alias,
    Binding,
    CopyBytes,
    Elementwise,
    Formula,
    Groups,
    Launch,
    Lowered,
    Operand,
    ReadBack,
    Variant,
    Window,
    grid,
    static_bytes,
)

__all__ = [
    "MAX_GROUPS", "MAX_ITERATIONS", "WINDOW_ALIGN", "WORKGROUP", "Alias", "Binding", "Builder", "CopyBytes",
    "Elementwise", "Formula", "Groups", "Info", "InputShapes", "Launch", "LowerFn", "Lowered", "Op", "Operand",
    "ReadBack", "Shape", "ShapeFn", "Variant", "Window", "broadcast_shapes", "check_inputs", "find", "grid",
    "normalize_axis", "op", "registered", "require", "same_as_first", "static_bytes", "static_product", "strides",
]  # fmt: skip

MAX_ITERATIONS = 60_000
"""No invocation may loop more often: Mesa 22.3's lavapipe leaves loops after 65 535 iterations in total."""

Shape: TypeAlias = tuple[Dim, ...]
Info: TypeAlias = tuple[DType | None, Shape | None]
"""An output's type and shape; None where it is not a tensor, or the rank is not known."""
ShapeFn: TypeAlias = Callable[[Node], Sequence[Info]]
LowerFn: TypeAlias = Callable[[Node, Builder], None]
InputShapes: TypeAlias = str | Callable[[Node], str]
L = TypeVar("L", bound=LowerFn)


@dataclass(frozen=True)
class Op:
    """A registration: opsets `since` … `until` (None = open) of `domain`."""

    name: str
    domain: str
    since: int
    until: int | None
    shape: ShapeFn
    lower: LowerFn


_REGISTRY: dict[tuple[str, str], list[Op]] = {}


def op(
    *names: str, shape: ShapeFn, domain: str = "", since: int = 1, until: int | None = None, inputs: InputShapes = ""
) -> Callable[[L], L]:
    """Registers a lowering for operators at a range of opsets (the version of the domain that a model imports).

    `inputs` gives the shapes that fit together ("N C *, C, C"), for `check_inputs`."""

    def checked_shape(n: Node) -> Sequence[Info]:
        check_inputs(n, inputs if isinstance(inputs, str) else inputs(n))
        return shape(n)

    def register(lower: L) -> L:
        def checked_lower(n: Node, b: Builder) -> None:
            check_inputs(n, inputs if isinstance(inputs, str) else inputs(n), b)
            lower(n, b)

        made = (checked_shape, checked_lower) if inputs else (shape, lower)
        for name in names:
            _REGISTRY.setdefault((domain, name), []).append(Op(name, domain, since, until, *made))
        return lower

    return register


def find(domain: str, name: str, opset: int) -> Op | None:
    """The registration that serves an operator at an opset, or None."""
    for entry in _REGISTRY.get((domain, name), ()):
        if entry.since <= opset and (entry.until is None or opset <= entry.until):
            return entry
    return None


def registered() -> Iterator[Op]:
    """Every registration."""
    for entries in _REGISTRY.values():
        yield from entries


def strides(shape: Sequence[Dim]) -> list[Dim]:
    """Row-major strides in elements."""
    out: list[Dim] = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = D.mul(out[i + 1], shape[i + 1])
    return out


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis; raises ShapeError."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape:
    """numpy's rule over Dims; raises ShapeError where known sizes do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(rank):
        size: Dim = 1
        for s in shapes:
            k = i - rank + len(s)
            size = D.broadcast(size, s[k]) if k >= 0 else size
        out.append(size)
    return tuple(out)


def check_inputs(n: Node, pattern: str, b: Builder | None = None) -> None:
    """The shapes of inputs against a pattern: a token per axis, inputs apart by commas. A name is the same size
    wherever it stands, `_` any size, a number itself, `*` any more axes; nothing means any shape.

    Raises ShapeError where known sizes do not fit; with a builder, sizes that are not known become checks."""
    sizes: dict[str, Dim] = {}
    for i, part in enumerate(pattern.split(",")):
        tokens, shape = part.split(), n.input(i).shape if n.has(i) else None
        if not tokens or shape is None:
            continue
        said = f"{n.op_type}: input {i} has shape {list(shape)}, expected [{', '.join(tokens)}]"
        fixed = [t for t in tokens if t != "*"]
        if len(shape) < len(fixed) or (len(shape) != len(fixed) and len(fixed) == len(tokens)):
            raise ShapeError(said)
        for token, size in zip(fixed, shape):
            want = size if token == "_" else int(token) if token.isdecimal() else sizes.setdefault(token, size)
            holds, said_why = D.eq(size, want), said if token.isdecimal() else f"{said} with {token} = {want}"
            if holds == 0:
                raise ShapeError(said_why)
            if b is not None:
                b.check(holds, said_why)


def same_as_first(n: Node) -> list[Info]:
    """Every output has the first input's type and shape."""
    return [(n.input(0).dtype, n.input(0).shape) for _ in n.outputs]


def require(values: Iterable[Value | None], *allowed: DType) -> None:
    """Raises UnsupportedType unless each value's type is one of `allowed`."""
    for v in values:
        if v is not None and v.dtype not in allowed:
            raise UnsupportedType(f"{v.dtype} is not supported here (only {', '.join(map(str, allowed))})")


def static_product(shape: Sequence[Dim]) -> int | None:
    """The number of elements where it is known."""
    return math.prod(int(d) for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else None
