"""Devices that a test made for itself go with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from webrt.runtime import devices


@pytest.fixture(autouse=True)
def _own_devices_are_closed() -> Iterator[None]:
    before = set(devices._open)
    yield
    for key in set(devices._open) - before:
        devices._open.pop(key).close()
