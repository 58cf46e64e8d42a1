"""Tensors on the device: inputs and outputs that stay there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.session.models import (
    AFFINE,
    CACHE,
    affine,
    opened,
)
from webrt.errors import DeviceError, InputError, UnsupportedType
from webrt.runtime.native import NativeDevice
from webrt.runtime.tensor import Tensor


def test_a_cache_stays_on_the_device(device: NativeDevice) -> None:
    step = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    with opened(CACHE, device) as session:
        past: Any = np.zeros((1, 0, 4), np.float32)
        for n in range(1, 6):
            present, y = session.run(None, {"past": past, "x": step + n}, {"present": "device"})
            assert isinstance(present, Tensor) and present.shape == (1, n, 4) and present.device is device
            if isinstance(past, Tensor):
                assert (session.last_run.up, session.last_run.down) == (16, 16 * n)
                past.close()
            past = present
        expected = np.concatenate([step + n for n in range(1, 6)], axis=1)
        np.testing.assert_array_equal(past.numpy(), expected)
        np.testing.assert_array_equal(y, -expected)
        past.close()


def test_a_growing_cache_on_the_device_needs_few_buffers(device: NativeDevice) -> None:
    """64 steps, each an entry longer: buffers of closed tensors serve again; what is handed out stays apart."""
    with opened(CACHE, device) as session:
        past: Any = np.zeros((1, 0, 4), np.float32)
        for n in range(64):
            feeds = {"past": past, "x": np.full((1, 1, 4), n, np.float32)}
            (present,) = session.run(["present"], feeds, "device")
            if n:
                past.close()
            past = present
            if n == 1:
                created = device.counters.created
        assert device.counters.created - created <= 4
        more = session.run(["present"], {"past": past, "x": np.zeros((1, 1, 4), np.float32)}, "device")[0]
        np.testing.assert_array_equal(past.numpy()[0, :, 0], np.arange(64))
        np.testing.assert_array_equal(more.numpy()[0, :, 0], [*range(64), 0])
    np.testing.assert_array_equal(past.numpy()[0, :, 0], np.arange(64))
    more.close()
    past.close()


def test_a_device_input_is_bound_where_it_lies(device: NativeDevice) -> None:
    feeds = affine(50)
    with opened(AFFINE, device) as session, Tensor.from_numpy(feeds["x"], device) as x:
        host = session.run(None, feeds)
        mixed = session.run(None, {**feeds, "x": x})
        np.testing.assert_array_equal(mixed[0], host[0])
        assert session.last_run.copies == 0 and session.last_run.up == 600 and session.last_run.buffers == 0
        np.testing.assert_array_equal(x.numpy(), feeds["x"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], host[0])


def test_device_tensors_of_the_wrong_kind(device: NativeDevice) -> None:
    feeds = affine(2)
    with opened(AFFINE, device) as session, Tensor.from_numpy(np.zeros((2, 3), np.int32), device) as wrong:
        with pytest.raises(InputError, match=r"it is int32; expected is x: float32\[N, 3\]"):
            session.run(None, {**feeds, "x": wrong})
        with Tensor.from_numpy(np.zeros((2, 4), np.float32), device) as wide, pytest.raises(InputError, match="size 4"):
            session.run(None, {**feeds, "x": wide})
        gone = Tensor.from_numpy(feeds["x"], device)
        gone.close()
        with pytest.raises(DeviceError, match="closed"):
            session.run(None, {**feeds, "x": gone})
        with pytest.raises(InputError, match='"cpu" or "device"'):
            session.run(None, feeds, "gpu")


def test_a_tensor_needs_a_device() -> None:
    nowhere: Any = None
    with pytest.raises(InputError, match=r"pass session\.device, not None"):
        Tensor.from_numpy(np.zeros(3, np.float32), nowhere)


def test_tensors_free_themselves(device: NativeDevice) -> None:
    before = device.counters.buffers
    tensor = Tensor.from_numpy(np.ones(5, np.float32), device)
    assert "float32[5]" in repr(tensor) and device.counters.buffers == before + 1
    del tensor
    assert device.counters.buffers == before
    with pytest.raises(UnsupportedType, match="float64"):
        Tensor.from_numpy(np.ones(5), device)
