"""System calls of Linux that Python has no function for."""

from __future__ import annotations

import ctypes
import os
import platform

from webrt.confine import Missing

ARCHITECTURES = ("x86_64", "aarch64")


def architecture() -> str:
    """The machine's name, one of ARCHITECTURES. Raises Missing for any other, and for 32-bit Python."""
    machine = platform.machine()
    if machine not in ARCHITECTURES or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise Missing(f"not written for {machine}; known are {', '.join(ARCHITECTURES)}")
    return machine


def syscall(number: int, *arguments: object) -> int:
    """A raw system call; integers are passed as 64 bits. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
