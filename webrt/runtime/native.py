"""The native device: wgpu-py over Vulkan, Metal or Direct3D 12."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webrt.errors import DeviceError, DeviceLost, NoAdapter, OutOfMemory, TargetError
from webrt.plan import TEXTURE_WIDTH, Bytes, Kernel
from webrt.runtime import adapter as adapters
from webrt.runtime import cdecls
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
    padded,
)
from webrt.runtime.encode import (
    ROW_BYTES,
    NativeBuffer,
    NativeTexture,
    alive,
    encode,
    encode_timed,
    handle_of,
    recorder,
    resource_of,
)
from webrt.runtime.pipelines import Pipelines
from webrt.runtime.staging import Staging
from webrt.runtime.stamps import Stamps
from webrt.runtime.textures import extent_of

FLUSH_BYTES = 64 << 20
"""wgpu keeps a copy of every write until the next submit; so many bytes at most are held."""

WAIT_SLICE = 0.25
"""Seconds after which who waits for the device looks whether another thread found it lost."""


class NativeDevice:
    """A wgpu device with all the limits of its adapter. wgpu tells nobody that a device is lost: `lost` is set by the
    first call that fails for it, by a wait that lasts too long, and by `close`.

    `adapter` (or the variable WEBRT_ADAPTER) is a part of the adapter's name; `limits` lowers what the Target says, for
    tests of small devices. Raises NoAdapter with what to install.
    """

    def __init__(
        self,
        power_preference: str = "high-performance",
        adapter: str | None = None,
        force_fallback: bool = False,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        try:
            import wgpu
            import wgpu.backends.auto
        except (ImportError, OSError) as e:
            raise adapters.no_wgpu() from e
        self._wgpu = wgpu
        cdecls.hasten(wgpu.backends.wgpu_native.ffi)
        name = os.environ.get("WEBRT_ADAPTER", "") if adapter is None else adapter
        chosen = adapters.choose(wgpu.gpu, power_preference, name, force_fallback)
        features = [f for f in adapters.FEATURES if f in chosen.features]
        try:
            self._device = chosen.request_device_sync(required_features=features, required_limits={})
        except (RuntimeError, wgpu.GPUError) as e:
            raise NoAdapter(f"the adapter {chosen.info['device']!r} gives no device ({e}); update its driver") from e
        self.target = adapters.describe(chosen.info, self._device.limits, features).with_limits(**(limits or {}))
        self.adapter = adapters.identity(chosen.info)
        self.counters = Counters()
        self.lost = False
        self._lock = threading.RLock()
        self._pipelines = Pipelines(self._device, wgpu.ShaderStage.COMPUTE, self._errors)
        self._record = recorder(wgpu)
        self._staging = Staging(self._alloc_staging, self.free, self.target.limit("maxBufferSize"))
        self._sampler: Any = None
        self._unsubmitted = 0
        self._flights = 0

    def alloc(self, nbytes: int, label: str, *, uniform: bool = False) -> NativeBuffer:
        usage = self._wgpu.BufferUsage
        kind = usage.UNIFORM if uniform else usage.STORAGE | usage.COPY_SRC
        return self._alloc(padded(nbytes), label, kind | usage.COPY_DST)

    def free(self, buffer: Buffer) -> None:
        with self._lock:
            if not isinstance(buffer, NativeBuffer) or buffer.handle is None:
                return
            handle, buffer.handle = buffer.handle, None
            self._count_alive(-1, -buffer.nbytes)
            if not self.lost:
                handle.destroy()
            self._drop_staging_alone()

    def write(self, buffer: Buffer, offset: int, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        whole = len(view) & ~3
        with self._errors(f"a write to {buffer.label}"):
            queue, handle = self._device.queue, handle_of(buffer)
            if whole:
                queue.write_buffer(handle, offset, view[:whole])
            if whole < len(view):
                queue.write_buffer(handle, offset + whole, bytes(view[whole:]).ljust(4, b"\0"))
            self._count_written(len(view))

    def alloc_texture(self, texels: int, words: bool, label: str) -> NativeTexture:
        width, rows = extent_of(texels)
        limit = self.target.limit("maxTextureDimension2D")
        if rows > limit:
            raise TargetError(
                f"{label} needs {rows} rows; the device {self.target.name!r} has maxTextureDimension2D {limit}"
            )
        usage = self._wgpu.TextureUsage
        with self._errors(f"{label}, {16 * width * rows} bytes"):
            handle = self._device.create_texture(
                label=label, size=(width, rows, 1), format="rgba32uint" if words else "rgba32float",
                usage=usage.TEXTURE_BINDING | usage.STORAGE_BINDING | usage.COPY_DST,
            )  # fmt: skip
            view = handle.create_view()
        self._count_alive(1, 16 * width * rows)
        return NativeTexture(handle, view, rows, 16 * width * rows)

    def free_texture(self, texture: Texture) -> None:
        with self._lock:
            if not isinstance(texture, NativeTexture) or texture.handle is None:
                return
            handle, texture.handle, texture.view, texture.rows = texture.handle, None, None, 0
            self._count_alive(-1, -texture.nbytes)
            if not self.lost:
                handle.destroy()
            self._drop_staging_alone()

    def write_texture(self, texture: Texture, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        whole = len(view) // ROW_BYTES
        rest = bytes(view[whole * ROW_BYTES :])
        texels = -(-len(rest) // 16)
        with self._errors("a write to a texture"):
            if whole:
                self._write_rows(texture, view[: whole * ROW_BYTES], 0, (TEXTURE_WIDTH, whole, 1))
            if rest:
                self._write_rows(texture, rest.ljust(16 * texels, b"\0"), whole, (texels, 1, 1))
            self._count_written(len(view))

    def _write_rows(self, texture: Texture, data: Bytes, row: int, size: tuple[int, int, int]) -> None:
        target = {"texture": alive(texture).handle, "origin": (0, row, 0)}
        self._device.queue.write_texture(target, data, {"bytes_per_row": 16 * size[0]}, size)

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        return self.submit((), ranges)

    def pipelines(self, wanted: Sequence[tuple[Kernel, Layout]]) -> list[Pipeline]:
        return list(self._pipelines.get(wanted, self._count_pipelines))

    def bind(self, pipeline: Pipeline, resources: Sequence[Resource]) -> BindGroup:
        entries = [{"binding": i, "resource": resource_of(r)} for i, r in enumerate(resources, pipeline.first)]
        with self._errors("a bind group"):
            if pipeline.sampler:
                entries.append({"binding": pipeline.first + len(entries), "resource": self._nearest_texel()})
            return self._device.create_bind_group(layout=pipeline.group, entries=entries)

    def _nearest_texel(self) -> Any:
        with self._lock:
            if self._sampler is None:
                self._sampler = self._device.create_sampler()
            return self._sampler

    def stamps(self, count: int) -> Stamps | None:
        if "timestamp-query" not in self.target.features or not count:
            return None
        lib, queue = self._wgpu.backends.wgpu_native.lib, self._device.queue
        with self._errors("timestamp queries"):
            return Stamps(self._wgpu, self._device, count, lib.wgpuQueueGetTimestampPeriod(queue._internal))

    def submit(
        self,
        commands: Sequence[Command],
        reads: Sequence[Range] = (),
        stamps: Timestamps | None = None,
        timeout: float | None = None,
    ) -> list[memoryview]:
        total = sum(_place(r) for r in reads)
        if not commands and not total:
            return [memoryview(bytearray()) for _ in reads]
        staging = self._staging.take(total) if total else None
        try:
            with self._errors("a submit"), self._flight():
                encoder = self._device.create_command_encoder()
                if isinstance(stamps, Stamps):
                    encode_timed(encoder, commands, stamps)
                else:
                    encode(encoder, commands, self._record)
                offset = 0
                for r in reads if staging else ():
                    if r.nbytes:
                        size = -(-r.nbytes // 4) * 4
                        encoder.copy_buffer_to_buffer(handle_of(r.buffer), r.offset, handle_of(staging), offset, size)
                    offset += _place(r)
                self._device.queue.submit([encoder.finish()])
                self._count_submit(commands)
                data = (
                    self._map(staging, total, reads, timeout) if staging else [memoryview(bytearray()) for _ in reads]
                )
        except BaseException as e:
            if staging:  # it may be mapped still
                self.free(staging)
            if type(e) is DeviceError:
                e.step = self._refused(commands)
            raise
        if staging:
            self._staging.give(staging)
            self._drop_staging_alone()
        return data

    def _refused(self, commands: Sequence[Command]) -> int:
        """The step of the first command that wgpu refuses alone, too."""
        for command in commands:
            try:
                encoder = self._device.create_command_encoder()
                encode(encoder, [command], self._record)
                encoder.finish()
            except (self._wgpu.GPUError, RuntimeError, DeviceError):
                return command.step
        return -1

    def close(self) -> None:
        self._lose()
        self._pipelines.clear()

    def _lose(self) -> None:
        """From now on every call raises DeviceLost. wgpu's device goes with the last submit that waits: wgpu ends the
        process where one reads from a buffer of a destroyed device."""
        with self._lock:
            self.lost = True
            self._staging.drop()
            if not self._flights:
                self._device.destroy()

    @contextlib.contextmanager
    def _flight(self) -> Iterator[None]:
        with self._lock:
            self._flights += 1
        try:
            yield
        finally:
            with self._lock:
                self._flights -= 1
                if self.lost and not self._flights:
                    self._device.destroy()

    def _alloc(self, nbytes: int, label: str, usage: int) -> NativeBuffer:
        limit = self.target.limit("maxBufferSize")
        if nbytes > limit:
            raise TargetError(
                f"{label} needs a buffer of {nbytes} bytes; the device {self.target.name!r} has maxBufferSize {limit}"
            )
        with self._errors(f"{label}, {nbytes} bytes"):
            handle = self._device.create_buffer(label=label, size=nbytes, usage=usage)
        self._count_alive(1, nbytes)
        return NativeBuffer(handle, nbytes, label)

    def _count_alive(self, buffers: int, nbytes: int) -> None:
        with self._lock:
            self.counters.buffers += buffers
            self.counters.created += max(buffers, 0)
            self.counters.bytes += nbytes

    def _count_pipelines(self, made: int) -> None:
        with self._lock:
            self.counters.pipelines += made

    def _alloc_staging(self, nbytes: int) -> NativeBuffer:
        usage = self._wgpu.BufferUsage
        return self._alloc(nbytes, "read-back", usage.MAP_READ | usage.COPY_DST)

    def _drop_staging_alone(self) -> None:
        """Read-back buffers go when nothing else is left."""
        with self._lock:
            if self.counters.buffers and self.counters.buffers == self._staging.idle:
                self._staging.drop()

    def _map(
        self, staging: NativeBuffer, total: int, reads: Sequence[Range], timeout: float | None
    ) -> list[memoryview]:
        # READ_NOSYNC, as wgpu's own read_buffer does it: a plain READ would submit once more.
        handle = handle_of(staging)
        self._wait(handle.map_async("READ_NOSYNC", 0, total), timeout)
        try:
            out, offset = [], 0
            for r in reads:
                data = handle.read_mapped(offset, _place(r))[: r.nbytes] if r.nbytes else memoryview(bytearray())
                out.append(data)
                offset += _place(r)
        finally:
            handle.unmap()
        with self._lock:
            self.counters.read += sum(r.nbytes for r in reads)
        return out

    def _wait(self, promise: Any, timeout: float | None) -> None:
        """Waits for wgpu. Raises DeviceLost after `timeout` seconds, and where another thread lost the device."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while not promise._thread_event.wait(min(WAIT_SLICE, max(0.0, end - time.monotonic()))):
            if not self.lost and time.monotonic() >= end:
                self._lose()
                raise DeviceLost(
                    f"the device {self.target.name!r} did not end its work in the time it was given, and is given up"
                )
            self._alive("a submit")
        promise.sync_wait()
        self._alive("a submit")

    def _alive(self, what: str) -> None:
        if self.lost:
            raise DeviceLost(
                f"{what}: the device {self.target.name!r} was closed or lost; recover the session, or make a new one"
            )

    def _count_written(self, nbytes: int) -> None:
        with self._lock:
            self.counters.written += nbytes
            self._unsubmitted += nbytes
            if self._unsubmitted <= FLUSH_BYTES:
                return
            self._unsubmitted = 0
        self._device.queue.submit([])

    def _count_submit(self, commands: Sequence[Command]) -> None:
        launches = sum(isinstance(c, Launch) for c in commands)
        with self._lock:
            self._unsubmitted = 0
            self.counters.submits += 1
            self.counters.dispatches += launches
            self.counters.copies += len(commands) - launches

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """wgpu's errors as webrt's; `what` was asked for."""
        self._alive(what)
        try:
            yield
        except self._wgpu.GPUOutOfMemoryError as e:
            held = f"{self.counters.bytes} bytes in {self.counters.buffers} buffers"
            raise OutOfMemory(
                f"{what}: the device {self.target.name!r} has no memory left beside the {held} that it holds; "
                "use smaller inputs, or close other sessions"
            ) from e
        except (self._wgpu.GPUError, RuntimeError) as e:
            if self._tells_loss(e) or self._is_lost():
                self._lose()
                raise DeviceLost(
                    f"{what}: the device {self.target.name!r} is lost; recover the session, or make a new one"
                ) from e
            raise DeviceError(f"{what}: the device {self.target.name!r} refused it: {e}") from e

    def _is_lost(self) -> bool:
        """Asks wgpu, which says so only when something is made."""
        try:
            self._device.create_buffer(size=16, usage=self._wgpu.BufferUsage.COPY_DST).destroy()
        except (self._wgpu.GPUError, RuntimeError) as e:
            return self._tells_loss(e)
        return False

    def _tells_loss(self, error: Exception) -> bool:
        return "device is lost" in str(error).lower()


def _place(r: Range) -> int:
    """Bytes that a range takes in the read-back buffer: mappings start at multiples of 8."""
    return -(-r.nbytes // 8) * 8
