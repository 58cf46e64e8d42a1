"""What a session needs of a device and of a host provider: protocols over untyped buffers, and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from webrt.plan import Bytes, Kernel
from webrt.target import Target

Pipeline: TypeAlias = Any
BindGroup: TypeAlias = Any


class Buffer(Protocol):
    """Device memory; hashable by identity. `nbytes` is a multiple of 16."""

    @property
    def nbytes(self) -> int: ...

    @property
    def label(self) -> str: ...


class Texture(Protocol):
    """A texture of vec4s in rows of plan.TEXTURE_WIDTH; hashable by identity. `rows` is 0 once it is freed."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Range(NamedTuple):
    """`nbytes` bytes of a buffer from `offset` on (a multiple of 4)."""

    buffer: Buffer
    offset: int
    nbytes: int


class Launch(NamedTuple):
    """A dispatch of x·y·z workgroups, for a step of the plan."""

    pipeline: Pipeline
    bindings: BindGroup
    x: int
    y: int
    z: int
    step: int = -1


class Transfer(NamedTuple):
    """A copy between two buffers, for a step of the plan or (-1) of an input or output; offsets and size are multiples
    of 4."""

    source: Buffer
    source_offset: int
    target: Buffer
    target_offset: int
    nbytes: int
    step: int = -1


class Fill(NamedTuple):
    """A copy of `texels` times 16 bytes of a buffer, from an offset that is a multiple of 16, into a texture that a
    step of the plan reads."""

    source: Buffer
    source_offset: int
    target: Texture
    texels: int
    step: int = -1


Command: TypeAlias = Launch | Transfer | Fill
Resource: TypeAlias = Range | Texture


class Layout(NamedTuple):
    """What a kernel's bind group holds: a uniform block at binding 0 if `params`, then storage buffers and textures, by
    the letters of kernel_layout.KernelLayout, then a sampler of the nearest texel if `sampler`."""

    params: bool
    access: tuple[str, ...]
    sampler: bool = False


@dataclass
class Counters:
    """`buffers` (textures are counted with them) and `bytes` are alive now; the others only grow."""

    buffers: int = 0
    bytes: int = 0
    created: int = 0
    pipelines: int = 0
    submits: int = 0
    dispatches: int = 0
    copies: int = 0
    written: int = 0
    read: int = 0


class Timestamps(Protocol):
    """When each command of one submit began and ended."""

    def read(self) -> list[tuple[int, int]]:
        """(begin, end) of each command in nanoseconds of the device's own clock; waits for the submit."""


class DeviceMemory(Protocol):
    """The part of a device that tensors need. Everything may raise DeviceLost; `alloc` OutOfMemory and TargetError."""

    @property
    def target(self) -> Target: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def lost(self) -> bool:
        """Whether the device is known to be gone, or was closed."""

    def alloc(self, nbytes: int, label: str, *, uniform: bool = False) -> Buffer:
        """A buffer of zeros; `nbytes` is rounded up to a multiple of 16, at least 16."""

    def free(self, buffer: Buffer) -> None:
        """Gives the memory back; work that was submitted before still ends well."""

    def write(self, buffer: Buffer, offset: int, data: Bytes) -> None:
        """Puts bytes at `offset` (a multiple of 4) before the next submit; zeros fill a last word that is not full."""

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range, after all that was submitted, in one round trip. The views are writable copies."""

    def close(self) -> None:
        """Gives everything back; every later call raises DeviceLost."""


class Device(DeviceMemory, Protocol):
    """A device. All methods may be called from any thread; `pipelines` may raise KernelError."""

    @property
    def adapter(self) -> Mapping[str, str]:
        """What the adapter says of itself: vendor, architecture, device, description, backend."""

    def alloc_texture(self, texels: int, words: bool, label: str) -> Texture:
        """A texture of at least so many texels, of rgba32uint (`words`) or rgba32float."""

    def free_texture(self, texture: Texture) -> None:
        """Gives the memory back; work that was submitted before still ends well."""

    def write_texture(self, texture: Texture, data: Bytes) -> None:
        """Puts bytes at the first texels; zeros fill a last texel that is not full."""

    def pipelines(self, wanted: Sequence[tuple[Kernel, Layout]]) -> list[Pipeline]:
        """One pipeline for each kernel; those that exist are taken, the others made in parallel."""

    def bind(self, pipeline: Pipeline, resources: Sequence[Resource]) -> BindGroup:
        """A bind group: ranges and textures in the order of the pipeline's layout, offsets multiples of 256."""

    def submit(
        self,
        commands: Sequence[Command],
        reads: Sequence[Range] = (),
        stamps: Timestamps | None = None,
        timeout: float | None = None,
    ) -> list[memoryview]:
        """Runs the commands in order in one submit; waits for them only where `reads` are asked for. `stamps`, of this
        device and for so many commands, times them. After `timeout` seconds the device is given up: DeviceLost."""

    def stamps(self, count: int) -> Timestamps | None:
        """What times a submit of `count` commands; None where the device has no timestamp queries."""


class HostNode(Protocol):
    """A prepared node of the host provider."""

    def run(self, inputs: Sequence[Any], outer: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """One value per output: arrays, lists, dicts, or None for an absent one."""


class HostProvider(Protocol):
    """Runs nodes on the host; given to a session by `inference.py`."""

    def prepare(self, node_bytes: bytes, opsets: Mapping[str, int]) -> HostNode:
        """A handle for a serialized NodeProto."""


def padded(nbytes: int) -> int:
    """The size of a buffer for so many bytes: a multiple of 16, at least 16."""
    return max(16, -(-nbytes // 16) * 16)
