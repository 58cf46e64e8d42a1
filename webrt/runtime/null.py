"""The device of a process that has none: whatever would touch device memory fails at once, and by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from webrt.errors import DeviceFreeError
from webrt.plan import Bytes, Kernel
from webrt.runtime.device import (
    BindGroup,
    Buffer,
    Command,
    Counters,
    Launch,
    Layout,
    Pipeline,
    Range,
    Resource,
    Texture,
    Timestamps,
)
from webrt.target import BASE, Target


class NoOpAllocator:
    """The real allocator's interface without memory: `alloc` raises DeviceFreeError, `free` does nothing."""

    def alloc(self, nbytes: int, label: str, *, uniform: bool = False) -> Buffer:
        """Raises DeviceFreeError that names what asked for memory."""
        kind = "uniform buffer" if uniform else "buffer"
        _refuse(f"{label or 'something'} asked for a {kind} of {nbytes} bytes")

    def free(self, buffer: Buffer) -> None:
        """Does nothing."""


class NullDevice:
    """A device that has a Target and nothing else. Plans without a device step run on it."""

    def __init__(self, target: Target = BASE) -> None:
        self.target = target
        self.adapter: dict[str, str] = {}
        self.lost = False
        self.counters = Counters()
        self.allocator = NoOpAllocator()

    def alloc(self, nbytes: int, label: str, *, uniform: bool = False) -> Buffer:
        return self.allocator.alloc(nbytes, label, uniform=uniform)

    def free(self, buffer: Buffer) -> None:
        self.allocator.free(buffer)

    def write(self, buffer: Buffer, offset: int, data: Bytes) -> None:
        _refuse(f"{buffer.label} would be written")

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        for r in ranges:
            _refuse(f"{r.buffer.label} would be read back")
        return []

    def alloc_texture(self, texels: int, words: bool, label: str) -> Texture:
        _refuse(f"{label} asked for a texture of {texels} texels")

    def free_texture(self, texture: Texture) -> None:
        """Does nothing."""

    def write_texture(self, texture: Texture, data: Bytes) -> None:
        _refuse("a texture would be written")

    def pipelines(self, wanted: Sequence[tuple[Kernel, Layout]]) -> list[Pipeline]:
        for kernel, _ in wanted:
            _refuse(f"the kernel {kernel.name!r} asked for a pipeline")
        return []

    def bind(self, pipeline: Pipeline, resources: Sequence[Resource]) -> BindGroup:
        _refuse("a bind group was asked for")

    def submit(
        self,
        commands: Sequence[Command],
        reads: Sequence[Range] = (),
        stamps: Timestamps | None = None,
        timeout: float | None = None,
    ) -> list[memoryview]:
        for command in commands:
            _refuse("a dispatch was submitted" if isinstance(command, Launch) else "a copy was submitted")
        return self.read(reads)

    def stamps(self, count: int) -> Timestamps | None:
        return None

    def close(self) -> None:
        """Does nothing."""


def _refuse(what: str) -> NoReturn:
    raise DeviceFreeError(
        f"{what}, but there is no device here; run where a WebGPU adapter exists, or compile for the CPU provider only"
    )
