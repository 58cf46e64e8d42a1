"""The device-free device: whatever asks for device memory fails by name; plans without device steps run."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import DeviceFreeError, PlacementError
from webrt.host import CpuProvider
from webrt.plan import Plan
from webrt.runtime.device import Launch, Range, Transfer
from webrt.runtime.null import NoOpAllocator, NullDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
relu (float[N] x) => (float[N] y) { y = Relu(x) }"""


def plan(*providers: str) -> Plan:
    return compile_model(onnx.parser.parse_model(MODEL), CompileOptions(providers=providers))


def test_alloc_names_what_asked() -> None:
    with pytest.raises(DeviceFreeError, match="weights of conv1 asked for a buffer of 1024 bytes"):
        NoOpAllocator().alloc(1024, "weights of conv1")
    with pytest.raises(DeviceFreeError, match="parameters asked for a uniform buffer of 256 bytes"):
        NullDevice().alloc(256, "parameters", uniform=True)


def test_a_plan_with_kernels_fails_at_load_and_names_the_kernel() -> None:
    made = plan("webgpu")
    with pytest.raises(DeviceFreeError, match=f"kernel {made.kernels[0].name!r}"):
        Session(made, NullDevice())


def test_a_tensor_cannot_be_made() -> None:
    with pytest.raises(DeviceFreeError, match="tensor asked for a buffer of 12 bytes"):
        Tensor.from_numpy(np.zeros(3, np.float32), NullDevice())


def test_every_other_method_refuses_or_does_nothing() -> None:
    device = NullDevice()

    class Fake:
        nbytes, label = 16, "weights"

    with pytest.raises(DeviceFreeError, match="weights would be written"):
        device.write(Fake(), 0, b"")
    with pytest.raises(DeviceFreeError, match="weights would be read back"):
        device.read([Range(Fake(), 0, 16)])
    with pytest.raises(DeviceFreeError, match="a dispatch was submitted"):
        device.submit([Launch(None, None, 1, 1, 1)])
    with pytest.raises(DeviceFreeError, match="a copy was submitted"):
        device.submit([Transfer(Fake(), 0, Fake(), 0, 4)])
    with pytest.raises(DeviceFreeError, match="bind group"):
        device.bind(None, [])
    device.free(Fake())
    device.close()
    assert device.submit([]) == [] and device.counters.buffers == 0


def test_a_plan_of_host_steps_runs() -> None:
    with Session(plan("cpu"), NullDevice(), CpuProvider()) as session:
        (y,) = session.run(None, {"x": np.array([-1, 2], np.float32)})
        assert y.tolist() == [0, 2] and session.last_run.host_nodes == 1 and session.last_run.submits == 0


def test_host_steps_without_a_provider_are_named() -> None:
    with pytest.raises(PlacementError, match="Relu"):
        Session(plan("cpu"), NullDevice())
