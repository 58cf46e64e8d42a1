"""A plan on a device: sizes, growth, device tensors, host segments, limits, errors, counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

from tests.kernels.harness import device as shared_device
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import DeviceError, InputError, KernelError, PlanError, ShapeError, TargetError, UnsupportedType
from webrt.host import CpuProvider
from webrt.plan import Dispatch, Kernel, Plan
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor
from webrt.target import BASE

Array = np.ndarray[Any, Any]
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '

AFFINE = (
    HEAD
    + """(float[N, 3] x, float[N, 3] b) => (float[N, 3] y, float[N, 1] z)
    { s = Add(x, b)  y = Relu(s)  z = ReduceMax<axes = [1], keepdims = 1>(y) }"""
)
# float64 is never on a device, so the casts are host steps: two segments of two nodes each.
TWO_SEGMENTS = (
    HEAD
    + """(float[N] x) => (float[N] y) {
    a = Neg(x)  b = Cast<to = 11>(a)  c = Cast<to = 1>(b)  d = Abs(c)
    e = Cast<to = 11>(d)  f = Cast<to = 1>(e)  y = Neg(f) }"""
)
LATE_SIZES = (
    HEAD
    + """(double[N] x, bool[N] keep) => (float[M] y, float[M] z) {
    a = Compress(x, keep)  b = Cast<to = 1>(a)  y = Neg(b)  z = Abs(y) }"""
)
CACHE = (
    HEAD
    + """(float[1, P, 4] past, float[1, S, 4] x) => (float[1, T, 4] present, float[1, T, 4] y)
    { present = Concat<axis = 1>(past, x)  y = Neg(present) }"""
)


@pytest.fixture
def device() -> Iterator[NativeDevice]:
    found = shared_device()
    before = (found.counters.buffers, found.counters.bytes)
    yield found
    assert (found.counters.buffers, found.counters.bytes) == before, "device memory was not given back"


def made(text: str, **options: Any) -> Plan:
    """The plan of the nodes as they are written: no pass removes a host segment."""
    options = {"level": "disabled", "target": shared_device().target, **options}
    return compile_model(onnx.parser.parse_model(text), CompileOptions(**options))


def opened(text: str, device: NativeDevice) -> Session:
    return Session(made(text), device, CpuProvider())


def affine(n: int) -> dict[str, Array]:
    values = np.random.default_rng(n).standard_normal((2, n, 3)).astype(np.float32)
    return {"x": values[0], "b": values[1]}


def check_affine(session: Session, n: int) -> None:
    feeds = affine(n)
    y, z = session.run(None, feeds)
    expected = np.maximum(feeds["x"] + feeds["b"], 0)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(z, expected.max(1, keepdims=True, initial=-np.inf) if n else np.zeros((0, 1)))


def test_the_second_identical_run_creates_nothing_and_is_one_submit(device: NativeDevice) -> None:
    with opened(AFFINE, device) as session:
        check_affine(session, 5)
        first = session.last_run
        assert first.buffers > 0
        created, pipelines, submits = device.counters.created, device.counters.pipelines, device.counters.submits
        check_affine(session, 5)
        now = device.counters
        assert (now.created, now.pipelines, now.submits) == (created, pipelines, submits + 1)
        assert (session.last_run.buffers, session.last_run.pipelines, session.last_run.submits) == (0, 0, 1)
        assert session.last_run.dispatches == first.dispatches > 0
        assert (session.last_run.up, session.last_run.down) == (2 * 5 * 3 * 4, 5 * 3 * 4 + 5 * 4)


def test_any_size_grows_by_half_and_smaller_ones_create_nothing(device: NativeDevice) -> None:
    with opened(AFFINE, device) as session:
        check_affine(session, 100)
        size = device.counters.bytes
        check_affine(session, 101)
        assert device.counters.bytes > size
        for n in (149, 120, 100, 1, 0):
            check_affine(session, n)
            assert session.last_run.buffers == 0, n


def test_zero_size_inputs_dispatch_nothing(device: NativeDevice) -> None:
    with opened(AFFINE, device) as session:
        y, z = session.run(None, affine(0))
        assert y.shape == (0, 3) and z.shape == (0, 1)
        assert session.last_run.dispatches == 0 and session.last_run.submits == 0


def test_outputs_by_name_and_order(device: NativeDevice) -> None:
    with opened(AFFINE, device) as session:
        z, y, again = session.run(["z", "y", "z"], affine(2))
        assert z.shape == (2, 1) and y.shape == (2, 3)
        np.testing.assert_array_equal(z, again)
        with pytest.raises(InputError, match="no output 'q'; the outputs are y, z"):
            session.run(["q"], affine(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": None}, r"no value for 'b'; the inputs are x: float32\[N, 3\]; b: float32\[N, 3\]"),
        ({"c": np.zeros(1)}, r"'c' is no input; the inputs are x: float32\[N, 3\]"),
        ({"x": np.zeros((2, 3))}, "'x' is float64; float32 is expected"),
        ({"x": np.zeros((2, 1, 3), np.float32)}, r"'x': rank 3 was given \(\[2, 1, 3\]\); expected is x: float32"),
        ({"x": np.zeros((2, 4), np.float32)}, r"'x': axis 1 has size 4 \(\[2, 4\] was given\), 3 is expected"),
        ({"b": np.zeros((3, 3), np.float32)}, r"'b': axis 0 has size 3 .* but N is 2 by 'x'"),
        ({"x": "text"}, "'x' is a str; float32 is expected"),
        ({"x": None}, "no value for 'x'"),
        ({"x": [[1, 2, 3], [4, 5]]}, "'x': the list does not convert to float32"),
    ],
)  # fmt: skip
def test_wrong_feeds(device: NativeDevice, change: dict[str, Any], message: str) -> None:
    feeds = {k: v for k, v in {**affine(2), **change}.items() if v is not None}
    with opened(AFFINE, device) as session:
        with pytest.raises(InputError, match=message):
            session.run(None, feeds)
        assert session.last_run.submits == 0
        check_affine(session, 2)


def test_arrays_of_any_layout_and_lists(device: NativeDevice) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    with opened(AFFINE, device) as session:
        for given in (x[:, ::2], x[::-1, ::2].copy(order="F")[::-1], x[:, ::2].astype(">f4"), x[:, ::2].tolist()):
            y, _ = session.run(None, {"x": given, "b": np.zeros((4, 3), np.float32)})
            np.testing.assert_array_equal(y, x[:, ::2])
            assert y.dtype == np.float32 and y.flags.writeable


def test_scalars(device: NativeDevice) -> None:
    with opened(HEAD + "(float x) => (float y) { y = Neg(x) }", device) as session:
        (y,) = session.run(None, {"x": np.array(2.5, np.float32)})
        assert y.shape == () and y == -2.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "uint8", "int8", "int32", "int64"])
def test_types_come_back_bit_by_bit(device: NativeDevice, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    text = HEAD + f"({dtype}[N] x) => ({dtype}[M] y) {{ y = Concat<axis = 0>(x, x) }}"
    x = np.array([0, 1, 1, 0, 1, 1, 1, 0], dtype=kind)
    with opened(text, device) as session:
        (y,) = session.run(None, {"x": x})
        assert y.dtype == kind and y.tobytes() == np.concatenate([x, x]).tobytes()


def test_a_cache_stays_on_the_device(device: NativeDevice) -> None:
    step = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    with opened(CACHE, device) as session:
        past: Any = np.zeros((1, 0, 4), np.float32)
        for n in range(1, 6):
            present, y = session.run(None, {"past": past, "x": step + n}, {"present": "device"})
            assert isinstance(present, Tensor) and present.shape == (1, n, 4) and present.device is device
            if isinstance(past, Tensor):
                assert (session.last_run.up, session.last_run.down) == (16, 16 * n)
                past.close()
            past = present
        expected = np.concatenate([step + n for n in range(1, 6)], axis=1)
        np.testing.assert_array_equal(past.numpy(), expected)
        np.testing.assert_array_equal(y, -expected)
        past.close()


def test_a_growing_cache_on_the_device_needs_few_buffers(device: NativeDevice) -> None:
    """64 steps, each an entry longer: buffers of closed tensors serve again; what is handed out stays apart."""
    with opened(CACHE, device) as session:
        past: Any = np.zeros((1, 0, 4), np.float32)
        for n in range(64):
            feeds = {"past": past, "x": np.full((1, 1, 4), n, np.float32)}
            (present,) = session.run(["present"], feeds, "device")
            if n:
                past.close()
            past = present
            if n == 1:
                created = device.counters.created
        assert device.counters.created - created <= 4
        more = session.run(["present"], {"past": past, "x": np.zeros((1, 1, 4), np.float32)}, "device")[0]
        np.testing.assert_array_equal(past.numpy()[0, :, 0], np.arange(64))
        np.testing.assert_array_equal(more.numpy()[0, :, 0], [*range(64), 0])
    np.testing.assert_array_equal(past.numpy()[0, :, 0], np.arange(64))
    more.close()
    past.close()


def test_a_device_input_is_bound_where_it_lies(device: NativeDevice) -> None:
    feeds = affine(50)
    with opened(AFFINE, device) as session, Tensor.from_numpy(feeds["x"], device) as x:
        host = session.run(None, feeds)
        mixed = session.run(None, {**feeds, "x": x})
        np.testing.assert_array_equal(mixed[0], host[0])
        assert session.last_run.copies == 0 and session.last_run.up == 600 and session.last_run.buffers == 0
        np.testing.assert_array_equal(x.numpy(), feeds["x"])
        np.testing.assert_array_equal(session.run(None, feeds)[0], host[0])


def test_device_tensors_of_the_wrong_kind(device: NativeDevice) -> None:
    feeds = affine(2)
    with opened(AFFINE, device) as session, Tensor.from_numpy(np.zeros((2, 3), np.int32), device) as wrong:
        with pytest.raises(InputError, match=r"it is int32; expected is x: float32\[N, 3\]"):
            session.run(None, {**feeds, "x": wrong})
        with Tensor.from_numpy(np.zeros((2, 4), np.float32), device) as wide, pytest.raises(InputError, match="size 4"):
            session.run(None, {**feeds, "x": wide})
        gone = Tensor.from_numpy(feeds["x"], device)
        gone.close()
        with pytest.raises(DeviceError, match="closed"):
            session.run(None, {**feeds, "x": gone})
        with pytest.raises(InputError, match='"cpu" or "device"'):
            session.run(None, feeds, "gpu")


def test_a_tensor_needs_a_device() -> None:
    nowhere: Any = None
    with pytest.raises(InputError, match=r"pass session\.device, not None"):
        Tensor.from_numpy(np.zeros(3, np.float32), nowhere)


def test_tensors_free_themselves(device: NativeDevice) -> None:
    before = device.counters.buffers
    tensor = Tensor.from_numpy(np.ones(5, np.float32), device)
    assert "float32[5]" in repr(tensor) and device.counters.buffers == before + 1
    del tensor
    assert device.counters.buffers == before
    with pytest.raises(UnsupportedType, match="float64"):
        Tensor.from_numpy(np.ones(5), device)


def test_two_host_segments(device: NativeDevice) -> None:
    x = np.linspace(-1, 1, 7, dtype=np.float32)
    with opened(TWO_SEGMENTS, device) as session:
        for _ in range(2):
            (y,) = session.run(None, {"x": x})
            np.testing.assert_array_equal(y, -np.abs(x))
        assert session.last_run.host_nodes == 4 and session.last_run.submits == 3 and session.last_run.buffers == 0
        assert session.last_run.up == session.last_run.down == 3 * 28
        (out,) = session.run(None, {"x": x}, "device")
        np.testing.assert_array_equal(out.numpy(), -np.abs(x))
        out.close()


def test_sizes_that_only_a_host_step_knows(device: NativeDevice) -> None:
    x = np.arange(6, dtype=np.float64)
    with opened(LATE_SIZES, device) as session:
        for keep in ([1, 0, 1, 0, 1, 1], [0] * 6, [1] * 6, [1, 0, 1, 0, 1, 1]):
            mask = np.array(keep, bool)
            y, z = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, -x[mask].astype(np.float32))
            np.testing.assert_array_equal(z, x[mask].astype(np.float32))


def test_host_outputs_are_the_callers_own(device: NativeDevice) -> None:
    text = HEAD + "(double[N] x) => (double[N] y, double[N] z) { y = Identity(x)  z = Neg(x) }"
    x = np.arange(3, dtype=np.float64)
    with opened(text, device) as session:
        y, _ = session.run(None, {"x": x})
        y += 1
        assert x.tolist() == [0, 1, 2]
        with pytest.raises(UnsupportedType, match="devices do not hold"):
            session.run(None, {"x": x}, "device")


def test_a_host_node_that_breaks_its_shape_is_named(device: NativeDevice) -> None:
    class Wrong:
        def prepare(self, node: bytes, opsets: object) -> Any:
            return self

        def run(self, inputs: list[Array], outer: object = None) -> list[Array]:
            return [np.zeros((2, 2), np.float64)]

    with Session(made(TWO_SEGMENTS), device, Wrong()) as session, pytest.raises(ShapeError, match="Cast .*rank 2"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_threads_share_a_session(device: NativeDevice) -> None:
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for _ in range(10):
                check_affine(session, n)
        except BaseException as e:
            failed.append(e)

    with opened(AFFINE, device) as session:
        threads = [threading.Thread(target=work, args=(n,)) for n in (3, 17, 40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not failed, failed


def test_close_frees_and_later_runs_say_so(device: NativeDevice) -> None:
    before = device.counters.buffers
    session = opened(AFFINE, device)
    (y, _) = session.run(None, affine(4), {"y": "device"})
    session.close()
    session.close()
    assert device.counters.buffers == before + 2, "the tensor, and a read-back buffer as long as there is one"
    assert y.numpy().shape == (4, 3)
    y.close()
    with pytest.raises(DeviceError, match="was closed"):
        session.run(None, affine(4))


def test_a_dropped_session_frees(device: NativeDevice) -> None:
    before = device.counters.buffers
    session = opened(AFFINE, device)
    session.run(None, affine(4))
    del session
    assert device.counters.buffers == before


def test_constants_share_few_buffers(device: NativeDevice) -> None:
    import onnx.numpy_helper

    model = onnx.parser.parse_model(HEAD + "(float[300] x) => (float[300] y) { a = Add(x, c)  y = Mul(a, d) }")
    c, d = np.arange(300, dtype=np.float32), np.full(300, 2, np.float32)
    model.graph.initializer.extend([onnx.numpy_helper.from_array(c, "c"), onnx.numpy_helper.from_array(d, "d")])
    before = device.counters.buffers
    with Session(compile_model(model, CompileOptions(target=device.target)), device) as session:
        assert device.counters.buffers - before == 2, "one arena, one parameter block"
        (y,) = session.run(None, {"x": c})
        np.testing.assert_array_equal(y, 4 * c)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"maxStorageBufferBindingSize": 4096}, "needs 240000 bytes at these sizes; .*BindingSize 4096"),
        ({"maxComputeWorkgroupsPerDimension": 8}, r"needs \d+ workgroups .* maxComputeWorkgroupsPerDimension 8"),
    ],
)
def test_limits_are_named_before_anything_is_submitted(limits: dict[str, int], message: str) -> None:
    device = NativeDevice(limits=limits)
    with Session(replace(made(AFFINE), target=device.target.to_json()), device) as session:
        check_affine(session, 20)
        submits = device.counters.submits
        with pytest.raises(TargetError, match=message):
            session.run(None, affine(20_000))
        assert device.counters.submits == submits
        check_affine(session, 30)
    assert device.counters.buffers == 0
    device.close()


def test_a_plan_for_a_larger_device_is_refused(device: NativeDevice) -> None:
    plan = made(AFFINE)
    more = device.target.limit("maxComputeWorkgroupStorageSize") + 1
    wanted = device.target.with_limits(maxComputeWorkgroupStorageSize=more).to_json()
    with pytest.raises(TargetError, match=f"maxComputeWorkgroupStorageSize {more}; .* has {more - 1}"):
        Session(replace(plan, target=wanted), device)


def test_a_target_with_a_feature_of_no_device_is_refused(device: NativeDevice) -> None:
    """Though no kernel needs it; one of WebGPU's that the device lacks is no reason."""
    plan = made(AFFINE)
    with Session(replace(plan, target=device.target.to_json() | {"features": ["clip-distances"]}), device) as session:
        check_affine(session, 3)
    with pytest.raises(TargetError, match="has the feature 'subgroup', which WebGPU lacks: did you mean 'subgroups'"):
        Session(replace(plan, target=device.target.to_json() | {"features": ["subgroup"]}), device)
    with pytest.raises(TargetError, match="has the feature 'telepathy', which WebGPU lacks: it has "):
        made(AFFINE, target=replace(BASE, features=frozenset({"telepathy"})))


