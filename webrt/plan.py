"""The plan: plain data between the compile half and the run half. webrt/planfile.py reads and writes its `.webrt` file.

A *place* is where a tensor's bytes are: `["s", slot]`, `["c", constant]`, or None for a value on the host.
A size is a `DimRef`: an int, or `[k]`, the result of instruction k of `dims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from webrt.dims import DimRef
from webrt.errors import PlanError
from webrt.subplans import Branch, Loop, SubPlan, walk

VERSION = 2
"""Of the format; files of every version up to it are read."""
ALIGN = 16
"""Constants lie at multiples of so many bytes."""

TEXTURE_WIDTH = 1024
"""Texels of a row of a texture operand: texel t, elements 4t … 4t+3, is at (t % 1024, t // 1024)."""

DRAWN = "in:[0]"
"""The variable that each run binds to a random word of 32 bits: the seed of operators that have none."""

Place: TypeAlias = tuple[str, int]
Bytes: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Kernel:
    """WGSL text without `enable` lines; `requires` is what it needs beyond the target (target.REQUIREMENTS).

    Its declarations say how it reads each binding: as a buffer or as a texture (kernel_layout.py)."""

    name: str
    wgsl: str
    hash: str
    requires: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """A device buffer that several tensors use one after another; `size` in bytes, a multiple of 16, at least 16.

    `after`: where an input of the plan is the first of them, the bytes that the others need. The first step that writes
    the slot ends that input."""

    size: DimRef
    label: str = ""
    after: DimRef = 0


@dataclass(frozen=True)
class Constant:
    """A tensor that the plan carries. `nbytes` is without padding; data starts at `offset` of the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int


@dataclass(frozen=True)
class ValueInfo:
    """A value that crosses the border: a graph input or output, or an operand of a host step.

    `shape` is None where the rank is not known; `place` is None for a value that lives on the host only.
    A size that is a plain variable with no value yet is bound to the array's size; any other must equal it.
    `elements` > 0: the value's integers are the variables `in:NAME[0]` … `in:NAME[elements-1]`.
    `contents`: the value's elements are these sizes (nothing computes it). `constant`: it is that constant.
    An executor looks for a value among what was fed or made on the host first, then at `contents`, `constant`, `place`.
    """

    name: str
    dtype: str
    shape: tuple[DimRef, ...] | None
    place: Place | None = None
    elements: int = 0
    constant: int | None = None
    contents: tuple[DimRef, ...] | None = None


@dataclass(frozen=True)
class Dispatch:
    """One kernel launch. `alternatives` = ((kernel, x, y, z), …) in order of preference, the executor takes the first
    the device meets; `bindings` = ((place, "r" | "w", offset, size), …) in bytes at @binding(1) …, where a size of 0
    is the rest of the tensor (one that the run tells is never 0); `params` are the u32 words at @binding(0), at
    `params_offset` of the plan's parameter block (two's complement for negatives).

    `textures` = ((binding, texels), …) for the operands that alternatives may read as textures of rgba32float or
    rgba32uint: so many times 16 bytes from the binding's offset on, in rows of TEXTURE_WIDTH. `when`: for each
    alternative a size that is 0 where it is not to be taken (all may be, where there is none)."""

    alternatives: tuple[tuple[int, DimRef, DimRef, DimRef], ...]
    bindings: tuple[tuple[Place, str, DimRef, DimRef], ...]
    params: tuple[DimRef, ...]
    params_offset: int
    node: int = -1
    kind: str = "dispatch"
    textures: tuple[tuple[int, DimRef], ...] = ()
    when: tuple[DimRef, ...] = ()

    def applies(self, alternative: int) -> DimRef:
        """The size that is 0 where the alternative is not to be taken."""
        return self.when[alternative] if self.when else 1


@dataclass(frozen=True)
class Copy:
    """copyBufferToBuffer: offsets and size in bytes, multiples of 4, between different buffers."""

    source: Place
    source_offset: DimRef
    target: Place
    target_offset: DimRef
    size: DimRef
    node: int = -1
    kind: str = "copy"


@dataclass(frozen=True)
class HostStep:
    """A node that the host provider runs: `proto` is its NodeProto in base64, `inputs` and `outputs` name `values`.

    Inputs that are "" are absent; `outer` are values that the node's subgraphs capture."""

    proto: str
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    outer: tuple[str, ...] = ()
    node: int = -1
    kind: str = "host"


