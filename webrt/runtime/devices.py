"""The devices of this process: one for each set of options, shared by all sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from webrt.errors import InputError
from webrt.runtime.device import Device
from webrt.runtime.native import NativeDevice

_open: dict[str, NativeDevice] = {}
_lock = threading.Lock()


def open_device(options: Mapping[str, Any]) -> Device:
    """The native device for these options of the WebGPU provider; a new one where the last was lost.

    `power_preference`: "high-performance" (default) or "low-power"; `adapter`: a part of its name; `force_fallback`: a
    software adapter; `limits`: lower ones, by WebGPU's names. Raises NoAdapter, and InputError for a wrong value.
    """
    key = json.dumps({k: dict(v) if isinstance(v, Mapping) else v for k, v in sorted(options.items())}, default=str)
    preference = options.get("power_preference", "high-performance")
    if preference not in ("high-performance", "low-power"):
        raise InputError(f'power_preference is "high-performance" or "low-power", not {preference!r}')
    with _lock:
        device = _open.get(key)
        if device is None or device.lost:
            device = _open[key] = NativeDevice(
                power_preference=preference,
                adapter=options.get("adapter"),
                force_fallback=options.get("force_fallback") in (True, 1, "1", "True", "true"),
                limits=options.get("limits"),
            )
        return device
