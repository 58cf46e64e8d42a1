"""If, Loop and Scan of known course run wholly on the device; checked against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.kernels.harness import oracle, run_native
from tests.tolerance import close
from webrt.compiler.compile import compile_model
from webrt.compiler.control import MAX_TRIPS
from webrt.errors import NotConstant
from webrt.inference import InferenceSession

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
PROVIDERS = ["WebGpuExecutionProvider"]


def parse(text: str, opset: int = 16) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')


def check(text: str, feeds: Mapping[str, Array], opset: int = 16, **options: Any) -> None:
    """Wholly on the device, and as onnxruntime says."""
    model = parse(text, opset)
    got, plan = run_native(model, feeds, **options)
    assert not plan.host_steps, [p.reason for p in plan.placement if p.how == "host"]
    for g, w in zip(got, oracle(model, feeds), strict=True):
        close(g, w)


BRANCHES = """agraph (bool on, float[N, 3] x) => (float[N, 3] y, float z) {
    two = Constant <value = float {2.0}> ()
    d = Add (x, two)
    y, z = If (on) <
      then_branch = t () => (float[N, 3] a, float h) { h = Constant <value = float {0.5}> () a = Mul (d, h) },
      else_branch = e () => (float[N, 3] b, float c) { b = Neg (x) c = Constant <value = float {7.0}> () }>
}"""


@pytest.mark.parametrize("on", [True, False])
def test_if_by_a_scalar_input(on: bool) -> None:
    """One session, a plan for each value; a branch may return a constant."""
    feeds = {"on": np.array(on), "x": X}
    check(BRANCHES, feeds, known_inputs={"on": np.array(on)})
    with pytest.raises(NotConstant) as caught:
        compile_model(parse(BRANCHES))
    assert caught.value.roots == {"on"}
    with InferenceSession(parse(BRANCHES), providers=PROVIDERS) as session:
        for flag in (on, not on, on):
            y, z = session.run(None, {"on": np.array(flag), "x": X})
            close(y, (X + 2) / 2 if flag else -X)
            assert z == (0.5 if flag else 7.0)


def test_if_by_a_size() -> None:
    """A session compiles for each outcome, not for each size."""
    model = parse("""agraph (float[N, M] x) => (float[A] y) {
      one = Constant <value = int64[1] {1}> ()
      shape = Shape (x)
      zero = Constant <value = int64 {0}> ()
      n = Gather (shape, zero)
      single = Equal (n, one)
      flag = Squeeze (single)
      axis = Constant <value = int64[1] {0}> ()
      y = If (flag) <
        then_branch = t () => (float[A] a) { a = Squeeze (x, axis) },
        else_branch = e () => (float[A] b) { b = ReduceSum <keepdims = 0> (x, axis) }>
    }""")
    with InferenceSession(model, providers=PROVIDERS) as session:
        for rows, columns in ((1, 4), (3, 4), (5, 2), (1, 2)):
            x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            (y,) = session.run(None, {"x": x})
            close(y, x.sum(0))
        assert len(session._variants._kept) == 2
    plan = compile_model(model)
    assert [p.op for p in plan.placement if p.how == "host"] == ["If"]


def test_nested_branches_have_their_own_names() -> None:
    check(
        """agraph (float[N, 3] x) => (float[N, 3] y) {
          yes = Constant <value = bool {1}> ()
          no = Constant <value = bool {0}> ()
          y = If (yes) <
            then_branch = t () => (float[N, 3] a) {
              s = Add (x, x)
              a = If (no) <
                then_branch = t2 () => (float[N, 3] u) { u = Neg (s) },
                else_branch = e2 () => (float[N, 3] v) { w = Mul (s, x) v = Sub (w, s) }> },
            else_branch = e () => (float[N, 3] b) { b = Identity (x) }>
        }""",
        {"x": X},
    )


def loop(trips: str, condition: str, body: str) -> str:
    return f"""agraph (float[2, 3] x) => (float[2, 3] y, float[T, 2, 3] all) {{
      trips = Constant <value = int64 {{{trips}}}> ()
      go = Constant <value = bool {{{condition}}}> ()
      y, all = Loop (trips, go, x) <body = b (int64 i, bool c, float[2, 3] s) =>
        (bool c2, float[2, 3] s2, float[2, 3] out) {{ {body} }}>
    }}"""


STEP = "f = Cast <to = 1> (i) t = Add (s, f) s2 = Mul (t, x) out = Neg (t)"


@pytest.mark.parametrize("opset", [11, 16])
def test_loop_of_known_trips(opset: int) -> None:
    check(loop("4", "1", f"c2 = Identity (c) {STEP}"), {"x": X}, opset)


def test_loop_that_ends_early() -> None:
    """The condition is computed from the iteration's number."""
    check(loop("40", "1", f"two = Constant <value = int64 {{2}}> () c2 = Less (i, two) {STEP}"), {"x": X})


