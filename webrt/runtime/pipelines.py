"""Compute pipelines of a wgpu device, kept by text and made in parallel."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from webrt import wgsl
from webrt.errors import DeviceError, DeviceLost, KernelError, OutOfMemory
from webrt.plan import Kernel
from webrt.runtime.device import Layout

_ENTRIES: dict[str, dict[str, Any]] = {
    "r": {"buffer": {"type": "read-only-storage"}},
    "w": {"buffer": {"type": "storage"}},
    "f": {"texture": {"sample_type": "unfilterable-float"}},
    "u": {"texture": {"sample_type": "uint"}},
    "F": {"storage_texture": {"access": "read-only", "format": "rgba32float"}},
    "U": {"storage_texture": {"access": "read-only", "format": "rgba32uint"}},
}
"""By the letters of kernel_layout.KernelLayout."""

MOST_KEPT = 1024
"""Pipelines that are remembered, the latest asked for; sessions hold theirs for as long as they live."""

Guard: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Turns wgpu's errors within its block into webrt's; takes what was asked for."""


@dataclass(frozen=True, eq=False, slots=True)
class NativePipeline:
    """A compute pipeline, the layout of its bind group, the group's first binding, whether a sampler is its last."""

    handle: Any
    group: Any
    first: int
    sampler: bool


class Pipelines:
    """Pipelines by WGSL text and layout: a plan's own names and hashes are not trusted. May be used by any thread."""

    def __init__(self, device: Any, stage: int, guard: Guard) -> None:
        """`device` is wgpu's; `stage` its flag for the compute stage."""
        self._device, self._stage, self._guard = device, stage, guard
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, Layout], NativePipeline] = {}

    def get(self, wanted: Sequence[tuple[Kernel, Layout]], made: Callable[[int], None]) -> list[NativePipeline]:
        """One pipeline for each kernel; `made` is told how many were made for that. Raises KernelError, after which the
        others are kept."""
        keys = [(wgsl.dialect(k, tint=False), layout) for k, layout in wanted]
        with self._lock:
            missing = {key: k for key, (k, _) in zip(keys, wanted) if key not in self._kept}
            if missing:
                with self._guard("pipelines"):
                    groups = {layout: self._group(layout) for layout in {layout for _, layout in missing}}
                with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
                    jobs = {
                        key: pool.submit(self._make, k, key[0], groups[key[1]], key[1]) for key, k in missing.items()
                    }
                done = {key: job.result() for key, job in jobs.items() if job.exception() is None}
                self._kept.update(done)
                made(len(done))
                for job in jobs.values():
                    job.result()
            found = [self._kept[key] for key in keys]
            for key, pipeline in zip(keys, found):
                self._kept.pop(key, None)
                self._kept[key] = pipeline  # the latest asked for stand last
            for key in list(self._kept)[: max(0, len(self._kept) - MOST_KEPT)]:
                del self._kept[key]
            return found

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._kept.clear()

    def _group(self, layout: Layout) -> Any:
        kinds: list[dict[str, Any]] = [{"buffer": {"type": "uniform"}}] if layout.params else []
        kinds += [_ENTRIES[a] for a in layout.access]
        kinds += [{"sampler": {"type": "non-filtering"}}] if layout.sampler else []
        first = 0 if layout.params else 1
        entries = [{"binding": i, "visibility": self._stage, **kind} for i, kind in enumerate(kinds, first)]
        return self._device.create_bind_group_layout(entries=entries)

    def _make(self, kernel: Kernel, text: str, group: Any, layout: Layout) -> NativePipeline:
        try:
            with self._guard(f"the kernel {kernel.name!r}"):
                module = self._device.create_shader_module(label=kernel.name, code=text)
                whole = self._device.create_pipeline_layout(bind_group_layouts=[group])
                handle = self._device.create_compute_pipeline(
                    label=kernel.name, layout=whole, compute={"module": module, "entry_point": "main"}
                )
        except (DeviceLost, OutOfMemory):
            raise
        except DeviceError as e:
            raise _refused(kernel, text, str(e.__cause__ or e)) from e
        return NativePipeline(handle, group, 0 if layout.params else 1, layout.sampler)


def _refused(kernel: Kernel, text: str, message: str) -> KernelError:
    found = re.search(r"wgsl:(\d+)", message)
    numbered = wgsl.excerpt(text, int(found[1]) if found else 1)
    error = KernelError(f"the device refused the kernel {kernel.name!r}:\n{message.strip()}\n{numbered}")
    error.kernel, error.said = kernel.hash, _first(message)
    return error


def _first(message: str) -> str:
    """The line of wgpu's message that says what is wrong: it follows where in wgpu that was found."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line and "Validation Error" not in line), lines[-1])
