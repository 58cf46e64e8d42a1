"""Attempts to get out of a locked process. Each fails there, and succeeds in the same process without the lock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from webrt.confine import Limits
from webrt.confine.parent import Worker
from webrt.errors import SandboxError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers exist on Linux only")
CHILD = Path(__file__).with_name("child.py")
MEMORY = 1 << 30
SECONDS = 60.0


def attempt(name: str, how: str, argument: object = "", limits: Limits | None = None) -> str:
    """What became of a probe: "TAG text" as the child sent it, or the text of the parent's SandboxError.

    Afterwards nothing of the child's process group is left.
    """
    command = [sys.executable, "-P", "-X", "utf8", str(CHILD), name, how, str(argument)]
    with Worker(limits or Limits(MEMORY, SECONDS), prepare=False, command=command) as worker:
        try:
            worker.expect("ready")
            while True:
                tag, payload = worker.receive()
                if tag in ("escaped", "refused", "memory"):
                    outcome = f"{tag} {payload.decode()}"
                    break
        except SandboxError as e:
            outcome = str(e)
    with pytest.raises(ProcessLookupError):
        os.killpg(worker.process.pid, 0)
    return outcome


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this account that does nothing."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as process:
        yield process
        process.kill()


@pytest.fixture
def server() -> Iterator[int]:
    """A port of 127.0.0.1 that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        yield s.getsockname()[1]


def library() -> str:
    """A shared library that Python has not loaded."""
    folder = Path(sysconfig.get_config_var("DESTSHARED"))
    return str(sorted(folder.glob("_test*.so"))[0])


KILLED = "SIGSYS"
REFUSED = "refused "
PROBES = {
    "connect_outside": KILLED, "unix_socket": KILLED, "read_file": REFUSED, "list_folder": REFUSED,
    "execute": KILLED, "fork_bomb": KILLED, "thread": KILLED, "environment": "refused nothing is there",
    "own_environment_file": REFUSED, "load_library": REFUSED, "new_code": REFUSED, "hidden_file": KILLED,
    "probe_parent": KILLED, "memory_bomb": "memory", "native_memory_bomb": "memory", "raise_limits": REFUSED,
}  # fmt: skip
ARGUMENTS = {"read_file": "/etc/passwd", "list_folder": "/", "load_library": library()}


@pytest.mark.parametrize("name", PROBES)
def test_locked(name: str) -> None:
    outcome = attempt(name, "locked", ARGUMENTS.get(name, ""))
    assert PROBES[name] in outcome and "escaped" not in outcome


@pytest.mark.parametrize("name", PROBES)
def test_the_same_without_the_lock(name: str) -> None:
    assert attempt(name, "unlocked", ARGUMENTS.get(name, "")).startswith("escaped ")


@pytest.mark.parametrize(("how", "expected"), [("locked", KILLED), ("unlocked", "escaped connected")])
def test_connect_to_loopback(how: str, expected: str, server: int) -> None:
    assert expected in attempt("connect", how, server)


@pytest.mark.parametrize("how", ["locked", "unlocked"])
def test_dns(how: str) -> None:
    """Either the resolver's files are refused, or its socket kills."""
    outcome = attempt("resolve", how)
    assert outcome.startswith("escaped") == (how == "unlocked"), outcome
    assert how == "unlocked" or KILLED in outcome or outcome.startswith(REFUSED)


@pytest.mark.parametrize("name", ["write_file", "make_folder"])
@pytest.mark.parametrize("how", ["locked", "unlocked"])
def test_write(name: str, how: str, tmp_path: Path) -> None:
    outcome = attempt(name, how, tmp_path / "new")
    assert (tmp_path / "new").exists() == outcome.startswith("escaped") == (how == "unlocked"), outcome


@pytest.mark.parametrize(("how", "expected"), [("locked", KILLED), ("unlocked", "exit code 42")])
def test_exec(how: str, expected: str) -> None:
    assert expected in attempt("exec_self", how)


def yama() -> bool:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return scope.exists() and scope.read_text().strip() != "0"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("locked", KILLED),
        pytest.param(
            "unlocked", "escaped", marks=pytest.mark.skipif(yama(), reason="Yama refuses to trace a stranger anyway")
        ),
    ],
)
@pytest.mark.parametrize("name", ["trace_parent", "other_memory"])
def test_trace_another_process(name: str, how: str, expected: str, victim: subprocess.Popen[bytes]) -> None:
    assert expected in attempt(name, how, victim.pid)


@pytest.mark.parametrize(("how", "expected"), [("locked", KILLED), ("unlocked", "escaped")])
def test_signal_another_process(how: str, expected: str, victim: subprocess.Popen[bytes]) -> None:
    assert expected in attempt("signal_other", how, victim.pid)
    if how == "unlocked":
        assert victim.wait(10) != 0
    else:
        assert victim.poll() is None


@pytest.mark.parametrize("how", ["locked", "unlocked"])
def test_read_proc_of_another_process(how: str, victim: subprocess.Popen[bytes]) -> None:
    outcome = attempt("other_process", how, victim.pid)
    assert ("time.sleep" in outcome) == (how == "unlocked") and (how == "unlocked" or outcome.startswith(REFUSED))


@pytest.mark.parametrize("name", ["busy", "idle"])
def test_wall_clock(name: str) -> None:
    start = time.monotonic()
    outcome = attempt(name, "locked", 60, Limits(MEMORY, seconds=3))
    assert "out of time" in outcome and "3 s" in outcome
    assert time.monotonic() - start < 3 + 2


@pytest.mark.parametrize(("how", "busy", "expected"), [("locked", 50, "processor time"), ("unlocked", 4, "escaped")])
def test_processor_time(how: str, busy: int, expected: str) -> None:
    assert expected in attempt("busy", how, busy, Limits(MEMORY, SECONDS, cpu_seconds=2))


@pytest.mark.parametrize("name", ["flood", "flood_at_once"])
def test_ten_gigabytes_of_output(name: str) -> None:
    limits = Limits(8 << 30, SECONDS, output=100 << 20)
    assert "too much output" in attempt(name, "locked", "", limits)


def test_output_that_nobody_asked_for() -> None:
    """The standard error is read and forgotten, so nothing stalls and nothing grows."""
    assert attempt("flood_errors", "locked") == "refused done"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("close_and_stay", "closed its pipes and went on"),
        ("crash", "killed by SIGSEGV"),
        ("leave", "exit code 3: last words"),
        ("garbage", "too much output"),
    ],
)
def test_strange_ends(name: str, expected: str) -> None:
    assert expected in attempt(name, "locked")


def test_a_filter_for_each_architecture() -> None:
    """Every jump of the filter lands inside, no call is listed twice, and it ends in death."""
    from webrt.confine import seccomp

    tables = (seccomp.ALLOWED, seccomp.REFUSED)
    for which, machine in enumerate(("x86_64", "aarch64")):
        numbers = [n[which] for table in tables for n in table.values() if n[which] is not None]
        assert len(numbers) == len(set(numbers))
        code = seccomp.program(machine, 1234)
        assert code[-1] == (0x06, 0, 0, 0x80000000)
        assert all(i + 1 + max(jt, jf) < len(code) for i, (_, jt, jf, _) in enumerate(code[:-1]))