def test_loop_without_a_trip() -> None:
    text = """agraph (float[2, 3] x) => (float[2, 3] y) {
      trips = Constant <value = int64 {0}> ()
      y = Loop (trips, , x) <body = b (int64 i, bool c, float[2, 3] s) => (bool c2, float[2, 3] s2) {
        c2 = Identity (c) s2 = Add (s, s) }>
    }"""
    check(text, {"x": X})


@pytest.mark.parametrize(("trips", "condition"), [("0", "1"), ("4", "0"), (str(MAX_TRIPS + 1), "1")])
def test_loops_that_stay_on_the_cpu(trips: str, condition: str) -> None:
    """No trip, so that nobody knows the size of the scan output; too many trips. The result is right all the same."""
    body = "c2 = Identity (c) s2 = Identity (s) out = Neg (s)"
    model = parse(loop(trips, condition, body))
    got, plan = run_native(model, {"x": X})
    assert [p.op for p in plan.placement if p.how == "host"] == ["Loop"]
    for g, w in zip(got, oracle(model, {"x": X}), strict=True):
        close(g, w)


def test_loop_whose_condition_depends_on_data_stays_on_the_cpu() -> None:
    limit = "big = Constant <value = float {20.0}> () m = ReduceMax <keepdims = 0> (s) c2 = Less (m, big)"
    model = parse(loop("10", "1", f"{limit} s2 = Add (s, s) out = Neg (s)"))
    got, plan = run_native(model, {"x": X})
    assert plan.host_steps
    for g, w in zip(got, oracle(model, {"x": X}), strict=True):
        close(g, w)


@pytest.mark.parametrize("trips", [1, 3])
def test_loop_by_a_scalar_input(trips: int) -> None:
    text = """agraph (int64 n, float[2, 3] x) => (float[2, 3] y) {
      y = Loop (n, , x) <body = b (int64 i, bool c, float[2, 3] s) => (bool c2, float[2, 3] s2) {
        c2 = Identity (c) s2 = Add (s, x) }>
    }"""
    check(text, {"n": np.array(trips), "x": X}, known_inputs={"n": np.array(trips)})


def test_scan_axes_and_directions() -> None:
    """Two scanned inputs, one backward and along its last axis; outputs backward, on the last axis."""
    text = """agraph (float[2] s, float[3, 2] a, float[2, 3] b) => (float[2] last, float[3, 2] y, float[2, 3] z) {
      last, y, z = Scan <num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [0, 1],
        scan_output_axes = [0, 1], scan_output_directions = [1, 0],
        body = g (float[2] s0, float[2] p, float[2] q) => (float[2] s1, float[2] u, float[2] v) {
          t = Add (s0, p) s1 = Mul (t, q) u = Identity (s1) v = Neg (t) }> (s, a, b)
    }"""
    rng = np.random.default_rng(3)
    feeds = {k: rng.standard_normal(n).astype(np.float32) for k, n in (("s", 2), ("a", (3, 2)), ("b", (2, 3)))}
    check(text, feeds)


def test_silero_keeps_its_state() -> None:
    """Nested If by sample rate and sizes, LSTM, state over 50 chunks of both rates, in one session."""
    import onnxruntime as ort

    from benchmarks.models import public_model

    path = str(public_model("silero_vad_v6").path)
    want = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    with InferenceSession(path, providers=PROVIDERS) as session:
        for rate, size in ((16000, 576), (8000, 288)):
            state = expected = np.zeros((2, 1, 128), np.float32)
            for k in range(50):
                x = (rng.standard_normal((1, size)) * np.sin(k / 7) * 0.3).astype(np.float32)
                y, state = session.run(None, {"input": x, "state": state, "sr": np.array(rate)})
                z, expected = want.run(None, {"input": x, "state": expected, "sr": np.array(rate)})
                close(y, z, atol=1e-4)
                close(state, expected, atol=1e-3)
