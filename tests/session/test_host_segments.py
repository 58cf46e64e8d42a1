"""Host steps between those of the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.session.models import (
    HEAD,
    LATE_SIZES,
    TWO_SEGMENTS,
    Array,
    made,
    opened,
)
from webrt.errors import ShapeError, UnsupportedType
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session


def test_two_host_segments(device: NativeDevice) -> None:
    x = np.linspace(-1, 1, 7, dtype=np.float32)
    with opened(TWO_SEGMENTS, device) as session:
        for _ in range(2):
            (y,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, -np.abs(x))
        assert session.last_run.host_nodes == 4 and session.last_run.submits == 3 and session.last_run.buffers == 0
        assert session.last_run.up == session.last_run.down == 3 * 28
        (out,) = session.run(None, {"x": x}, "device")
        np.testing.assert_array_equal(out.numpy(), -np.abs(x))
        out.close()


def test_sizes_that_only_a_host_step_knows(device: NativeDevice) -> None:
    x = np.arange(6, dtype=np.float64)
    with opened(LATE_SIZES, device) as session:
        for keep in ([1, 0, 1, 0, 1, 1], [0] * 6, [1] * 6, [1, 0, 1, 0, 1, 1]):
            mask = np.array(keep, bool)
            y, z = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, -x[mask].astype(np.float32))
            np.testing.assert_array_equal(z, x[mask].astype(np.float32))


def test_host_outputs_are_the_callers_own(device: NativeDevice) -> None:
    text = HEAD + "(double[N] x) => (double[N] y, double[N] z) { y = Identity(x)  z = Neg(x) }"
    x = np.arange(3, dtype=np.float64)
    with opened(text, device) as session:
        y, _ = session.run(None, {"x": x})
        y += 1
        assert x.tolist() == [0, 1, 2]
        with pytest.raises(UnsupportedType, match="devices do not hold"):
            session.run(None, {"x": x}, "device")


def test_a_host_node_that_breaks_its_shape_is_named(device: NativeDevice) -> None:
    class Wrong:
        def prepare(self, node: bytes, opsets: object) -> Any:
            return self

        def run(self, inputs: list[Array], outer: object = None) -> list[Array]:
            return [np.zeros((2, 2), np.float64)]

    with Session(made(TWO_SEGMENTS), device, Wrong()) as session, pytest.raises(ShapeError, match="Cast .*rank 2"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_sizes_made_within_a_host_segment(device: NativeDevice) -> None:
    """The count of one CPU node's result decides what the next CPU node of the same segment does."""
    text = (
        HEAD
        + """(double[N] x, bool[N] keep) => (double[?] y, int64[1] n) {
      k = Compress<axis = 0>(x, keep)  n = Shape(k)  f = Cast<to = 11>(n)  y = Add(k, f) }"""
    )
    x = np.arange(5, dtype=np.float64)
    with opened(text, device) as session:
        for keep in ([1, 0, 1, 0, 1], [0] * 5):
            mask = np.array(keep, bool)
            y, n = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, x[mask] + mask.sum())
            np.testing.assert_array_equal(n, [mask.sum()])


def test_a_view_of_what_a_host_segment_makes(device: NativeDevice) -> None:
    """A device alias between two CPU nodes: its bytes are there only after the first, and so may its size be."""
    text = (
        HEAD
        + """(double[N, 2] x, bool[N] keep) => (double[?] y) {
      k = Compress<axis = 0>(x, keep)  f = Cast<to = 1>(k)  flat = Constant<value = int64[1] {-1}>()
      v = Reshape(f, flat)  y = Cast<to = 11>(v) }"""
    )
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    plan = made(text)
    assert [s.kind for s in plan.steps] == ["host"] * 3
    with opened(text, device) as session:
        for keep in ([1, 0, 1, 0, 1], [0, 1, 0, 0, 0]):
            mask = np.array(keep, bool)
            (y,) = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, x[mask].reshape(-1))
