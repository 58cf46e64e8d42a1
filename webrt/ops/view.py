"""Views: operators that only move elements, as one affine map of coordinates.

Transpose, Slice, Split, Expand, Tile, DepthToSpace and their like read element offset + Σ cₖ·strideₖ of their input for
output coordinate c. `move` turns such a view into an alias, a few copies, or one kernel whose text depends on the
collapsed rank and the unit alone. Elements are moved as bits, so all types of a width share kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import UnsupportedType
from webrt.ir import Value
from webrt.lowering import Builder, Operand, Shape, Variant, Window, grid, static_product, strides

COPY_RUNS = 8
COPY_BYTES = 1 << 16
"""Up to COPY_RUNS copies stand in for a kernel where each moves this much: copies are fast, but break a pass."""

_ONE_BY_ONE: ContextVar[bool] = ContextVar("one_by_one", default=False)

S = TypeVar("S")

RAW: dict[int, DType] = {8: T.U8, 16: T.U16, 32: T.U32, 64: T.U64}
"""The unsigned type of a width, for kernels that move bits."""


@dataclass(frozen=True)
class View:
    """Result coordinate c (of `shape`) is element offset + Σ cₖ·strides[k] of the source."""

    shape: Shape
    strides: Shape
    offset: Dim = 0

    @staticmethod
    def of(shape: Sequence[Dim]) -> View:
        """A whole tensor."""
        return View(tuple(shape), tuple(strides(shape)))

    def permute(self, perm: Sequence[int]) -> View:
        """Axis k of the result is axis perm[k]."""
        return View(tuple(self.shape[a] for a in perm), tuple(self.strides[a] for a in perm), self.offset)

    def cut(self, axis: int, start: Dim, count: Dim, step: int = 1) -> View:
        """`count` elements along `axis` from `start` on, `step` (not 0) apart."""
        shape, steps = list(self.shape), list(self.strides)
        offset = D.add(self.offset, D.mul(start, steps[axis]))
        shape[axis], steps[axis] = count, D.mul(steps[axis], step)
        return View(tuple(shape), tuple(steps), offset)

    def repeat(self, axis: int, size: Dim) -> View:
        """Reads `axis`, of size 1, again and again."""
        shape, steps = list(self.shape), list(self.strides)
        shape[axis], steps[axis] = size, 0
        return View(tuple(shape), tuple(steps), self.offset)

    def of_rank(self, rank: int) -> View:
        """The view with axes of size 1 before its own."""
        more = (0,) * (rank - len(self.shape))
        return View((*(1 for _ in more), *self.shape), (*more, *self.strides), self.offset)

    def collapsed(self) -> View:
        """The same elements in the same order with the fewest axes."""
        out: list[tuple[Dim, Dim]] = []
        for size, stride in zip(self.shape, self.strides):
            if size == 1:
                continue
            if out and out[-1][1] == D.mul(size, stride):
                out[-1] = (D.mul(out[-1][0], size), stride)
            else:
                out.append((size, stride))
        return View(tuple(s for s, _ in out), tuple(t for _, t in out), self.offset)


def channels_to_last(axes: Iterable[S]) -> tuple[S, ...]:
    """What belongs to the axes [N, C, …], in the order [N, …, C]."""
    images, channels, *spatial = axes
    return (images, *spatial, channels)


def channels_to_first(axes: Iterable[S]) -> tuple[S, ...]:
    """What belongs to the axes [N, …, C], in the order [N, C, …]."""
    images, *spatial, channels = axes
    return (images, channels, *spatial)


def element_type(v: Operand) -> DType:
    """The value's type. Raises UnsupportedType for one that devices do not hold."""
    if v.dtype is None or not v.dtype.on_device:
        raise UnsupportedType(f"{v.dtype or 'a value that is no tensor'} is not held on devices")
    return v.dtype


def movable(*values: Value) -> None:
    """Raises UnsupportedType unless devices hold all the values."""
    for v in values:
        element_type(v)


def bits_of(v: Operand) -> int:
    """Bits of an element. Raises UnsupportedType for what devices do not hold."""
    return element_type(v).bits


def raw(*values: tuple[str, Value]) -> dict[str, DType]:
    """`as_type` of a kernel that moves bits: the unsigned type of each binding's width."""
    return {name: RAW[bits_of(v)] for name, v in values}


@contextmanager
def one_by_one() -> Iterator[None]:
    """Inside, nothing is copied or moved in units: kernels that move elements have one element per index."""
    token = _ONE_BY_ONE.set(True)
    try:
        yield
    finally:
        _ONE_BY_ONE.reset(token)


def unit(bits: int, counts: Iterable[Dim]) -> int:
    """How many elements may move as one: the most that fill 128, 64 or 32 bits and divide every count."""
    if _ONE_BY_ONE.get():
        return 1
    numbers = list(counts)
    for wide in (128, 64, 32):
        k = wide // bits
        if k > 1 and all(D.mod(x, k) == 0 for x in numbers):
            return k
    return 1


def unit_type(bits: int) -> tuple[DType, int]:
    """The binding's element type and its `vec` for a unit of so many bits."""
    return (T.U32, 4) if bits == 128 else (RAW[bits], 1)


