"""Many runs, sessions, losses, threads and tasks: nothing is left over, and every answer is the serial one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import webrt
from tests.faults.models import CHAIN, HEAD, LOOP, SPLIT, Array, check_chain, destroy, model, opened, own_device

CACHE = HEAD + "(float[1, P, 8] past, float[1, S, 8] x) => (float[1, T, 8] y) { y = Concat<axis = 1>(past, x) }"


def sizes(*quick_and_long: int) -> pytest.MarkDecorator:
    """Runs the test with the quick number, and in a long run with the whole one."""
    quick, whole = quick_and_long
    return pytest.mark.parametrize("count", [quick, pytest.param(whole, marks=pytest.mark.long)])


def check_loop(session: webrt.InferenceSession, n: int, trips: int) -> None:
    """A run of LOOP is right: the sum grows by x until it passes 100."""
    x = np.random.default_rng(n).uniform(5, 40, (n, 4)).astype(np.float32)
    sums = np.cumsum(np.broadcast_to(x, (trips, n, 4)), axis=0) + x
    done = next((k + 1 for k in range(trips) if sums[k].max() >= 100), trips)
    y, stacked = session.run(None, {"x": x, "n": np.array(trips)})
    assert stacked.shape == (done, n, 4)
    np.testing.assert_allclose(stacked, sums[:done], rtol=1e-5)
    np.testing.assert_array_equal(y, stacked[-1] if done else x)


def held(session: webrt.InferenceSession) -> tuple[int, int]:
    counters = session.device.counters
    return counters.buffers, counters.bytes


@sizes(100, 2000)
def test_runs_with_changing_shapes(count: int) -> None:
    """The largest shape comes first: after it no run may make or lose a buffer."""
    with opened(model(CHAIN)) as chain, opened(model(CACHE)) as cache, opened(model(LOOP)) as loop:
        rng = np.random.default_rng(0)
        past = rng.standard_normal((1, 64, 8)).astype(np.float32)
        for n in (64, 64):
            check_chain(chain, n)
            cache.run(None, {"past": past, "x": past})
            check_loop(loop, 64, 8)
        before = held(chain), held(cache), held(loop)
        for n in rng.integers(0, 65, count):
            check_chain(chain, int(n))
            (y,) = cache.run(None, {"past": past[:, :n], "x": past[:, : 64 - n]})
            assert y.shape == (1, 64, 8)
            check_loop(loop, 1 + int(n) % 64, int(n) % 9)
            assert (held(chain), held(cache), held(loop)) == before
    assert loop.device.counters.buffers == loop.device.counters.bytes == 0
    assert chain.device.counters.buffers == chain.device.counters.bytes == 0


@sizes(10, 200)
def test_sessions_made_and_closed(count: int) -> None:
    providers = own_device()
    with opened(model(CHAIN), providers) as keeper:
        check_chain(keeper, 32)
        before = held(keeper)
        for i in range(count):
            text = (CHAIN, SPLIT)[i % 2]
            session = opened(model(text), providers)
            if text is CHAIN:
                check_chain(session, i % 7)
            else:
                session.run(None, {"x": np.full(i, -1, np.float32)})
            session.close()
            assert held(keeper) == before
        check_chain(keeper, 32)


@sizes(3, 50)
def test_losses(count: int) -> None:
    providers = own_device()
    with opened(model(CHAIN), providers, auto_recover="1") as a, opened(model(CHAIN), providers, auto_recover="1") as b:
        check_chain(a, 8)
        check_chain(b, 8)
        before = held(a)
        for _ in range(count):
            lost = destroy(a)
            check_chain(a, 8)
            check_chain(b, 8)
            assert a.device is b.device is not lost
            assert held(a) == before and lost.counters.buffers == lost.counters.bytes == 0


class Work:
    """Three sessions on one device, requests for them, and the serial answers."""

    def __init__(self, requests: int) -> None:
        providers = own_device()
        self.sessions = [opened(model(text), providers) for text in (CHAIN, SPLIT, CACHE)]
        rng = np.random.default_rng(7)
        self.requests = [self._request(rng, i % 3) for i in range(requests)]
        self.answers = [self.sessions[s].run(None, feeds)[0] for s, feeds in self.requests]

    def _request(self, rng: np.random.Generator, session: int) -> tuple[int, dict[str, Array]]:
        n, m = (int(k) for k in rng.integers(0, 40, 2))
        draw: Callable[[Sequence[int]], Array] = lambda shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
        feeds = ({"x": draw((n, 4))}, {"x": -np.abs(draw((n,)))}, {"past": draw((1, n, 8)), "x": draw((1, m, 8))})
        return session, feeds[session]

    def same(self, index: int, got: Any) -> bool:
        return bool(got.shape == self.answers[index].shape and got.tobytes() == self.answers[index].tobytes())

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        assert self.sessions[0].device.counters.buffers == 0


@sizes(5, 100)
def test_threads(count: int) -> None:
    """8 threads × `count` runs over 3 sessions equal the serial answers bit for bit."""
    work = Work(24)
    barrier = threading.Barrier(8)

    def one(thread: int) -> list[int]:
        barrier.wait()
        wrong = []
        for i in range(count):
            index = (thread * 5 + i) % len(work.requests)
            session, feeds = work.requests[index]
            if not work.same(index, work.sessions[session].run(None, feeds)[0]):
                wrong.append(index)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert [w for wrong in pool.map(one, range(8)) for w in wrong] == []
    work.close()


@sizes(5, 100)
def test_tasks(count: int) -> None:
    """8 tasks × `count` runs over 3 sessions equal the serial answers bit for bit."""
    work = Work(24)

    async def one(task: int) -> list[int]:
        wrong = []
        for i in range(count):
            index = (task * 7 + i) % len(work.requests)
            session, feeds = work.requests[index]
            if not work.same(index, (await work.sessions[session].arun(None, feeds))[0]):
                wrong.append(index)
        return wrong

    async def together() -> list[list[int]]:
        return list(await asyncio.gather(*(one(t) for t in range(8))))

    with ThreadPoolExecutor(1) as pool:  # the browser's tests keep a loop in this thread
        assert [w for wrong in pool.submit(asyncio.run, together()).result() for w in wrong] == []
    work.close()


def test_threads_live_through_losses() -> None:
    """Runs of 4 threads over 3 sessions are right while the device is taken away again and again.

    A run recovers once, so it is told of a loss where another thread takes the device away while it lasts."""
    providers = own_device()
    sessions = [opened(model(CHAIN), providers, auto_recover="1") for _ in range(3)]

    count = 12

    def takes_away(thread: int, i: int) -> bool:
        return (thread + i) % 8 == 0

    def one(thread: int) -> list[webrt.DeviceLost]:
        told = []
        for i in range(count):
            try:
                check_chain(sessions[(thread + i) % 3], i)
            except webrt.DeviceLost as e:  # taken away twice within one run
                told.append(e)
            if takes_away(thread, i):
                sessions[0].device.close()
        return told

    with ThreadPoolExecutor(4) as pool:
        for thread, told in enumerate(pool.map(one, range(4))):
            assert len(told) <= sum(takes_away(t, i) for t in range(4) if t != thread for i in range(count))
    for session in sessions:
        check_chain(session)
        session.close()