def _with_first_kernel(plan: Plan, kernel: Kernel, keep: bool) -> Plan:
    """The first dispatch prefers `kernel`; its own stays behind it if `keep`."""
    steps = list(plan.steps)
    at = next(i for i, s in enumerate(steps) if isinstance(s, Dispatch))
    step = steps[at]
    assert isinstance(step, Dispatch)
    first = (len(plan.kernels), *step.alternatives[0][1:])
    steps[at] = replace(step, alternatives=(first, *(step.alternatives if keep else ())))
    return replace(plan, kernels=(*plan.kernels, kernel), steps=tuple(steps))


def test_alternatives_are_taken_by_what_the_device_meets(device: NativeDevice) -> None:
    plan = made(AFFINE)
    first = next(s for s in plan.steps if isinstance(s, Dispatch))
    own = plan.kernels[first.alternatives[0][0]]
    distant = replace(own, requires={"features": ["clip-distances"]})
    with Session(_with_first_kernel(plan, distant, keep=True), device) as session:
        check_affine(session, 3)
    target = device.target.to_json() | {"features": ["clip-distances"]}
    with pytest.raises(TargetError, match="'clip-distances' is needed"):
        Session(replace(_with_first_kernel(plan, distant, keep=False), target=target), device)


def test_a_refused_kernel_names_its_node(device: NativeDevice) -> None:
    plan = made(AFFINE)
    first = next(s for s in plan.steps if isinstance(s, Dispatch))
    own = plan.kernels[first.alternatives[0][0]]
    bad = replace(own, wgsl=own.wgsl + "\nfn broken() -> u32 { return nothing; }\n", hash="bad")
    with pytest.raises(KernelError, match="nothing") as e:
        Session(_with_first_kernel(plan, bad, keep=False), device)
    assert e.value.op == plan.placement[first.node].op


