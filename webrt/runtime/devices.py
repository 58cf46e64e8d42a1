"""The devices of this process, shared by all sessions, and the session that fits each."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from webrt.errors import InputError
from webrt.plan import Plan
from webrt.runtime.device import HostProvider
from webrt.runtime.log import Log
from webrt.runtime.native import NativeDevice
from webrt.runtime.null import NullDevice
from webrt.runtime.session import Session
from webrt.runtime.tuning import Tuning

if TYPE_CHECKING:
    from webrt.runtime.browser import BrowserDevice, BrowserSession

AnyDevice: TypeAlias = "NativeDevice | NullDevice | BrowserDevice"
AnySession: TypeAlias = "Session | BrowserSession"

IN_BROWSER = sys.platform == "emscripten"

_open: dict[str, NativeDevice] = {}
_lock = threading.Lock()


def open_device(options: Mapping[str, Any]) -> NativeDevice | BrowserDevice:
    """The device for these options of the WebGPU provider; a new one where the last was lost.

    In a page it is the page's, whatever the options are.

    `power_preference`: "high-performance" (default) or "low-power"; `adapter`: a part of its name; `force_fallback`: a
    software adapter; `limits`: lower ones, by WebGPU's names. Raises NoAdapter, and InputError for a wrong value.
    """
    preference = options.get("power_preference", "high-performance")
    if preference not in ("high-performance", "low-power"):
        raise InputError(f'power_preference is "high-performance" or "low-power", not {preference!r}')
    if IN_BROWSER:
        from webrt.runtime import browser

        return browser.open_device(options)
    key = json.dumps({k: dict(v) if isinstance(v, Mapping) else v for k, v in sorted(options.items())}, default=str)
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


def adapter_name(device: AnyDevice) -> str:
    """The adapter for people."""
    if isinstance(device, NullDevice):
        return "none: everything runs on the CPU"
    target = device.target
    return f"{target.name} ({', '.join(filter(None, (target.vendor, target.kind)))})"


def open_session(
    plan: Plan, device: AnyDevice, host: HostProvider | None, progress: Callable[[str, int, int], None] | None = None,
    tuning: Tuning | None = None, log: Log | None = None,
) -> AnySession:  # fmt: skip
    """A session of the device's own kind; in a page it reports its loading. Raises what that kind raises."""
    if isinstance(device, (NativeDevice, NullDevice)):
        return Session(plan, device, host, tuning, log)
    from webrt.runtime.browser import BrowserSession

    return BrowserSession(plan, device, host, progress, tuning, log)


async def prepare() -> None:
    """In a page: opens its device, so that `open_device` need not wait. Elsewhere it does nothing."""
    if IN_BROWSER:
        from webrt.runtime import browser

        await browser.prepare()
