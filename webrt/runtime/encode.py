"""Commands as wgpu's encoder takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from webrt.errors import DeviceError
from webrt.plan import TEXTURE_WIDTH
from webrt.runtime.device import Buffer, Command, Fill, Launch, Range, Resource, Texture, Transfer
from webrt.runtime.stamps import Stamps

ROW_BYTES = 16 * TEXTURE_WIDTH


@dataclass(eq=False, slots=True)
class NativeBuffer:
    """A wgpu buffer; `handle` is None once freed."""

    handle: Any
    nbytes: int
    label: str


@dataclass(eq=False, slots=True)
class NativeTexture:
    """A wgpu texture and its view; `handle` is None and `rows` 0 once freed."""

    handle: Any
    view: Any
    rows: int
    nbytes: int


def handle_of(buffer: Buffer | None) -> Any:
    """wgpu's buffer. Raises DeviceError for one that was freed or is another device's."""
    if not isinstance(buffer, NativeBuffer) or buffer.handle is None:
        raise DeviceError(f"the buffer {buffer.label if buffer else ''!r} was freed, or is another device's")
    return buffer.handle


def alive(texture: Texture) -> NativeTexture:
    """The texture. Raises DeviceError for one that was freed or is another device's."""
    if not isinstance(texture, NativeTexture) or texture.handle is None:
        raise DeviceError("a texture was freed, or is another device's")
    return texture


def resource_of(r: Resource) -> Any:
    """What a bind group's entry takes."""
    if isinstance(r, Range):
        return {"buffer": handle_of(r.buffer), "offset": r.offset, "size": r.nbytes}
    return alive(r).view


Record: TypeAlias = Callable[[Any, Launch, bool], None]
"""Records a dispatch in a compute pass; the flag says that its pipeline is another than the one before."""


def through_wgpu_py(current: Any, c: Launch, changed: bool) -> None:
    """Records a dispatch by wgpu-py's methods."""
    if changed:
        current.set_pipeline(c.pipeline.handle)
    current.set_bind_group(0, c.bindings)
    current.dispatch_workgroups(c.x, c.y, c.z)


def recorder(wgpu: Any) -> Record:
    """What records a dispatch with `wgpu`: at half the cost, by the C functions below wgpu-py's methods, where there
    are such.

    The methods wrap each call to raise what it refuses; of what is recorded in a pass, wgpu tells only when the encoder
    finishes, so nothing is missed without.
    """
    try:
        lib, null = wgpu.backends.wgpu_native.lib, wgpu.backends.wgpu_native.ffi.NULL
        set_pipeline, dispatch = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderDispatchWorkgroups
        set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
    except AttributeError:
        return through_wgpu_py

    def direct(current: Any, c: Launch, changed: bool) -> None:
        own = current._internal
        if changed:
            set_pipeline(own, c.pipeline.handle._internal)
        set_bind_group(own, 0, c.bindings._internal, 0, null)
        dispatch(own, c.x, c.y, c.z)

    return direct


def encode(encoder: Any, commands: Sequence[Command], record: Record) -> None:
    """Consecutive dispatches share one compute pass; copies stand between passes."""
    current: Any = None
    pipeline: Any = None
    for c in commands:
        if isinstance(c, Launch):
            if current is None:
                current, pipeline = encoder.begin_compute_pass(), None
            record(current, c, c.pipeline is not pipeline)
            pipeline = c.pipeline
            continue
        if current is not None:
            current.end()
            current = None
        _copy(encoder, c)
    if current is not None:
        current.end()


def encode_timed(encoder: Any, commands: Sequence[Command], stamps: Stamps) -> None:
    """Each dispatch has a pass of its own, which is timed; a copy stands between two empty ones."""
    for c in commands:
        writes = stamps.writes()
        if isinstance(c, Launch):
            own = encoder.begin_compute_pass(timestamp_writes=writes)
            through_wgpu_py(own, c, True)
            own.end()
        else:
            stamps.mark(encoder, writes, "beginning_of_pass_write_index")
            _copy(encoder, c)
            stamps.mark(encoder, writes, "end_of_pass_write_index")
    stamps.resolve(encoder)


def _copy(encoder: Any, c: Transfer | Fill) -> None:
    if isinstance(c, Fill):
        _fill(encoder, c)
        return
    source, target = handle_of(c.source), handle_of(c.target)
    encoder.copy_buffer_to_buffer(source, c.source_offset, target, c.target_offset, c.nbytes)


def _fill(encoder: Any, fill: Fill) -> None:
    """Whole rows, then the row that is not full."""
    whole, rest = divmod(fill.texels, TEXTURE_WIDTH)
    for row, width, rows in ((0, TEXTURE_WIDTH, whole), (whole, rest, 1)):
        if width and rows:
            offset = fill.source_offset + row * ROW_BYTES
            source = {"buffer": handle_of(fill.source), "offset": offset, "bytes_per_row": ROW_BYTES}
            target = {"texture": alive(fill.target).handle, "origin": (0, row, 0)}
            encoder.copy_buffer_to_texture(source, target, (width, rows, 1))