def move(b: Builder, out: Value, x: Operand, view: View, name: str = "view") -> None:
    """Writes `view` of x to out, which has its shape (or another of as many elements) and x's type."""
    bits = bits_of(x)
    b.moves.append((out, x, view))
    v = view.collapsed()
    flat = not v.shape or v.strides == (1,)
    if isinstance(x, Value) and flat and v.offset == 0 and D.prod(v.shape) == x.elements:
        b.alias(out, x)
    elif not (_copies(b, out, x, v, bits) or _transpose(b, out, x, v, bits, name)):
        _gather(b, out, x, v, bits, name)


def aligned(bits: int, *counts: Dim) -> bool:
    """Whether each count of elements is a whole number of 32-bit words, and elements may be copied."""
    return not _ONE_BY_ONE.get() and all(D.mod(D.mul(c, bits), 32) == 0 for c in counts)


def copied(runs: int | None, run_bytes: Dim) -> bool:
    """Whether so many copies are better than a kernel."""
    return runs == 1 or (runs is not None and 0 < runs <= COPY_RUNS and D.at_least(run_bytes, COPY_BYTES))


def _copies(b: Builder, out: Value, x: Operand, v: View, bits: int) -> bool:
    if isinstance(x, Window) or (v.shape and v.strides[-1] != 1):
        return False
    inner = v.shape[-1] if v.shape else 1
    outer, steps = v.shape[:-1], v.strides[:-1]
    run_bytes = D.floordiv(D.mul(inner, bits), 8)
    if not aligned(bits, inner, v.offset, *steps) or not copied(static_product(outer), run_bytes):
        return False
    for k, at in enumerate(itertools.product(*(range(int(d)) for d in outer if isinstance(d, int)))):
        source = v.offset
        for c, s in zip(at, steps):
            source = D.add(source, D.mul(s, c))
        b.copy(x, source, out, D.mul(inner, k), inner)
    return True


def _gather(b: Builder, out: Value, x: Operand, v: View, bits: int, name: str) -> None:
    """One invocation per unit of the output."""
    k = 1
    if v.shape and v.strides[-1] == 1:
        k = unit(bits, (v.offset, v.shape[-1], *v.strides[:-1]))
    shape = (*v.shape[:-1], D.floordiv(v.shape[-1], k)) if v.shape else ()
    steps = (*(D.floordiv(s, k) for s in v.strides[:-1]), v.strides[-1]) if v.shape else ()
    kind, vec = unit_type(bits * k)
    text, params = coordinates(shape)
    params |= {"at": D.floordiv(v.offset, k)} | {f"s{a}": s for a, s in enumerate(steps)}
    at = " + ".join(["p.at", *(f"c{a} * p.s{a}" for a in range(len(shape)))])
    read = f"return x[{at}];" if vec == 4 else f"return load_x({at});"
    b.map(
        out, text + read, reads={"x": x}, params=params, name=name,
        as_type={"x": kind, "out": kind}, vec={"x": vec, "out": vec},
    )  # fmt: skip


def coordinates(shape: Sequence[Dim]) -> tuple[str, dict[str, Dim | float]]:
    """Text that sets c0, c1, … to the coordinates of element i of a tensor of `shape`, and its parameters d1, d2, …
    Quotients are had by one division each, as on software adapters it costs what ten products do."""
    lines = ["var r = i;"] if shape else []
    for a in reversed(range(len(shape))):
        lines.append(f"let r{a} = r / p.d{a}; let c{a} = r - r{a} * p.d{a}; r = r{a};" if a else "let c0 = r;")
    return "".join(f"{line}\n" for line in lines), {f"d{a}": d for a, d in enumerate(shape) if a}


def _transpose(b: Builder, out: Value, x: Operand, v: View, bits: int, name: str) -> bool:
    """4×4 blocks of 32-bit words, read and written as vec4, where the last axis and the contiguous one allow it."""
    if _ONE_BY_ONE.get() or bits != 32 or len(v.shape) < 2 or 1 not in v.strides[:-1] or v.strides[-1] in (0, 1):
        return False
    last, rows = len(v.shape) - 1, v.strides.index(1)
    others = [s for a, s in enumerate(v.strides) if a != rows]
    if any(D.mod(d, 4) != 0 for d in (v.offset, v.shape[last], v.shape[rows], *others)):
        return False
    written = strides(v.shape)
    params: dict[str, Dim | float] = {
        "at": D.floordiv(v.offset, 4), "read": D.floordiv(v.strides[last], 4), "write": D.floordiv(written[rows], 4),
    }  # fmt: skip
    lines = ["var r = i; var at = vec2<u32>(p.at, 0u);"]
    blocks: list[Dim] = []
    for a in reversed(range(len(v.shape))):
        by = 4 if a in (last, rows) else 1
        blocks.append(D.floordiv(v.shape[a], by))
        params |= {
            f"d{a}": blocks[-1],
            f"s{a}": D.floordiv(D.mul(v.strides[a], by), 4),
            f"t{a}": D.floordiv(D.mul(written[a], by), 4),
        }
        step = f"at += c{a} * vec2<u32>(p.s{a}, p.t{a}); r = r{a};"
        lines.append(f"let r{a} = r / p.d{a}; let c{a} = r - r{a} * p.d{a}; {step}")
    text = "\n".join(["fn corner(i: u32) -> vec2<u32> {", *lines, "return at;", "}"])
    count = D.prod(blocks)
    b.launch(
        Variant("transpose_block", grid(count), fns=[text], vec={"x": 4, "out": 4}),
        reads={"x": x}, writes={"out": out}, params={"n": count, **params},
        as_type={"x": T.U32, "out": T.U32}, name=name,
    )  # fmt: skip
    return True
