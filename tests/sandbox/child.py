"""A worker process for tests: like `webrt.compiler.worker` up to the lock, then one probe instead of a model.

    python child.py PROBE locked|unlocked [ARGUMENT]

The parent talks to it as to the real worker. A probe that the lock stops raises, is killed, or never ends; a probe that
succeeds returns a text, sent as the message "escaped". An OSError is sent as "refused", a MemoryError as "memory".
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna  # noqa: F401 - getaddrinfo wants it
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from webrt.compiler import worker
from webrt.confine import Limits, frames, lock

PARENT = os.getppid()


def connect(argument: str) -> str:
    """A TCP connection to a server that listens on 127.0.0.1."""
    with socket.create_connection(("127.0.0.1", int(argument)), timeout=5):
        return "connected"


def connect_outside(argument: str) -> str:
    """Only asks for a route: a datagram socket that is connected sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.2", 9))
        return str(s.getsockname())


def unix_socket(argument: str) -> str:
    return str(socket.socketpair())


def resolve(argument: str) -> str:
    return str(socket.getaddrinfo("localhost", 80))


def read_file(argument: str) -> str:
    return open(argument).read()


def write_file(argument: str) -> str:
    with open(argument, "w") as f:
        f.write("escaped")
    return argument


def make_folder(argument: str) -> str:
    os.mkdir(argument)
    return argument


def list_folder(argument: str) -> str:
    return str(os.listdir(argument))


def execute(argument: str) -> str:
    return subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, check=True, text=True).stdout


def exec_self(argument: str) -> str:
    """Replaces this process; the new one cannot speak the protocol, so it says so by its exit code."""
    os.execv("/bin/sh", ["/bin/sh", "-c", "exit 42"])


def fork_bomb(argument: str) -> str:
    """Eight children, each of which ends at once."""
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return "eight children"


def thread(argument: str) -> str:
    t = threading.Thread(target=lambda: None)
    t.start()
    t.join()
    return "a thread"


def trace_parent(argument: str) -> str:
    """PTRACE_SEIZE of a process that the test started for this; it would be stopped by PTRACE_ATTACH."""
    if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(argument), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return "tracing"


def signal_other(argument: str) -> str:
    os.kill(int(argument), signal.SIGTERM)
    return "signalled"


def probe_parent(argument: str) -> str:
    os.kill(PARENT, 0)
    return "signalled"


def other_memory(argument: str) -> str:
    """process_vm_readv of nothing, from another process."""
    number = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    arguments = [ctypes.c_long(x) for x in (number, int(argument), 0, 0, 0, 0, 0)]
    if ctypes.CDLL(None, use_errno=True).syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return "read"


def environment(argument: str) -> str:
    """The variables that there are, as the C library sees them too."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    found = {**os.environ, **({"PYTHONHASHSEED": "0"} if libc.getenv(b"PYTHONHASHSEED") else {})}
    if not found:
        raise PermissionError("nothing is there")
    return str(sorted(found))


def own_environment_file(argument: str) -> str:
    return open("/proc/self/environ").read()


def other_process(argument: str) -> str:
    return open(f"/proc/{argument}/cmdline").read()


def memory_bomb(argument: str) -> str:
    kept = []
    while sum(map(len, kept)) < 3 << 30:
        kept.append(bytearray(64 << 20))
    return "3 GiB"


def native_memory_bomb(argument: str) -> str:
    import numpy as np

    return str(np.empty(3 << 30, np.uint8).nbytes)


def busy(argument: str) -> str:
    end = time.monotonic() + float(argument)
    while time.monotonic() < end:
        pass
    return "still here"


def idle(argument: str) -> str:
    time.sleep(float(argument))
    return "still here"


def flood(argument: str) -> str:
    """10 GB as one message after another."""
    block = bytes(64 << 20)
    for _ in range(160):
        frames.send(1, "progress", [block])
    return "10 GB"


def flood_at_once(argument: str) -> str:
    frames.send(1, "plan", [memoryview(bytes(1 << 20))] * 10_000)
    return "10 GB"


def flood_errors(argument: str) -> str:
    """10 MB to the standard error, which the parent reads and forgets."""
    for _ in range(10_000):
        os.write(2, b"x" * 1000)
    raise PermissionError("done")


def load_library(argument: str) -> str:
    return str(ctypes.CDLL(argument))


def new_code(argument: str) -> str:
    """A page that can be written and executed."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    return str(len(page))


def hidden_file(argument: str) -> str:
    return str(os.memfd_create("x"))


def raise_limits(argument: str) -> str:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (900, 1000))
    except ValueError as e:
        raise PermissionError(str(e)) from e
    return "raised"


def close_and_stay(argument: str) -> str:
    os.close(1)
    time.sleep(600)
    return ""


def crash(argument: str) -> str:
    ctypes.string_at(0)
    return ""


def leave(argument: str) -> str:
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os._exit(3)


def garbage(argument: str) -> str:
    os.write(1, b"\xff" * 1000)
    time.sleep(600)
    return ""


PROBES: dict[str, Callable[[str], str]] = {
    f.__name__: f
    for f in (
        connect, connect_outside, unix_socket, resolve, read_file, write_file, make_folder, list_folder, execute,
        exec_self, fork_bomb, thread, trace_parent, signal_other, probe_parent, other_memory, environment,
        own_environment_file, other_process, memory_bomb, native_memory_bomb, busy, idle, flood, flood_at_once,
        flood_errors, load_library, new_code, hidden_file, raise_limits, close_and_stay, crash, leave, garbage,
    )
}  # fmt: skip


def main(name: str, how: str, argument: str) -> None:
    """Locks (or not), then probes."""
    probe = PROBES[name]
    settings = json.loads(frames.receive(0, 1 << 20)[1])
    if settings.pop("prepare"):
        worker.prepare()
    layers = lock(Limits(**settings)) if how == "locked" else []
    frames.send(1, "ready", [json.dumps([asdict(layer) for layer in layers]).encode()])
    try:
        tag, text = "escaped", probe(argument)
    except MemoryError:
        tag, text = "memory", ""
    except OSError as e:
        tag, text = "refused", str(e)
    with contextlib.suppress(BrokenPipeError):
        frames.send(1, tag, [text.encode()])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
    os._exit(0)