def test_numbers_beyond_32_bits_and_checks(device: NativeDevice) -> None:
    plan = made(HEAD + "(float[N] x) => (float[N] y) { y = Neg(x) }")
    huge = replace(plan, dims=[*plan.dims, ["mul", 1 << 20, 1 << 20]])
    at = next(i for i, s in enumerate(huge.steps) if isinstance(s, Dispatch))
    step = huge.steps[at]
    assert isinstance(step, Dispatch)
    wide = replace(step, params=((len(huge.dims) - 1,), *step.params[1:]))
    steps = (*huge.steps[:at], wide, *huge.steps[at + 1 :])
    with Session(replace(huge, steps=steps), device) as session, pytest.raises(TargetError, match=str(1 << 40)):
        session.run(None, {"x": np.zeros(3, np.float32)})
    refused = replace(plan, checks=((0, "only on Sundays"),))
    with Session(refused, device) as session, pytest.raises(InputError, match="only on Sundays"):
        session.run(None, {"x": np.zeros(3, np.float32)})


def test_a_broken_plan_reaches_no_device(device: NativeDevice) -> None:
    plan = made(AFFINE)
    with pytest.raises(PlanError):
        Session(replace(plan, params_size=-1), device)


def test_sizes_made_within_a_host_segment(device: NativeDevice) -> None:
    """The count of one CPU node's result decides what the next CPU node of the same segment does."""
    text = (
        HEAD
        + """(double[N] x, bool[N] keep) => (double[?] y, int64[1] n) {
      k = Compress<axis = 0>(x, keep)  n = Shape(k)  f = Cast<to = 11>(n)  y = Add(k, f) }"""
    )
    x = np.arange(5, dtype=np.float64)
    with opened(text, device) as session:
        for keep in ([1, 0, 1, 0, 1], [0] * 5):
            mask = np.array(keep, bool)
            y, n = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, x[mask] + mask.sum())
            np.testing.assert_array_equal(n, [mask.sum()])