@dataclass(frozen=True)
class Read:
    """Sizes that the device computes: the i32 at the start of each place becomes a variable of the size program.
    `reads` = ((place, variable), …). What was recorded before is submitted; later steps may depend on the variables."""

    reads: tuple[tuple[Place, str], ...]
    node: int = -1
    kind: str = "read"


Step: TypeAlias = Dispatch | Copy | HostStep | Read | Branch | Loop


@dataclass(frozen=True)
class PlacedNode:
    """A line of the placement report: `provider` "webgpu" or "cpu"; `how` "kernel", "copy", "alias", "folded",
    "branch", "loop" or "host"; `bytes` that cross between device and host because of it (None when they depend on
    sizes). Nodes within a branch or a loop have lines of their own."""

    node: str
    op: str
    provider: str
    how: str
    reason: str = ""
    bytes: int | None = 0


@dataclass(frozen=True)
class Work:
    """What a step works on, for profiles: `tensors` = ((type, shape), …) in the order of a dispatch's bindings or of a
    copy's ends; `ops` are the operators that it computes; `flop` its node's floating-point operations as a sum of
    products, at one step of the node, () where nobody can tell."""

    tensors: tuple[tuple[str, tuple[DimRef, ...]], ...]
    ops: tuple[str, ...]
    flop: tuple[tuple[DimRef, ...], ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs. `values` are host operands by name; `checks` = ((size, message), …): a size that
    is 0 at a run refuses the feeds with that message; `meta` is the model's own metadata, opsets and producer; `work`
    has an entry for each step, or none; `tuning` are tables of runtime/tuning.py, each for an adapter."""

    dims: list[list[Any]]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    values: Mapping[str, ValueInfo]
    kernels: tuple[Kernel, ...]
    slots: tuple[Slot, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    params_size: int = 0
    checks: tuple[tuple[DimRef, str], ...] = ()
    placement: tuple[PlacedNode, ...] = ()
    work: tuple[Work, ...] = ()
    target: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    tuning: tuple[Mapping[str, Any], ...] = ()
    data: Callable[[int], Bytes] | None = field(default=None, compare=False, repr=False)

    def constant_bytes(self, index: int) -> Bytes:
        """The bytes of constant `index`, without padding."""
        if self.data is None:
            raise PlanError("the plan carries no constants; load it from its file")
        return self.data(index)

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        """Those within other steps too."""
        return tuple(s for s in walk(self.steps) if isinstance(s, HostStep))

    def within(self, sub: SubPlan) -> Plan:
        """A sub-plan as a plan of its own."""
        shared = {"kernels": self.kernels, "constants": self.constants, "placement": self.placement}
        return Plan(**sub.__dict__, **shared, target=self.target, data=self.data)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """The plan without its constants' bytes, as json can write it."""
        out = {k: v for k, v in self.__dict__.items() if k != "data"}
        out["values"] = {k: _plain(v) for k, v in self.values.items()}
        for key in ("inputs", "outputs", "kernels", "slots", "constants", "steps", "placement", "work"):
            out[key] = [_plain(x) for x in out[key]]
        if not self.tuning:
            del out["tuning"]
        return {"version": VERSION, **out}


def _plain(x: Any) -> Any:
    """What `dataclasses.asdict` makes of it, in a quarter of the time."""
    if isinstance(x, (str, int, float)) or x is None:
        return x
    if isinstance(x, (tuple, list)):
        return type(x)(map(_plain, x))
    if isinstance(x, Mapping):
        return {k: _plain(v) for k, v in x.items()}
    return {f.name: _plain(getattr(x, f.name)) for f in fields(x)}


def layout_constants(sizes: Sequence[int]) -> list[int]:
    """The offset of each constant in the data section: multiples of 16, in the given order."""
    offsets, end = [], 0
    for n in sizes:
        offsets.append(end)
        end += -(-n // ALIGN) * ALIGN
    return offsets
