"""The wgpu device: buffers, commands, pipelines, errors, counters."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pytest import MonkeyPatch

from tests.kernels.harness import device as shared_device
from webrt.errors import DeviceError, DeviceLost, KernelError, NoAdapter, OutOfMemory, TargetError
from webrt.plan import Kernel
from webrt.runtime import pipelines
from webrt.runtime.adapter import describe
from webrt.runtime.device import Launch, Layout, Range, Transfer
from webrt.runtime.encode import recorder, through_wgpu_py
from webrt.runtime.native import NativeDevice
from webrt.runtime.staging import Staging
from webrt.target import DEFAULT_LIMITS

ADD_ONE = Kernel(
    "add_one",
    """@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) g: vec3<u32>) { out[g.x] = a[g.x] + 1u; }""",
    "add_one",
)
LAYOUT = Layout(False, ("r", "w"))


@pytest.fixture
def device() -> Iterator[NativeDevice]:
    found = shared_device()
    before = (found.counters.buffers, found.counters.bytes)
    yield found
    assert (found.counters.buffers, found.counters.bytes) == before


def test_pipelines_that_were_asked_for_last_are_remembered(monkeypatch: MonkeyPatch, device: NativeDevice) -> None:
    monkeypatch.setattr(pipelines, "MOST_KEPT", 2)
    add = [replace(ADD_ONE, wgsl=ADD_ONE.wgsl.replace("1u", f"{n}u")) for n in (70, 71, 72)]

    def made(*kernels: Kernel) -> int:
        before = device.counters.pipelines
        assert len(device.pipelines([(k, LAYOUT) for k in kernels])) == len(kernels)
        return device.counters.pipelines - before

    assert [made(add[0]), made(add[1]), made(add[0]), made(add[2])] == [1, 1, 0, 1]
    assert [made(add[0]), made(add[1])] == [0, 1], "the one that was asked for longest ago is forgotten"
    assert made(*add) == 1, "one call has as many as it asks for"


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def test_write_dispatch_copy_and_read_in_one_submit(device: NativeDevice) -> None:
    a, b, c = (device.alloc(16, name) for name in "abc")
    device.write(a, 0, words(1, 2, 3, 4))
    (pipeline,) = device.pipelines([(ADD_ONE, LAYOUT)])
    group = device.bind(pipeline, [Range(a, 0, 16), Range(b, 0, 16)])
    submits = device.counters.submits
    commands = [Launch(pipeline, group, 1, 1, 1), Transfer(b, 4, c, 0, 8)]
    got = device.submit(commands, [Range(b, 0, 16), Range(c, 0, 8), Range(b, 12, 3), Range(a, 0, 0)])
    assert [bytes(g) for g in got] == [words(2, 3, 4, 5), words(3, 4), words(5)[:3], b""]
    assert device.counters.submits == submits + 1
    for buffer in (a, b, c):
        device.free(buffer)


@pytest.mark.parametrize("direct", [True, False])
def test_either_way_to_record_dispatches(device: NativeDevice, monkeypatch: MonkeyPatch, direct: bool) -> None:
    record = recorder(device._wgpu if direct else object())
    assert (record is through_wgpu_py) is not direct
    monkeypatch.setattr(device, "_record", record)
    a, b = device.alloc(16, "a"), device.alloc(16, "b")
    (pipeline,) = device.pipelines([(ADD_ONE, LAYOUT)])
    there, back = (device.bind(pipeline, [Range(x, 0, 16), Range(y, 0, 16)]) for x, y in ((a, b), (b, a)))
    launches = [Launch(pipeline, there, 1, 1, 1, 0), Launch(pipeline, back, 1, 1, 1, 1)]
    assert bytes(device.submit(launches, [Range(a, 0, 16)])[0]) == words(2, 2, 2, 2)
    with pytest.raises(DeviceError, match="a submit") as e:
        device.submit([*launches, Launch(pipeline, there, 1 << 20, 1, 1, 7)])
    assert e.value.step == 7
    for buffer in (a, b):
        device.free(buffer)


def test_buffers_are_zero_and_odd_writes_end_in_zeros(device: NativeDevice) -> None:
    buffer = device.alloc(5, "odd")
    assert buffer.nbytes == 16
    device.write(buffer, 4, b"\xff" * 12)
    device.write(buffer, 4, b"abcde")
    assert bytes(device.read([Range(buffer, 0, 16)])[0]) == bytes(4) + b"abcde\0\0\0" + b"\xff" * 4
    device.free(buffer)
    device.free(buffer)


def test_equal_text_is_one_pipeline(device: NativeDevice) -> None:
    first = device.pipelines([(ADD_ONE, LAYOUT), (ADD_ONE, LAYOUT)])
    made = device.counters.pipelines
    again = device.pipelines([(Kernel("other name", ADD_ONE.wgsl, "other hash"), LAYOUT)])
    assert first[0] is first[1] is again[0] and device.counters.pipelines == made


def test_refused_wgsl_has_a_numbered_excerpt(device: NativeDevice) -> None:
    bad = Kernel("bad_one", "@compute @workgroup_size(1)\nfn main() { let x = nowhere; }", "bad")
    with pytest.raises(KernelError, match="'bad_one'") as e:
        device.pipelines([(bad, Layout(False, ()))])
    assert ">   2 fn main() { let x = nowhere; }" in str(e.value) and e.value.kernel == "bad"


def test_a_binding_that_the_device_refuses_is_a_device_error(device: NativeDevice) -> None:
    a = device.alloc(16, "a")
    (pipeline,) = device.pipelines([(ADD_ONE, LAYOUT)])
    with pytest.raises(DeviceError, match="bind group"):
        device.bind(pipeline, [Range(a, 0, 16)])
    device.free(a)
    with pytest.raises(DeviceError, match="'a' was freed"):
        device.bind(pipeline, [Range(a, 0, 16), Range(a, 0, 16)])


def test_a_buffer_beyond_the_limit_names_both_numbers(device: NativeDevice) -> None:
    limit = device.target.limit("maxBufferSize")
    with pytest.raises(TargetError, match=rf"weights needs a buffer of {limit // 16 * 16 + 16} bytes.*{limit}"):
        device.alloc(limit + 1, "weights")


def test_threads_read_their_own_data(device: NativeDevice) -> None:
    wrong: list[int] = []

    def work(value: int) -> None:
        buffer = device.alloc(4096, f"thread {value}")
        for _ in range(20):
            device.write(buffer, 0, words(value) * 1024)
            if bytes(device.read([Range(buffer, 0, 4096)])[0]) != words(value) * 1024:
                wrong.append(value)
        device.free(buffer)

    keep = device.alloc(16, "keep")
    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    device.free(keep)
    assert not wrong


def test_a_closed_device_is_lost() -> None:
    device = NativeDevice()
    buffer = device.alloc(16, "a")
    device.close()
    device.close()
    with pytest.raises(DeviceLost):
        device.read([Range(buffer, 0, 16)])
    with pytest.raises(DeviceLost):
        device.alloc(16, "b")
    device.free(buffer)
    assert device.counters.buffers == 0


@pytest.mark.parametrize(
    ("error", "message", "expected", "lost"),
    [
        ("GPUOutOfMemoryError", "Not enough memory left", OutOfMemory, False),
        ("GPUValidationError", "Parent device is lost", DeviceLost, True),
        ("GPUInternalError", "something else", DeviceError, False),
    ],
)
def test_errors_of_wgpu_become_ours(
    monkeypatch: pytest.MonkeyPatch, error: str, message: str, expected: type[Exception], lost: bool
) -> None:
    import wgpu

    def refuse(**options: object) -> None:
        raise getattr(wgpu, error)(message)

    device = NativeDevice()
    monkeypatch.setattr(device._device, "create_buffer", refuse)
    with pytest.raises(expected, match="weights, 1024 bytes"):
        device.alloc(1000 + 24, "weights")
    assert device.lost == lost and device.counters.buffers == 0
    device.lost = False
    device.close()


def test_no_adapter_says_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBRT_ADAPTER", "no such adapter")
    with pytest.raises(NoAdapter, match="no adapter's name contains 'no such adapter'; there are"):
        NativeDevice()


def test_without_wgpu_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(NoAdapter, match=r"pip install 'webrt\[native\]'"):
        NativeDevice()


def test_limits_can_be_lowered() -> None:
    device = NativeDevice(limits={"maxBufferSize": 1 << 20})
    with pytest.raises(TargetError, match="maxBufferSize 1048576"):
        device.alloc((1 << 20) + 16, "big")
    device.close()


@pytest.mark.parametrize(
    ("name", "kind", "sizes"),
    [("llvmpipe (LLVM 15.0.6, 256 bits)", "software", (8, 8)), ("SwiftShader Device", "software", (4, 4)),
     ("NVIDIA H200", "gpu", (0, 0))],
)  # fmt: skip
def test_the_target_of_known_adapters(name: str, kind: str, sizes: tuple[int, int]) -> None:
    info = {"vendor": "", "device": name, "architecture": "", "adapter_type": "DiscreteGPU"}
    target = describe(info, {"max-buffer-size": 1 << 40}, ["subgroup"])
    assert (target.kind, target.subgroup_sizes, target.features) == (kind, sizes, frozenset({"subgroups"}))
    assert target.limits == {**DEFAULT_LIMITS, "maxBufferSize": 1 << 40}


def test_staging_keeps_one_buffer_and_grows_by_half() -> None:
    class Block:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes

    freed: list[int] = []
    pool = Staging(Block, lambda b: freed.append(b.nbytes), largest=100_000)
    first = pool.take(100)
    pool.give(first)
    assert pool.take(4096) is first and first.nbytes == 4096
    pool.give(first)
    grown = pool.take(8000)
    assert grown.nbytes == 12000 and freed == [4096] and pool.idle == 0
    assert pool.take(90_000).nbytes == 100_000