def test_a_view_of_what_a_host_segment_makes(device: NativeDevice) -> None:
    """A device alias between two CPU nodes: its bytes are there only after the first, and so may its size be."""
    text = (
        HEAD
        + """(double[N, 2] x, bool[N] keep) => (double[?] y) {
      k = Compress<axis = 0>(x, keep)  f = Cast<to = 1>(k)  flat = Constant<value = int64[1] {-1}>()
      v = Reshape(f, flat)  y = Cast<to = 11>(v) }"""
    )
    x = np.arange(10, dtype=np.float64).reshape(5, 2)
    plan = made(text)
    assert [s.kind for s in plan.steps] == ["host"] * 3
    with opened(text, device) as session:
        for keep in ([1, 0, 1, 0, 1], [0, 1, 0, 0, 0]):
            mask = np.array(keep, bool)
            (y,) = session.run(None, {"x": x, "keep": mask})
            np.testing.assert_array_equal(y, x[mask].reshape(-1))


def test_the_second_session_of_a_plan_compiles_nothing(device: NativeDevice) -> None:
    plan = made(AFFINE)
    x = np.ones((2, 3), np.float32)
    with Session(plan, device) as first:
        want = first.run(None, {"x": x, "b": x})
        before = device.counters.pipelines
        with Session(plan, device) as second:
            got = second.run(None, {"x": x, "b": x})
        assert device.counters.pipelines == before
    for g, w in zip(got, want):
        np.testing.assert_array_equal(g, w)


def test_a_refused_kernel_gives_the_uploads_back(device: NativeDevice) -> None:
    plan = made(HEAD + "(float[N, 2] x) => (float[N, 2] y) <float[2] w = {1.0, 2.0}> { y = Mul(x, w) }")
    broken = tuple(replace(k, wgsl=k.wgsl.replace("fn main", "fn main_")) for k in plan.kernels)
    with pytest.raises(KernelError, match="Mul"):
        Session(replace(plan, kernels=broken), device)
