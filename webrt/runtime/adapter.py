"""Which adapter a native device takes, and what webrt may assume of it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webrt.errors import NoAdapter
from webrt.target import DEFAULT_LIMITS, Target

FEATURES = {"shader-f16": "shader-f16", "subgroup": "subgroups", "timestamp-query": "timestamp-query"}
"""wgpu's name of a feature → WebGPU's."""

_INSTALL = {
    "linux": "install a Vulkan driver (Debian and Ubuntu: apt install mesa-vulkan-drivers, even without a GPU)",
    "darwin": "Metal is needed: a Mac with macOS 10.15 or newer, outside a virtual machine",
    "win32": "install the graphics card's driver (Direct3D 12 or Vulkan)",
}
_SOFTWARE = {"llvmpipe": "mesa", "swiftshader": "google"}


def no_wgpu() -> NoAdapter:
    """The error where the package wgpu is not installed."""
    return NoAdapter("the package wgpu is not installed; run: pip install 'webrt[native]'")


def choose(gpu: Any, power_preference: str, name: str, force_fallback: bool) -> Any:
    """An adapter of `gpu` (wgpu's entry point): the first whose name contains `name`, else the one wgpu prefers.

    Raises NoAdapter where there is none, or where it is below what every WebGPU device guarantees (old OpenGL).
    """
    with _quiet_wayland():
        try:
            if name:
                found = [a for a in gpu.enumerate_adapters_sync() if name.lower() in _words(a.info).lower()]
                adapters = [a for a in found if not _shortfall(a.limits)] or found
                if not adapters:
                    have = ", ".join(sorted({str(a.info["device"]) for a in gpu.enumerate_adapters_sync()}))
                    raise NoAdapter(f"no adapter's name contains {name!r}; there are: {have or 'none'}")
                adapter = adapters[0]
            else:
                adapter = gpu.request_adapter_sync(
                    power_preference=power_preference, force_fallback_adapter=force_fallback
                )
        except (RuntimeError, ValueError) as e:
            raise NoAdapter(f"no WebGPU adapter was found: {_install()}") from e
    short = _shortfall(adapter.limits)
    if short:
        device = adapter.info["device"]
        raise NoAdapter(f"the only adapter, {device!r}, is below WebGPU's limits ({short}): {_install()}")
    return adapter


def describe(info: Mapping[str, Any], limits: Mapping[str, int], features: Iterable[str]) -> Target:
    """The Target of a wgpu device."""
    words = _words(info).lower()
    known = next((k for k in _SOFTWARE if k in words), "")
    return Target(
        name=str(info["device"]),
        kind="software" if known or info.get("adapter_type") == "CPU" else "gpu",
        vendor=_SOFTWARE.get(known, str(info["vendor"])),
        architecture=known or str(info["architecture"]),
        limits={k: int(limits.get(_kebab(k), v)) for k, v in DEFAULT_LIMITS.items()},
        features=frozenset(FEATURES[f] for f in features),
        subgroup_sizes=_subgroup_sizes(known, words),
    )


def identity(info: Mapping[str, Any]) -> dict[str, str]:
    """What tells an adapter, its driver's version included, from others."""
    names = {"backend": "backend_type"}
    keys = ("vendor", "architecture", "device", "description", "backend")
    return {k: str(info.get(names.get(k, k), "")) for k in keys}


def _subgroup_sizes(known: str, words: str) -> tuple[int, int]:
    """wgpu-py does not pass them on. SwiftShader has 4; llvmpipe's vectors, whose bits it names, hold 32-bit lanes."""
    if known == "swiftshader":
        return 4, 4
    bits = re.search(r"(\d+) bits", words) if known == "llvmpipe" else None
    return (int(bits[1]) // 32,) * 2 if bits else (0, 0)


def _shortfall(limits: Mapping[str, int]) -> str:
    for name, need in DEFAULT_LIMITS.items():
        have = int(limits.get(_kebab(name), need))
        if have > need if name.startswith("min") else have < need:
            return f"{name} is {have}, {need} is guaranteed"
    return ""


def _words(info: Mapping[str, Any]) -> str:
    return " ".join(str(info.get(k, "")) for k in ("vendor", "device", "description", "backend_type"))


def _kebab(name: str) -> str:
    return re.sub(r"[A-Z]|2D", lambda m: "-" + m[0].lower(), name)


def _install() -> str:
    return _INSTALL.get(sys.platform, "WebGPU needs Vulkan, Metal or Direct3D 12 on this system")


@contextlib.contextmanager
def _quiet_wayland() -> Iterator[None]:
    """Mesa asks Wayland which card the desktop uses; without one, libwayland complains on stderr of this variable."""
    if sys.platform != "linux" or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        os.environ.pop("XDG_RUNTIME_DIR", None)
