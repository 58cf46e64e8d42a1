"""Models and sessions for tests of what goes wrong: small ones, each session on a device of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import webrt
from webrt.host.node import PreparedNode
from webrt.options import CPU, WEBGPU
from webrt.plan import Kernel, Plan
from webrt.runtime.native import NativeDevice

Array = np.ndarray[Any, Any]
Providers = list[str | tuple[str, Mapping[str, Any]]]
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '

CHAIN = (
    HEAD
    + """(float[N, 4] x) => (float[N, 3] y)
    <float[4] b = {1.0, -2.0, 3.0, 0.5}, float[4, 3] m = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    { a = Add(x, b)  r = Relu(a)  y = MatMul(r, m) }"""
)
# float64 is never on a device: a segment of host steps between two of kernels.
SPLIT = (
    HEAD
    + "(float[N] x) => (float[N] y) { a = Neg(x)  b = Cast<to = 11>(a)  c = Sqrt(b)  d = Cast<to = 1>(c)  y = Neg(d) }"
)
# A loop on the device: until the data says so, at most n times; states are stacked.
LOOP = (
    HEAD
    + """(float[N, 4] x, int64 n) => (float[N, 4] y, float[T, N, 4] all) {
      go = Constant<value = bool {1}>()  far = Constant<value = float {100.0}>()
      y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[N, 4] s) =>
        (bool more, float[N, 4] t, float[N, 4] t) {
          t = Add(s, x)  m = ReduceMax<keepdims = 0>(t)  more = Less(m, far) }> }"""
)

# A loop on the device, as often as it is told.
LONG_LOOP = (
    HEAD
    + """(float[8, 8] x, int64 n) => (float[8, 8] y) {
      go = Constant<value = bool {1}>()
      y = Loop (n, go, x) <body = b (int64 i, bool c, float[8, 8] s) => (bool c2, float[8, 8] t) {
          c2 = Identity(c)  m = MatMul(s, s)  t = Tanh(m) }> }"""
)

_numbers = itertools.count(1)


def own_device(**limits: int) -> Providers:
    """A provider list whose device no other session shares: it has a limit that no other has."""
    return [(WEBGPU, {"limits": {"maxBufferSize": (1 << 28) + 16 * next(_numbers), **limits}}), CPU]


def model(text: str) -> bytes:
    """An ONNX model of its text."""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def opened(source: Any, providers: Providers | None = None, **entries: str) -> webrt.InferenceSession:
    """A session on a device of its own; `entries` are session config entries without their `session.`."""
    options = webrt.SessionOptions()
    options.log_severity_level = 3
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return webrt.InferenceSession(source, options, providers or own_device())


def chain_feeds(n: int, seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed + n).standard_normal((n, 4)).astype(np.float32)}


def check_chain(session: webrt.InferenceSession, n: int = 3, **options: Any) -> None:
    """A run of CHAIN is right."""
    feeds = chain_feeds(n)
    (y,) = session.run(None, feeds, **options)
    wanted = np.maximum(feeds["x"] + np.array([1, -2, 3, 0.5], np.float32), 0) @ np.arange(1, 13).reshape(4, 3)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


def destroy(session: webrt.InferenceSession) -> NativeDevice:
    """Takes wgpu's device away, as a driver may; nobody is told."""
    device = session.device
    assert isinstance(device, NativeDevice)
    device._device.destroy()
    return device


@contextmanager
def nothing_left(device: Any) -> Iterator[None]:
    """The device holds as many buffers and bytes afterwards as before."""
    before = (device.counters.buffers, device.counters.bytes)
    yield
    assert (device.counters.buffers, device.counters.bytes) == before, "device memory was not given back"


def before_host_nodes(patch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Every node that the CPU provider runs calls `call` first."""
    run = PreparedNode.run

    def hooked(self: PreparedNode, *args: Any, **more: Any) -> Any:
        call()
        return run(self, *args, **more)

    patch.setattr(PreparedNode, "run", hooked)


SLOW_SIZE = 262144
SLOW_FEEDS = {"x": np.zeros(SLOW_SIZE, np.float32)}
_LOOP = """
  for (var k = 0u; k < 50000u; k += 1u) { spent = sin(spent + f32(k)); }
  if (spent == 7.0) { return; }
"""


def slow_plan(path: Path) -> None:
    """Writes a plan whose kernel runs for a second or more with SLOW_FEEDS: WGSL from a stranger may do so."""
    plan = webrt.compile_model(model(HEAD + f"(float[{SLOW_SIZE}] x) => (float[{SLOW_SIZE}] y) {{ y = Exp(x) }}"))
    webrt.save_plan(replace(plan, kernels=tuple(_slow(k) for k in plan.kernels)), path)


def _slow(kernel: Kernel) -> Kernel:
    head, main = kernel.wgsl.split("@compute", 1)
    first = main.index("{") + 1
    return replace(kernel, wgsl=f"{head}var<private> spent: f32;\n@compute{main[:first]}{_LOOP}{main[first:]}")


def plan_of(text: str) -> Plan:
    """The plan of a model's text, as it is written."""
    return webrt.compile_model(model(text), webrt.CompileOptions(level="disabled"))
