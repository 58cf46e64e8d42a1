"""Runs of a plan on a device: sizes, growth, feeds, types, threads, what stays and what is given back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.session.models import (
    AFFINE,
    HEAD,
    affine,
    check_affine,
    made,
    opened,
)
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import DeviceError, InputError
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session


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
