"""Small models, their plans as they are written, and what the first of them gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser

from tests.kernels.harness import device as shared_device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

Array = np.ndarray[Any, Any]


HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


AFFINE = (
    HEAD
    + """(float[N, 3] x, float[N, 3] b) => (float[N, 3] y, float[N, 1] z)
    { s = Add(x, b)  y = Relu(s)  z = ReduceMax<axes = [1], keepdims = 1>(y) }"""
)


# float64 is never on a device, so the casts are host steps: two segments of two nodes each.
TWO_SEGMENTS = (
    HEAD
    + """(float[N] x) => (float[N] y) {
    a = Neg(x)  b = Cast<to = 11>(a)  c = Cast<to = 1>(b)  d = Abs(c)
    e = Cast<to = 11>(d)  f = Cast<to = 1>(e)  y = Neg(f) }"""
)


LATE_SIZES = (
    HEAD
    + """(double[N] x, bool[N] keep) => (float[M] y, float[M] z) {
    a = Compress(x, keep)  b = Cast<to = 1>(a)  y = Neg(b)  z = Abs(y) }"""
)


CACHE = (
    HEAD
    + """(float[1, P, 4] past, float[1, S, 4] x) => (float[1, T, 4] present, float[1, T, 4] y)
    { present = Concat<axis = 1>(past, x)  y = Neg(present) }"""
)


def made(text: str, **options: Any) -> Plan:
    """The plan of the nodes as they are written: no pass removes a host segment."""
    options = {"level": "disabled", "target": shared_device().target, **options}
    return compile_model(onnx.parser.parse_model(text), CompileOptions(**options))


def opened(text: str, device: NativeDevice) -> Session:
    return Session(made(text), device, CpuProvider())


def affine(n: int) -> dict[str, Array]:
    values = np.random.default_rng(n).standard_normal((2, n, 3)).astype(np.float32)
    return {"x": values[0], "b": values[1]}


def check_affine(session: Session, n: int) -> None:
    feeds = affine(n)
    y, z = session.run(None, feeds)
    expected = np.maximum(feeds["x"] + feeds["b"], 0)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(z, expected.max(1, keepdims=True, initial=-np.inf) if n else np.zeros((0, 1)))
