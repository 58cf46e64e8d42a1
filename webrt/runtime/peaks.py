"""What an adapter can do at most: fused multiply-adds and copies per second, measured by two kernels."""

from __future__ import annotations

import time
from dataclasses import dataclass

from webrt.plan import Kernel
from webrt.runtime.device import Device, Launch, Layout, Pipeline, Range

FMA = """
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let x = vec4<f32>(f32(id.x) * 1e-9);
  var a = x + 1.0;
  var b = x + 2.0;
  for (var i = 0u; i < 1024u; i++) {
    a = fma(a, x, x); b = fma(b, x, x); a = fma(a, x, x); b = fma(b, x, x);
    a = fma(a, x, x); b = fma(b, x, x); a = fma(a, x, x); b = fma(b, x, x);
    a = fma(a, x, x); b = fma(b, x, x); a = fma(a, x, x); b = fma(b, x, x);
    a = fma(a, x, x); b = fma(b, x, x); a = fma(a, x, x); b = fma(b, x, x);
  }
  out[id.x] = a + b;
}
"""
FLOP_PER_INVOCATION = 1024 * 16 * 4 * 2
COPY = """
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = x[id.x]; }
"""
COPIED = 8 << 20
WORKGROUP = 64
MOST_GROUPS = COPIED // 16 // WORKGROUP
LONG_ENOUGH = 0.02
"""Seconds that a measurement must take: on a fast adapter the work is doubled until it does."""


@dataclass(frozen=True)
class Peaks:
    """`gflops`: 10⁹ floating-point operations per second in f32 FMAs without memory; `gbs`: 10⁹ bytes per second, read
    plus written, by a vec4 copy kernel."""

    gflops: float
    gbs: float


def measure(device: Device, repeat: int = 3) -> Peaks:
    """Takes about half a second on a software adapter. Raises what the device raises."""
    writes, both = Layout(False, ("w",)), Layout(False, ("r", "w"))
    fma, copy = device.pipelines([(Kernel("peak_fma", FMA, "fma"), writes), (Kernel("peak_copy", COPY, "copy"), both)])
    source, target = device.alloc(COPIED, "peaks, read"), device.alloc(COPIED, "peaks, written")
    ranges = [Range(source, 0, COPIED), Range(target, 0, COPIED)]
    try:
        flop = _per_second(device, fma, ranges[1:], 16, repeat) * FLOP_PER_INVOCATION
        moved = _per_second(device, copy, ranges, MOST_GROUPS, repeat) * 32
    finally:
        device.free(source)
        device.free(target)
    return Peaks(flop / 1e9, moved / 1e9)


def _per_second(device: Device, pipeline: Pipeline, ranges: list[Range], groups: int, repeat: int) -> float:
    """Invocations per second, the best of `repeat`, with as many as take LONG_ENOUGH."""
    bound, times, written = device.bind(pipeline, ranges), 1, ranges[-1]._replace(nbytes=4)
    while (took := _seconds(device, [Launch(pipeline, bound, groups, 1, 1)] * times, written)) < LONG_ENOUGH:
        groups, times = min(groups * 4, MOST_GROUPS), times if groups < MOST_GROUPS else times * 4
    more = (_seconds(device, [Launch(pipeline, bound, groups, 1, 1)] * times, written) for _ in range(repeat))
    return groups * times * WORKGROUP / min(took, *more)


def _seconds(device: Device, commands: list[Launch], written: Range) -> float:
    start = time.perf_counter()
    device.submit(commands, [written])
    return time.perf_counter() - start
