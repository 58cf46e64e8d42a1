"""Landlock with no rules: every access that the kernel can refuse is refused.

https://docs.kernel.org/userspace-api/landlock.html, "Compatibility": each ABI knows the rights of the ones before it.
"""

from __future__ import annotations

import ctypes
import errno
import os

from webrt.confine import Missing
from webrt.confine.calls import architecture, syscall

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_CREATE_RULESET_VERSION = 1
# Rights to files by the ABI that brought them: 13 first ones, REFER, TRUNCATE, IOCTL_DEV. ABI 4: TCP bind and connect.
# ABI 6: abstract Unix sockets and signals to processes outside.
_FILE_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def restrict() -> str:
    """Raises Missing where the kernel has no Landlock, or where more than this thread runs."""
    architecture()
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise Missing(f"{threads} threads are running, and it would hold for one of them")
    abi = _abi()
    rules = _Ruleset((1 << _FILE_BITS[min(abi, 5)]) - 1, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    handle = syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    try:
        syscall(_RESTRICT_SELF, handle, 0)
    finally:
        os.close(handle)
    what = ["no file or folder", *(["no TCP"] if abi >= 4 else []), *(["no signal to others"] if abi >= 6 else [])]
    return f"ABI {abi}: {', '.join(what)}"


def _abi() -> int:
    try:
        return syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError as e:
        if e.errno == errno.EOPNOTSUPP:
            raise Missing("switched off in this kernel (boot it with lsm=landlock,…)") from e
        raise Missing(f"not in this kernel (Linux 5.13 or newer has it): {e.strerror}") from e
