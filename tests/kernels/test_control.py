"""If, Loop and Scan: inlined where their course is known, else steps whose tensors stay on the device; checked against
onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.flow_cases import CASES
from tests.kernels.harness import device, oracle, run_native
from tests.tolerance import close
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.compiler.control import MAX_TRIPS
from webrt.errors import InputError, NotConstant, PlacementError
from webrt.host import CpuProvider
from webrt.inference import InferenceSession
from webrt.planfile import dump, load
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

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
    assert [(p.how, p.reason) for p in plan.placement if p.op == "If"] == [("branch", "")]
    got, _ = run_native(model, {"x": X})
    close(got[0], X.sum(0))


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
def test_loops_that_are_not_unrolled(trips: str, condition: str) -> None:
    """No trip, so that the scan output has no entry; too many trips."""
    body = "c2 = Identity (c) s2 = Identity (s) out = Neg (s)"
    check(loop(trips, condition, body), {"x": X})


@pytest.mark.parametrize("name", CASES)
def test_what_only_the_run_decides(name: str) -> None:
    """The second identical run creates nothing."""
    case = CASES[name]
    plan = load(dump(compile_model(case.model, CompileOptions(target=device().target))))
    assert [s.kind for s in plan.steps if s.kind not in ("dispatch", "copy")] == case.steps
    assert tuple(p.op for p in plan.placement if p.how == "host") == case.host
    with Session(plan, device(), CpuProvider()) as session:
        for feeds in case.feeds:
            expected = oracle(case.model, feeds)
            for _ in range(2):
                for got, want in zip(session.run(None, feeds), expected, strict=True):
                    assert got.dtype == want.dtype
                    close(got, want)
            assert (session.last_run.buffers, session.last_run.pipelines) == (0, 0)


def test_only_what_decides_is_read_back() -> None:
    """A count that is fed costs no round trip; a condition costs one per iteration."""
    feeds = {"x": X, "n": np.array(5)}
    with Session(compile_model(CASES["a loop by a count that is fed"].model), device()) as session:
        session.run(None, feeds)
        session.run(None, feeds)
        assert (session.last_run.submits, session.last_run.down) == (1, 24 + 5 * 24)
    with Session(compile_model(CASES["a loop until data says so"].model), device()) as session:
        session.run(None, {"x": X})
        _, all_ = session.run(None, {"x": X})
        trips = len(all_)
        assert (session.last_run.submits, session.last_run.down) == (trips + 1, trips + 24 + trips * 24)


def test_device_tensors_in_and_out() -> None:
    model = CASES["a scan of unknown length, backward"].model
    feeds = {"s": np.ones(2, np.float32), "a": np.arange(8, dtype=np.float32).reshape(4, 2)}
    with Session(compile_model(model), device()) as session:
        given = {k: Tensor.from_numpy(v, device()) for k, v in feeds.items()}
        made = session.run(None, given, "device")
        for got, want in zip(made, oracle(model, feeds), strict=True):
            close(got.numpy(), want)


def test_closing_frees_everything() -> None:
    buffers = device().counters.buffers
    case = CASES["a loop until data says so"]
    with Session(compile_model(case.model), device()) as session:
        session.run(None, case.feeds[0])
        assert device().counters.buffers > buffers + 5
    assert device().counters.buffers <= buffers + 1


def test_strict_mode_names_nodes_within_a_body() -> None:
    with pytest.raises(PlacementError, match="3 nodes would run on the CPU.*Exp"):
        compile_model(CASES["a node for the CPU within a loop"].model, CompileOptions(strict=True))


def test_control_flow_that_stays_on_the_cpu() -> None:
    """Each with its reason, and the right result."""
    cases = {
        "sequences": """agraph (float[2] x, int64 n) => (float[2] y) {
          e = SequenceEmpty () s = Loop (n, , e) <body = b (int64 i, bool c, seq(float[2]) q) =>
            (bool c2, seq(float[2]) r) { c2 = Identity (c) v = Neg (x) r = SequenceInsert (q, v) }>
          zero = Constant <value = int64 {0}> () y = SequenceAt (s, zero) }""",
        "rank": """agraph (float[99] x, int64 n) => (float[K] z) {
          y = Loop (n, , x) <body = b (int64 i, bool c, float s) => (bool c2, float s2) {
            c2 = Identity (c) ax = Constant <value = int64[1] {0}> () s2 = Unsqueeze (s, ax) }>
          m = Constant <value = int64[1] {-1}> () z = Reshape (y, m) }""",
        "float64": """agraph (double[2] x, int64 n) => (double[2] y) {
          y = Loop (n, , x) <body = b (int64 i, bool c, double[2] s) => (bool c2, double[2] s2) {
            c2 = Identity (c) s2 = Add (s, x) }> }""",
    }
    for said, text in cases.items():
        model = parse(text)
        dtype = np.float64 if said == "float64" else np.float32
        feeds = {"x": np.arange(99 if said == "rank" else 2).astype(dtype), "n": np.array(2)}
        got, plan = run_native(model, feeds)
        (reason,) = [p.reason for p in plan.placement if p.op == "Loop"]
        assert said in reason
        for g, w in zip(got, oracle(model, feeds), strict=True):
            close(g, w)


def test_scan_lengths_that_differ_are_refused() -> None:
    model = CASES["a scan along other axes, forward and backward"].model
    with Session(compile_model(model), device()) as session:
        feeds = {"s": np.ones(2, np.float32), "a": np.ones((2, 3), np.float32), "b": np.ones((4, 2), np.float32)}
        with pytest.raises(InputError):
            session.run(None, feeds)


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
