"""The parent's end of a confined process: starts it, watches the clock, says what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import IO

from webrt.confine import NAMES, Layer, Limits, frames
from webrt.errors import SandboxError

COMPILER = "import os; from webrt.compiler.worker import main; os._exit(main())"
ENVIRONMENT = {
    "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
}  # fmt: skip
_LAST_WORDS = 4000
_PATIENCE = 1.0
_PIPE = 1 << 20


class Worker:
    """A worker process; leaving the `with` block ends it, whatever it does.

    `prepare` says whether it is to import the compiler. `receive` and `expect` raise SandboxError where the worker is
    gone.
    """

    def __init__(self, limits: Limits, *, prepare: bool, command: Sequence[str] | None = None) -> None:
        self.limits = limits
        self.room = limits.output
        self.last_words: deque[bytes] = deque(maxlen=_LAST_WORDS // 100)
        self._late = False
        self._lock = threading.Lock()
        try:
            self.process = subprocess.Popen(
                list(command or python(COMPILER)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, bufsize=0, env=_environment(), cwd=os.path.abspath(os.sep), close_fds=True,
                start_new_session=True,
            )  # fmt: skip
        except OSError as e:
            raise SandboxError(f"the worker process cannot be started: {e.strerror or e}") from e
        _widen(self.process.stdin, self.process.stdout)
        self._layers: tuple[Layer, ...] = ()
        self._clock: threading.Timer | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.start_clock()
            self.send("limits", json.dumps({**limits.to_json(), "prepare": prepare}).encode())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start_clock(self) -> None:
        """The worker has `limits.seconds` from now on; the clock starts with the process."""
        self.stop_clock()
        self._clock = threading.Timer(self.limits.seconds, self._out_of_time)
        self._clock.daemon = True
        self._clock.start()

    def stop_clock(self) -> None:
        """The worker may wait as long as it likes."""
        if self._clock is not None:
            self._clock.cancel()

    def layers(self) -> tuple[Layer, ...]:
        """The layers, as the worker tells once it has locked itself."""
        if not self._layers:
            self._layers = tuple(Layer(**entry) for entry in json.loads(self.expect("ready")))
            if tuple(layer.name for layer in self._layers) != NAMES:
                raise SandboxError("the worker is of another version than this process")
        return self._layers

    def send(self, tag: str, payload: bytes | bytearray | memoryview) -> None:
        """Sends one message. Where the worker reads no more, the next `receive` gives its last message or its end."""
        with contextlib.suppress(OSError):
            frames.send(_pipe(self.process.stdin).fileno(), tag, [payload])

    def receive(self) -> tuple[str, bytearray]:
        """The next message; all of them together have to fit the limit on output."""
        try:
            tag, payload = frames.receive(_pipe(self.process.stdout).fileno(), self.room)
        except frames.TooLong as e:
            raise SandboxError(f"too much output: {e}") from e
        except frames.FrameError as e:
            raise self._death() from e
        self.room -= len(payload) + frames.HEAD
        if self.room < 0:
            raise SandboxError(f"too much output: more than {self.limits.output} bytes")
        return tag, payload

    def expect(self, tag: str) -> bytearray:
        """The next message, which has to be `tag`."""
        got, payload = self.receive()
        if got != tag:
            raise SandboxError(f"the worker sent {got!r}, not {tag!r}")
        return payload

    def close(self) -> None:
        """Ends the process, and everything that it started; frees the pipes."""
        self.stop_clock()
        self._kill()
        with self._lock:
            self.process.wait()
        self._listener.join(_PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _out_of_time(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        with self._lock:
            if self.process.poll() is None:
                if os.name == "posix":
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()

    def _listen(self) -> None:
        """Takes what the worker writes to its standard error, and keeps the end of it."""
        stream = _pipe(self.process.stderr)
        while piece := stream.read(100):
            self.last_words.append(piece)

    def _death(self) -> SandboxError:
        """What became of a worker that closed its pipes."""
        try:
            with self._lock:
                code = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return SandboxError("the worker closed its pipes and went on; it was killed")
        if self._late:
            return SandboxError(f"out of time: compiling took more than {self.limits.seconds:g} s; raise the limit")
        return SandboxError(self._cause(code))

    def _cause(self, code: int) -> str:
        names = {s.value: s.name for s in signal.Signals}
        if code >= 0:
            self._listener.join(_PATIENCE)
            words = b"".join(self.last_words).decode("utf-8", "replace").strip()[-_LAST_WORDS:]
            return f"the worker ended with exit code {code}{': ' + words if words else ''}"
        reasons = {
            "SIGSYS": "it was refused a call that only an attack makes",
            "SIGXCPU": "it ran out of processor time",
            "SIGXFSZ": "it tried to write a file",
            "SIGKILL": "the system killed it, perhaps for want of memory",
        }
        name = names.get(-code, f"signal {-code}")
        return f"the worker was killed by {name}: {reasons.get(name, 'it crashed')}"


def python(code: str) -> list[str]:
    """A command that runs `code` with the import path of this process, whatever put it together.

    Not by -I, which would ignore PYTHONHASHSEED: the environment is ours anyway.
    """
    start = f"import sys; sys.path[:] = sys.argv[1:]; {code}"
    return [sys.executable or "", "-P", "-X", "utf8", "-c", start, *map(os.path.abspath, sys.path)]


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise SandboxError("the worker has no pipe")
    return stream


def _widen(*pipes: IO[bytes] | None) -> None:
    """Large buffers, where the system gives them: a hundred megabytes pass in a third of the time."""
    if sys.platform == "linux":
        import fcntl

        for pipe in pipes:
            with contextlib.suppress(OSError):  # the account's share of pipe memory is used up
                fcntl.fcntl(_pipe(pipe), fcntl.F_SETPIPE_SZ, _PIPE)


def _environment() -> dict[str, str]:
    if os.name == "nt":  # a process of Windows does not start without
        return {**ENVIRONMENT, "SYSTEMROOT": os.environ.get("SYSTEMROOT", "C:\\Windows")}
    return dict(ENVIRONMENT)
