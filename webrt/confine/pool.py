"""Workers that are started, prepared and locked before they are needed."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from webrt.confine import Limits
from webrt.confine.parent import Worker
from webrt.errors import SandboxError

_LOOK = 0.1


class Pool:
    """Keeps `spares` workers ready. Each is handed out once.

    One thread starts them all, since on Linux a worker ends with the thread that started it: closing the pool ends the
    workers that are in use as well.
    """

    def __init__(self, limits: Limits, spares: int) -> None:
        self.limits = limits
        self.spares = self._missing = spares
        self._lock = threading.Lock()
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Worker | SandboxError] = queue.SimpleQueue()
        self._closed = False
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()
        self._refill()

    @contextlib.contextmanager
    def worker(self) -> Iterator[Worker]:
        """A locked worker whose clock starts now; when the block ends it is closed and replaced.

        Raises SandboxError where none can be started, or where the pool is closed.
        """
        worker = self._take()
        try:
            yield worker
        finally:
            worker.close()
            self._refill()

    def _take(self) -> Worker:
        self._request()
        while not self._closed:
            with contextlib.suppress(queue.Empty):
                found = self._ready.get(timeout=_LOOK)
                if isinstance(found, SandboxError):
                    raise found
                if found.process.poll() is None:
                    found.start_clock()
                    return found
                found.close()
                self._request()
        raise SandboxError("the pool of workers is closed")

    def _request(self) -> None:
        """Reserves a spare; where all are taken, one more worker is started."""
        with self._lock:
            if self._missing < self.spares:
                self._missing += 1
            else:
                self._wanted.put(True)

    def _refill(self) -> None:
        with self._lock:
            for _ in range(self._missing):
                self._wanted.put(True)
            self._missing = 0

    def close(self) -> None:
        """Ends all workers; callers that wait for one get a SandboxError."""
        self._closed = True
        self._wanted.put(False)
        self._keeper.join()
        while not self._ready.empty():
            found = self._ready.get()
            if isinstance(found, Worker):
                found.close()

    def _keep(self) -> None:
        while self._wanted.get() and not self._closed:
            try:
                self._ready.put(self._start())
            except SandboxError as e:
                self._ready.put(e)

    def _start(self) -> Worker:
        worker = Worker(self.limits, prepare=True)
        try:
            worker.layers()
        except BaseException:
            worker.close()
            raise
        worker.stop_clock()
        return worker
