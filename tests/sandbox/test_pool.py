"""The warm pool: workers that are ready beforehand, one model each."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sandbox.test_compile import small, unknown_operator
from webrt import planfile, sandbox
from webrt.compiler.compile import compile_model
from webrt.confine import Limits, parent
from webrt.confine.parent import Worker
from webrt.confine.pool import Pool
from webrt.errors import SandboxError, UnsupportedOp


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Every worker that a test starts, in order."""
    workers: list[Worker] = []
    real = Worker.__init__

    def init(self: Worker, *args: object, **more: object) -> None:
        real(self, *args, **more)  # type: ignore[arg-type]
        workers.append(self)

    monkeypatch.setattr(Worker, "__init__", init)
    return workers


def gone(worker: Worker) -> bool:
    return worker.process.returncode is not None


def test_one_process_per_model_also_after_an_error(started: list[Worker]) -> None:
    expected = planfile.dump(compile_model(small()))
    with sandbox.Compiler() as compiler:
        assert compiler.compile(small()).plan == expected
        with pytest.raises(UnsupportedOp):
            compiler.compile(unknown_operator())
        assert compiler.compile(small()).plan == expected
    assert len({w.process.pid for w in started}) == len(started) >= 3
    assert all(gone(w) for w in started)


def test_more_threads_than_spares(started: list[Worker]) -> None:
    expected = planfile.dump(compile_model(small()))
    with sandbox.Compiler() as compiler, ThreadPoolExecutor(3) as threads:
        made = list(threads.map(lambda _: compiler.compile(small()).plan, range(4)))
    assert made == [expected] * 4
    assert all(gone(w) for w in started)


def test_a_spare_that_died_is_replaced(started: list[Worker]) -> None:
    with sandbox.Compiler() as compiler:
        compiler.compile(small())
        while len(started) < 2 or not started[1]._layers:
            time.sleep(0.05)
        os.kill(started[1].process.pid, 9)
        started[1].process.wait()
        assert compiler.compile(small()).plan


def test_the_clock_starts_with_the_request(started: list[Worker]) -> None:
    """A spare that waited longer than the limit is as good as a new one."""
    pool = Pool(Limits(seconds=8.0), spares=1)
    try:
        while not (started and started[0]._layers):
            time.sleep(0.05)
        time.sleep(0.2)
        assert started[0]._clock is not None and started[0]._clock.finished.is_set()
        with pool.worker() as worker:
            assert worker is started[0] and worker._clock is not None and not worker._clock.finished.is_set()
    finally:
        pool.close()


def test_closing_refuses_those_who_wait(started: list[Worker]) -> None:
    compiler = sandbox.Compiler(spares=0)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            compiler.compile(small())
        except SandboxError as e:
            errors.append(e)

    thread = threading.Thread(target=wait)
    thread.start()
    compiler.close()
    thread.join(10)
    assert not thread.is_alive() and len(errors) == 1
    with pytest.raises(SandboxError, match="closed"):
        compiler.compile(small())
    assert all(gone(w) for w in started)


def test_workers_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "python", lambda code: ["/nowhere/python"])
    with sandbox.Compiler() as compiler:
        for _ in range(2):
            with pytest.raises(SandboxError, match="cannot be started"):
                compiler.compile(small())
