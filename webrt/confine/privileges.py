"""Privileges and tracing: capset(2) and prctl(2) of Linux."""

from __future__ import annotations

import ctypes
import signal

from webrt.confine.calls import architecture, prctl, syscall

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def drop() -> str:
    """No new privileges by exec, and no capability even for root; the process ends with its parent."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    nothing = (ctypes.c_uint32 * 6)()
    syscall(_CAPSET[architecture()], ctypes.byref(_CapHeader(_CAPABILITY_VERSION_3, 0)), ctypes.byref(nothing))
    return "no new privileges, no capabilities, ends with its parent"


def not_dumpable() -> str:
    """No core dump, and no other process of this account may trace this one."""
    prctl(_PR_SET_DUMPABLE, 0)
    return "cannot be traced or dumped by other processes of this account"
