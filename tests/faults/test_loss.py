"""A device that goes away, natively: before, within and after runs; and sessions that get another one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import webrt
from tests.faults.models import (
    CHAIN,
    HEAD,
    LONG_LOOP,
    SLOW_FEEDS,
    SPLIT,
    before_host_nodes,
    chain_feeds,
    check_chain,
    destroy,
    model,
    nothing_left,
    opened,
    own_device,
    slow_plan,
)
from webrt.errors import DeviceError, DeviceLost, PlanError, RunTerminated
from webrt.runtime import queue


def test_lost_before_the_first_run() -> None:
    with opened(model(CHAIN)) as session:
        lost = destroy(session)
        with pytest.raises(DeviceLost, match="recover the session, or make a new one"):
            session.run(None, chain_feeds(2))
        with pytest.raises(DeviceLost):
            session.run(None, chain_feeds(2))
        session.recover()
        check_chain(session)
        assert session.device is not lost and lost.lost and lost.counters.buffers == lost.counters.bytes == 0


def test_lost_between_runs_and_recovered_several_times() -> None:
    with opened(model(CHAIN)) as session:
        for n in (1, 5, 2):
            check_chain(session, n)
            session.recover()  # does nothing: the device is there
            check_chain(session, n)
            destroy(session)
            with pytest.raises(DeviceLost):
                session.run(None, chain_feeds(n))
            session.recover()
        check_chain(session, 9)


def test_lost_within_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(model(SPLIT)) as session:
        x = np.array([-4, -9], np.float32)
        with monkeypatch.context() as patch, pytest.raises(DeviceLost):
            before_host_nodes(patch, lambda: destroy(session))
            session.run(None, {"x": x})
        session.recover()
        (y,) = session.run(None, {"x": x})
        assert y.tolist() == [-2, -3]


def test_closed_while_another_thread_waits_for_it(tmp_path: Path) -> None:
    slow_plan(tmp_path / "slow.webrt")
    with opened(tmp_path / "slow.webrt") as session:
        timer = threading.Timer(0.1, session.device.close)
        timer.start()
        with pytest.raises(DeviceLost):
            session.run(None, SLOW_FEEDS)
        timer.join()


def test_tensors_of_a_lost_device_say_so() -> None:
    with opened(model(CHAIN)) as session:
        x = webrt.Tensor.from_numpy(chain_feeds(3)["x"], session.device)
        (y,) = session.run(None, {"x": x}, output_location="device")
        lost = destroy(session)
        with pytest.raises(DeviceLost):
            y.numpy()
        with pytest.raises(DeviceLost):
            session.run(None, {"x": x})
        session.recover()
        with pytest.raises(DeviceLost, match="input 'x' was on a device that is lost; feed it from the host again"):
            session.run(None, {"x": x})
        check_chain(session)
        x.close()
        y.close()
        assert lost.counters.buffers == 0


@pytest.mark.parametrize("again", [False, True])
def test_auto_recover(again: bool) -> None:
    with opened(model(CHAIN), auto_recover="1") as session:
        for _ in range(3 if again else 1):
            check_chain(session)
            destroy(session)
        check_chain(session)
        with nothing_left(session.device):
            check_chain(session)


def test_sessions_of_one_device_share_the_next_one() -> None:
    providers = own_device()
    with opened(model(CHAIN), providers) as a, opened(model(CHAIN), providers, auto_recover="1") as b:
        assert a.device is b.device
        destroy(a)
        check_chain(b)
        with pytest.raises(DeviceLost):
            a.run(None, chain_feeds(2))
        a.recover()
        assert a.device is b.device
        for session in (a, b):
            check_chain(session)


def test_sessions_compiled_for_other_initializers_recover() -> None:
    text = HEAD + "(float[N] x, float[1] k) => (float[N] y) <float[1] k = {2.0}> { y = Mul(x, k) }"
    with opened(model(text), auto_recover="1") as session:
        feeds = {"x": np.array([1, 2], np.float32), "k": np.array([5], np.float32)}
        assert session.run(None, feeds)[0].tolist() == [5, 10]
        destroy(session)
        assert session.run(None, feeds)[0].tolist() == [5, 10]
        assert session.run(None, {"x": feeds["x"]})[0].tolist() == [2, 4]


def test_a_source_that_is_gone_or_changed_says_so(tmp_path: Path) -> None:
    path, kept = tmp_path / "chain.webrt", tmp_path / "kept.webrt"
    webrt.save_plan(webrt.compile_model(model(CHAIN)), path)
    shutil.copy(path, kept)
    with opened(path) as session:
        check_chain(session)
        destroy(session)
        with pytest.raises(DeviceLost):
            session.run(None, chain_feeds(1))
        path.unlink()
        with pytest.raises(PlanError, match=r"chain\.webrt is gone since it was opened, and is needed again"):
            session.recover()
        changed = bytearray(kept.read_bytes())
        changed[-60] ^= 1
        path.write_bytes(changed)
        with pytest.raises(PlanError, match="damaged, or was changed since it was opened"):
            session.recover()
        with pytest.raises(DeviceLost):
            session.run(None, chain_feeds(1))
        shutil.copy(kept, path)
        session.recover()
        check_chain(session)


def test_work_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    slow_plan(tmp_path / "slow.webrt")
    providers = own_device()
    with (
        opened(tmp_path / "slow.webrt", providers, run_timeout="0.2", auto_recover="1") as session,
        opened(model(CHAIN), providers) as other,
    ):
        with pytest.raises(DeviceLost, match="did not end its work in the time it was given"):
            session.run(None, SLOW_FEEDS)
        with pytest.raises(DeviceLost):
            other.run(None, chain_feeds(1))
        other.recover()
        check_chain(other)


def test_a_loop_that_goes_on_for_too_long_is_ended() -> None:
    """A trip count that only the feeds tell; the device answers, and stays."""
    feeds = {"x": np.full((8, 8), 0.1, np.float32), "n": np.array(3)}
    with opened(model(LONG_LOOP), run_timeout="2") as session:
        (expected,) = session.run(None, feeds)
        with nothing_left(session.device):
            for trips in (10**9, 10**18):
                with pytest.raises(RunTerminated, match=r"did not end within its 2 s \(session\.run_timeout\)"):
                    session.run(None, {**feeds, "n": np.array(trips)})
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def test_a_loop_waits_for_the_device_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MAX_PENDING", 8)
    with opened(model(LONG_LOOP)) as session:
        feeds = {"x": np.full((8, 8), 0.1, np.float32), "n": np.array(40)}
        before = session.device.counters.read
        session.run(None, feeds)
        # the fed count is known here: what is read back is the output, and 4 bytes at each rest
        assert session.device.counters.read - before > 8 * 8 * 4


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf", "nan"])
def test_a_time_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(webrt.InputError, match="run_timeout.*seconds above 0"):
        opened(model(CHAIN), run_timeout=value)


def test_a_closed_session_does_not_recover() -> None:
    session = opened(model(CHAIN))
    session.close()
    with pytest.raises(DeviceError, match="was closed"):
        session.recover()
