"""Timestamp queries of a wgpu device: when each command of a submit began and ended."""

from __future__ import annotations

import struct
from typing import Any

MOST = 2048
"""Commands per query set: WebGPU allows 4096 queries in one."""


class Stamps:
    """Begin and end of `count` commands of one submit: `writes` for each and `resolve` while it is encoded, then
    `read`."""

    def __init__(self, wgpu: Any, device: Any, count: int, period: float) -> None:
        """`device` is wgpu's; `period` its nanoseconds per tick."""
        self._device, self._count, self._period, self._next = device, count, period, 0
        usage = wgpu.BufferUsage
        sizes = [min(MOST, count - start) for start in range(0, count, MOST)]
        self._sets = [device.create_query_set(type="timestamp", count=2 * n) for n in sizes]
        self._sizes = sizes
        resolved = usage.QUERY_RESOLVE | usage.COPY_SRC
        self._buffers = [device.create_buffer(size=16 * n, usage=resolved) for n in sizes]

    def writes(self) -> dict[str, Any]:
        """What the pass of the next command has to write."""
        number, at = divmod(self._next, MOST)
        self._next += 1
        return {
            "query_set": self._sets[number],
            "beginning_of_pass_write_index": 2 * at,
            "end_of_pass_write_index": 2 * at + 1,
        }

    def mark(self, encoder: Any, writes: dict[str, Any], key: str) -> None:
        """An empty pass that writes one of the two, for a command that has no pass of its own."""
        one = {"query_set": writes["query_set"], key: writes[key]}
        encoder.begin_compute_pass(timestamp_writes=one).end()

    def resolve(self, encoder: Any) -> None:
        """The last command of the submit."""
        for queries, buffer, n in zip(self._sets, self._buffers, self._sizes):
            encoder.resolve_query_set(queries, 0, 2 * n, buffer, 0)

    def read(self) -> list[tuple[int, int]]:
        """(begin, end) of each command in nanoseconds, on a clock of the device's own. May be called once."""
        ticks: list[int] = []
        for buffer, n in zip(self._buffers, self._sizes):
            ticks += struct.unpack(f"<{2 * n}Q", self._device.queue.read_buffer(buffer, 0, 16 * n))
            buffer.destroy()
        for queries in self._sets:
            queries.destroy()
        scaled = [round(t * self._period) for t in ticks]
        return list(zip(scaled[::2], scaled[1::2]))
