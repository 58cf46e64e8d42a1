"""The device, whose memory every test gives back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels.harness import device as shared_device
from webrt.runtime.native import NativeDevice


@pytest.fixture
def device() -> Iterator[NativeDevice]:
    found = shared_device()
    before = (found.counters.buffers, found.counters.bytes)
    yield found
    assert (found.counters.buffers, found.counters.bytes) == before, "device memory was not given back"
