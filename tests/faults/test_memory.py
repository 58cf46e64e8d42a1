"""Device memory that runs out, mappings that fail, and what is left of a session when it ends, natively."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import webrt
from tests.faults.models import (
    CHAIN,
    HEAD,
    SPLIT,
    Array,
    before_host_nodes,
    chain_feeds,
    check_chain,
    model,
    nothing_left,
    opened,
    own_device,
)
from webrt.errors import DeviceError, OutOfMemory, RunTerminated
from webrt.plan import Dispatch
from webrt.runtime.device import Launch
from webrt.runtime.native import NativeDevice

BIG = HEAD + "(float[N] x) => (float[N] y) { y = Exp(x) }"


def constant_model(elements: int) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [elements])],
        [numpy_helper.from_array(np.arange(elements, dtype=np.float32), "w")],
    )  # fmt: skip
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@contextmanager
def memory_of(device: Any, monkeypatch: pytest.MonkeyPatch, more: int) -> Iterator[None]:
    """The device has memory for `more` bytes beside those that it holds; beyond, wgpu raises its own error."""
    import wgpu

    assert isinstance(device, NativeDevice)
    make, limit = device._device.create_buffer, device.counters.bytes + more

    def create_buffer(**options: Any) -> Any:
        if device.counters.bytes + options["size"] > limit:
            raise wgpu.GPUOutOfMemoryError("Not enough memory left.")
        return make(**options)

    with monkeypatch.context() as patch:
        patch.setattr(device._device, "create_buffer", create_buffer)
        yield


def test_a_session_that_does_not_fit_names_sizes_and_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = own_device()
    with opened(model(CHAIN), providers) as session:
        check_chain(session)
        device = session.device
        held = device.counters
        sizes = rf"'w'.*, 400000 bytes: .* no memory left beside the {held.bytes} bytes in {held.buffers} buffers"
        refused = pytest.raises(OutOfMemory, match=sizes)
        with nothing_left(device), memory_of(device, monkeypatch, 1 << 16), refused:
            opened(constant_model(100_000), providers)
        check_chain(session)
        with opened(constant_model(1000), providers) as other:
            (y,) = other.run(None, {"x": np.ones(1000, np.float32)})
            np.testing.assert_array_equal(y, np.arange(1000) + 1)
        check_chain(session)


def test_a_run_that_does_not_fit_leaves_the_session_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(model(CHAIN)) as session:
        check_chain(session, 4)
        with memory_of(session.device, monkeypatch, 1 << 19):
            with pytest.raises(OutOfMemory, match=r"\d+ bytes: the device"):
                session.run(None, chain_feeds(100_000))
            check_chain(session, 4)
            check_chain(session, 40)
        check_chain(session, 1000)


def test_outputs_on_the_device_that_do_not_fit_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEAD + "(float[N] x) => (float[N] y, float[N] z) { y = Exp(x)  z = Neg(x) }"
    with opened(model(text)) as session:
        feeds = {"x": np.zeros(1024, np.float32)}
        session.run(None, feeds)
        refused = pytest.raises(OutOfMemory, match="an output, 65536 bytes")
        with nothing_left(session.device), memory_of(session.device, monkeypatch, 100_000), refused:
            session.run(None, feeds, output_location="device")
        for kept in session.run(None, feeds, output_location="device"):
            assert kept.numpy().shape == (1024,)


def test_a_mapping_that_fails_gives_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    from wgpu.backends.wgpu_native import GPUBuffer

    class Failed:
        _thread_event = threading.Event()

        def sync_wait(self) -> None:
            raise RuntimeError("Could not map buffer (3 : the driver says no).")

    Failed._thread_event.set()
    with opened(model(CHAIN)) as session:
        check_chain(session)
        with nothing_left(session.device):
            with monkeypatch.context() as patch, pytest.raises(DeviceError, match="the driver says no"):
                patch.setattr(GPUBuffer, "map_async", lambda *args: Failed())
                session.run(None, chain_feeds(3))
            check_chain(session)


def test_a_refused_command_is_told_with_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch that wgpu refuses when it is encoded, and a bind group."""
    import wgpu
    from wgpu.backends.wgpu_native import GPUDevice

    def refuse(self: Any, **options: Any) -> Any:
        raise wgpu.GPUValidationError("no such group")

    with opened(model(CHAIN)) as session:
        check_chain(session)
        device = session.device
        assert isinstance(device, NativeDevice)
        record = device._record
        last = max(i for i, step in enumerate(session.plan.steps) if isinstance(step, Dispatch))

        def too_many(current: Any, launch: Launch, changed: bool) -> None:
            record(current, launch._replace(x=100_000) if launch.step == last else launch, changed)

        with (
            monkeypatch.context() as patch,
            pytest.raises(DeviceError, match="(?s)^MatMul, node '.*': a submit: .*100000"),
        ):
            patch.setattr(device, "_record", too_many)
            session.run(None, chain_feeds(3))
        check_chain(session)
        with (
            monkeypatch.context() as patch,
            pytest.raises(DeviceError, match="node '.*': a bind group: .*no such group"),
        ):
            patch.setattr(GPUDevice, "create_bind_group", refuse)
            session.run(None, chain_feeds(300))
        check_chain(session, 300)


@pytest.mark.parametrize("how", ["close", "with", "forgotten"])
def test_everything_is_given_back(how: str) -> None:
    providers = own_device()
    with opened(model(BIG), providers) as first:
        first.run(None, {"x": np.zeros(4, np.float32)})
        with nothing_left(first.device):  # the read-back buffer is the device's
            session = opened(model(SPLIT), providers)
            session.run(None, {"x": np.array([-4], np.float32)})
            (kept,) = session.run(None, {"x": np.array([-4], np.float32)}, output_location="device")
            if how == "with":
                with session:
                    pass
            elif how == "close":
                session.close()
                session.close()
            if how != "forgotten":
                with pytest.raises(DeviceError, match="the session was closed; make a new one"):
                    session.run(None, {"x": np.array([-4], np.float32)})
            del session
            gc.collect()
            assert kept.numpy().tolist() == [-2]
            kept.close()
    assert first.device.counters.buffers == 0


def test_sessions_share_pipelines() -> None:
    providers = own_device()
    with opened(model(CHAIN), providers) as first:
        check_chain(first)
        made = first.device.counters.pipelines
        with opened(model(CHAIN), providers) as second:
            check_chain(second)
            assert first.device.counters.pipelines == made > 0
        check_chain(first)


def test_a_run_that_its_caller_ends() -> None:
    with opened(model(SPLIT)) as session:
        x: Array = np.array([-4, -9], np.float32)
        options = webrt.RunOptions()
        options.terminate = True
        before = session.device.counters.submits
        with pytest.raises(RunTerminated, match=r"RunOptions\.terminate"):
            session.run(None, {"x": x}, options)
        assert session.device.counters.submits == before
        options.terminate = False
        assert session.run(None, {"x": x}, options)[0].tolist() == [-2, -3]


def test_a_run_that_is_ended_between_host_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(model(SPLIT)) as session:
        options = webrt.RunOptions()
        x = np.array([-4], np.float32)
        session.run(None, {"x": x})
        assert session.last_run.host_nodes == 3
        with monkeypatch.context() as patch, nothing_left(session.device), pytest.raises(RunTerminated):
            before_host_nodes(patch, lambda: setattr(options, "terminate", True))
            session.run(None, {"x": x}, options)
        assert session.last_run.host_nodes == 1
        assert session.run(None, {"x": x})[0].tolist() == [-2]
