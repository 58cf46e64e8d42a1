"""What a lowering makes: device steps over values, and the variants of a kernel that they choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from webrt import dims as D
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import UnsupportedType
from webrt.ir import Value
from webrt.plan import ALIGN, Kernel

WORKGROUP = 64
MAX_GROUPS = 65535

Groups: TypeAlias = tuple[Dim, Dim, Dim]


@dataclass(frozen=True)
class Window:
    """`size` bytes of a value from byte `offset` (a multiple of 256) on: what a kernel binds of a tensor that is larger
    than the target's maxStorageBufferBindingSize. `by_whole`: load_ and fours_ take places in the value itself."""

    value: Value
    offset: int
    size: int
    by_whole: bool = False

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def dtype(self) -> DType | None:
        return self.value.dtype


Operand: TypeAlias = Value | Window


class Binding(NamedTuple):
    """What a launch binds: "r" or "w", `size` bytes from `offset` on; a size of 0 is the whole tensor."""

    value: Value
    access: str
    offset: int = 0
    size: int = 0


@dataclass(frozen=True)
class Launch:
    """A dispatch over values: `alternatives` = ((kernel, groups, when), …), `bindings` in the kernels' order. `when` is
    0 where the alternative is not to be taken; `textures` are the bindings that some alternative reads as a texture;
    `over` those that the output may take the place of."""

    alternatives: tuple[tuple[Kernel, Groups, Dim], ...]
    bindings: tuple[Binding, ...]
    params: tuple[Dim, ...]
    textures: tuple[int, ...] = ()
    over: tuple[int, ...] = ()


@dataclass(frozen=True)
class CopyBytes:
    """Bytes from one value to another; offsets and size are multiples of 4."""

    source: Value
    source_offset: Dim
    target: Value
    target_offset: Dim
    size: Dim


@dataclass(frozen=True)
class Alias:
    """`out` is `source`'s bytes under another shape; or, where `start` is given, a part of them from that byte on."""

    out: Value
    source: Value
    start: Dim | None = None


@dataclass(frozen=True)
class ReadBack:
    """A size that the device computes: `source`, an int32, becomes the variable `name` for all that follows."""

    source: Value
    name: str


Lowered: TypeAlias = Launch | CopyBytes | Alias | ReadBack


@dataclass(frozen=True)
class Variant:
    """One way to compute a node: a body and what it takes. Variants of one launch share bindings and params.

    `textures` = binding → "sampled" or "storage" for those that it reads as a texture; `when` is 0 where the variant is
    not to be taken. The executor takes the first that the device meets and whose textures fit it at these sizes, so
    the last one should need nothing."""

    body: str
    groups: Groups
    consts: Mapping[str, int | float | bool] = field(default_factory=dict)
    fns: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    use: Sequence[str] = ()
    vec: Mapping[str, int] = field(default_factory=dict)
    requires: Mapping[str, Any] = field(default_factory=dict)
    textures: Mapping[str, str] = field(default_factory=dict)
    when: Dim = 1


@dataclass(frozen=True)
class Formula:
    """The body of `fn apply(operand, …) -> Out`, the files of shaders/lib/ that it needs, its parameters and functions
    that it calls. `in_range`: a store would not wrap the result, however narrow its type is."""

    body: str
    use: tuple[str, ...] = ()
    params: Mapping[str, Dim | float] = field(default_factory=dict)
    fns: tuple[str, ...] = ()
    in_range: bool = False


@dataclass(frozen=True)
class Elementwise:
    """out = formula(operands), which broadcast to it; what the fuse passes may compute within another kernel."""

    out: Value
    operands: Mapping[str, Value]
    formula: Formula


def grid(invocations: Dim, workgroup: int = WORKGROUP) -> Groups:
    """Groups for a flat kernel: x up to 65 535, the rest in y. The kernel's index is `flat_index(wg, nwg, lid)`."""
    groups = D.ceildiv(invocations, workgroup)
    return D.minimum(groups, MAX_GROUPS), D.ceildiv(groups, MAX_GROUPS), 1


def static_bytes(v: Operand) -> int | None:
    """The bytes that a binding of `v` covers, padded to a multiple of 16; None where they are not known."""
    size = v.size if isinstance(v, Window) else v.elements
    if not isinstance(size, int):
        return None
    return -(-(size if isinstance(v, Window) else dtype_of(v).nbytes(size)) // ALIGN) * ALIGN


def dtype_of(v: Operand) -> DType:
    """Its element type. Raises UnsupportedType for what is no tensor."""
    if v.dtype is None:
        raise UnsupportedType(f"{v.name!r} is no tensor")
    return v.dtype
