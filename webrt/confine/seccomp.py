"""A seccomp filter, assembled here: a list of allowed calls, a list of refused ones, death for all others.

https://docs.kernel.org/userspace-api/seccomp_filter.html; numbers from the kernel's syscall tables.
"""

from __future__ import annotations

import ctypes
import errno
import os

from webrt.confine.calls import architecture, syscall

# name: (x86-64, aarch64); None where the architecture has no such call.
_Numbers = dict[str, tuple[int, int | None]]
ALLOWED: _Numbers = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "close": (3, 57), "lseek": (8, 62),
    "fstat": (5, 80), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "getcpu": (309, 168), "nanosleep": (35, 101),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "gettimeofday": (96, 169), "times": (100, 153), "getrusage": (98, 165), "sysinfo": (99, 179), "uname": (63, 160),
    "getpid": (39, 172), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "futex": (202, 98), "membarrier": (324, 283), "rseq": (334, 293),
    "set_robust_list": (273, 99), "restart_syscall": (219, 128), "getrandom": (318, 278), "exit": (60, 93),
    "exit_group": (231, 94),
}  # fmt: skip
# Calls that libraries try and can do without: EPERM, so that Python says PermissionError.
REFUSED: _Numbers = {
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "stat": (4, None), "lstat": (6, None),
    "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17),
    "getdents64": (217, 61), "ioctl": (16, 29), "fcntl": (72, 25), "dup": (32, 23), "poll": (7, None),
    "ppoll": (271, 73), "pselect6": (270, 72), "prctl": (157, 167), "prlimit64": (302, 261), "getrlimit": (97, 163),
    "mbind": (237, 235),
}  # fmt: skip
# Only without PROT_EXEC: no code arrives after the lock.
_MAPPING: _Numbers = {"mmap": (9, 222), "mprotect": (10, 226)}
# Only to this process: abort() and raise() need it.
_SIGNAL: _Numbers = {"tgkill": (234, 131)}

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_KILL, _EPERM, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data; argument i is at 16 + 8·i, low half first
_X32 = 0x40000000
_PROT_EXEC = 4
_SET_MODE_FILTER, _TSYNC = 1, 1


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def install() -> str:
    """Holds for all threads of this process. Raises OSError where the kernel has no seccomp filters."""
    code = program(architecture(), os.getpid())
    array = (_Instruction * len(code))(*(_Instruction(*i) for i in code))
    whole = _Program(len(code), array)
    syscall(_SECCOMP[architecture()], _SET_MODE_FILTER, _TSYNC, ctypes.byref(whole))
    return f"{len(ALLOWED)} calls allowed, {len(REFUSED)} refused, death for any other; no new code"


def program(machine: str, pid: int) -> list[tuple[int, int, int, int]]:
    """The filter as (code, jump if true, jump if false, k), for a process."""
    which = list(_AUDIT).index(machine)
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _AUDIT[machine]), (_RETURN, 0, 0, _KILL)]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for table, verdict in ((ALLOWED, _ALLOW), (REFUSED, _EPERM)):
        for number in _numbers(table, which):
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, verdict)]
    for number in _numbers(_MAPPING, which):
        code += _argument(number, 2, (_ANY_BIT, 0, 1, _PROT_EXEC), _EPERM, _ALLOW)
    for number in _numbers(_SIGNAL, which):
        code += _argument(number, 0, (_EQUAL, 0, 1, pid), _ALLOW, _KILL)
    return [*code, (_RETURN, 0, 0, _KILL)]


def _numbers(table: _Numbers, which: int) -> list[int]:
    return [n for numbers in table.values() if (n := numbers[which]) is not None]


def _argument(
    number: int, index: int, test: tuple[int, int, int, int], yes: int, no: int
) -> list[tuple[int, int, int, int]]:
    """For call `number`: `yes` where argument `index` passes the test, else `no`."""
    return [
        (_EQUAL, 0, 4, number), (_LOAD, 0, 0, 16 + 8 * index), test, (_RETURN, 0, 0, yes), (_RETURN, 0, 0, no),
    ]  # fmt: skip
