"""InferenceSession: ONNX Runtime's names and behaviour, providers, compile-only, specialised sessions."""

from __future__ import annotations

import asyncio
import logging
import queue
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import webrt
from webrt import planfile, variants
from webrt.options import CPU, WEBGPU
from webrt.plan import PlacedNode
from webrt.runtime import devices
from webrt.runtime.native import NativeDevice
from webrt.runtime.null import NullDevice

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
BIAS = HEAD + "(float[N, 3] x, float[3] b) => (float[N, 3] y) { s = Add(x, b)  y = Relu(s) }"
MIXED = HEAD + "(float[N] x) => (float[N] y) { d = Cast<to = 11>(x)  s = Neg(d)  f = Cast<to = 1>(s)  y = Abs(f) }"
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def bias_model() -> onnx.ModelProto:
    """`b` is an initializer that is an input too, so it may be fed."""
    model = onnx.parser.parse_model(BIAS)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "b"))
    model.producer_name, model.model_version, model.graph.name = "tests", 7, "bias"
    onnx.helper.set_model_props(model, {"characters": "a b c"})
    return model


def options(level: Any = None, free: dict[str, int] | None = None, **entries: str) -> webrt.SessionOptions:
    out = webrt.SessionOptions()
    for key, value in entries.items():
        out.add_session_config_entry(f"session.{key}", value)
    for name, size in (free or {}).items():
        out.add_free_dimension_override_by_name(name, size)
    if level is not None:
        out.graph_optimization_level = level
    return out


def test_names_types_and_metadata() -> None:
    with webrt.InferenceSession(bias_model()) as session:
        assert [(a.name, a.type, a.shape) for a in session.get_inputs()] == [("x", "tensor(float)", ["N", 3])]
        assert [(a.name, a.type, a.shape) for a in session.get_outputs()] == [("y", "tensor(float)", ["N", 3])]
        (b,) = session.get_overridable_initializers()
        assert (b.name, b.type, b.shape) == ("b", "tensor(float)", [3])
        meta = session.get_modelmeta()
        assert (meta.producer_name, meta.version, meta.graph_name) == ("tests", 7, "bias")
        assert meta.custom_metadata_map == {"characters": "a b c"}
        assert session.get_providers() == [WEBGPU, CPU] == webrt.get_available_providers()
        assert {p.provider for p in session.get_placement()} == {"webgpu"}


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "proto"])
def test_every_kind_of_source(kind: str, tmp_path: Path) -> None:
    model = bias_model()
    path = tmp_path / "bias.onnx"
    path.write_bytes(model.SerializeToString())
    source = {"path": path, "str": str(path), "bytes": path.read_bytes(), "proto": model}[kind]
    with webrt.InferenceSession(source) as session:
        (y,) = session.run(["y"], {"x": X})
        np.testing.assert_array_equal(y, np.maximum(X + 1, 0))
        assert session.last_run.dispatches > 0


def test_feeding_an_initializer_specialises_and_is_kept() -> None:
    with webrt.InferenceSession(bias_model()) as session:
        for bias in (0.0, 5.0, 0.0):
            (y,) = session.run(None, {"x": X, "b": np.full(3, bias, np.float32)})
            np.testing.assert_array_equal(y, np.maximum(X + bias, 0))
        assert session.last_run.buffers == 0, "the first specialised session is still there"
        (y,) = session.run(None, {"x": X})
        np.testing.assert_array_equal(y, np.maximum(X + 1, 0))
        with pytest.raises(webrt.InputError, match="'b' is float64; float32 is expected"):
            session.run(None, {"x": X, "b": np.zeros(3)})


TILE = HEAD + "(float[N] x, int64[R] shape) => (float y) { r = Reshape(x, shape)  y = ReduceSum<keepdims = 0>(r) }"


def test_inputs_that_decide_the_rank_specialise_at_the_first_run() -> None:
    """The length of `shape` is not known, so neither is the rank of the reshaped tensor."""
    with webrt.InferenceSession(onnx.parser.parse_model(TILE)) as session:
        assert [a.name for a in session.get_inputs()] == ["x", "shape"]
        assert [(a.name, a.type) for a in session.get_outputs()] == [("y", "tensor(float)")]
        for shape in ([2, 3], [3, 2, 1], [6]):
            (y,) = session.run(None, {"x": np.arange(6, dtype=np.float32), "shape": np.array(shape, np.int64)})
            assert y == 15
        with pytest.raises(webrt.InputError, match="no value for 'shape'"):
            session.run(None, {"x": np.zeros(6, np.float32)})


def test_the_cache_of_specialised_sessions_is_bounded() -> None:
    device = devices.open_device({})
    with webrt.InferenceSession(bias_model()) as session:
        sizes = []
        for bias in range(variants.MAX_KEPT + 4):
            session.run(None, {"x": X, "b": np.full(3, bias, np.float32)})
            sizes.append(device.counters.buffers)
        assert len(set(sizes[variants.MAX_KEPT - 1 :])) == 1
    assert device.counters.buffers == 0


def test_devices_are_shared_and_tensors_pass_between_sessions() -> None:
    with webrt.InferenceSession(bias_model()) as one, webrt.InferenceSession(bias_model()) as two:
        assert one.device is two.device
        (y,) = one.run(None, {"x": X}, output_location="device")
        (z,) = two.run(None, {"x": y}, output_location={"y": "cpu"})
        np.testing.assert_array_equal(z, np.maximum(np.maximum(X + 1, 0) + 1, 0))
        y.close()


def in_a_thread(call: Callable[[], Any]) -> Any:
    """A thread of its own has no event loop yet; playwright leaves one running in the tests' main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_asynchronous_runs() -> None:
    async def both() -> list[Any]:
        session = await webrt.InferenceSession.create(bias_model(), providers=[WEBGPU])
        return await asyncio.gather(*(session.arun(None, {"x": X + i}) for i in range(3)))

    for i, (y,) in enumerate(in_a_thread(lambda: asyncio.run(both()))):
        np.testing.assert_array_equal(y, np.maximum(X + i + 1, 0))
    with webrt.InferenceSession(bias_model()) as session:
        done: queue.Queue[tuple[Any, ...]] = queue.Queue()
        session.run_async(None, {"x": X}, lambda *result: done.put(result), "mine")
        outputs, data, error = done.get(timeout=60)
        assert outputs[0].shape == X.shape and data == "mine" and error == ""
        session.run_async(None, {}, lambda *result: done.put(result))
        assert "no value for 'x'" in done.get(timeout=60)[2]


def test_the_cpu_alone_touches_no_device() -> None:
    with webrt.InferenceSession(bias_model(), providers=[CPU]) as session:
        (y,) = session.run(None, {"x": X})
        np.testing.assert_array_equal(y, np.maximum(X + 1, 0))
        assert isinstance(session.device, NullDevice) and session.last_run.dispatches == 0
        assert {p.provider for p in session.get_placement()} == {"cpu"} and session.get_providers() == [CPU]


def test_the_cpu_first_runs_everything() -> None:
    with webrt.InferenceSession(bias_model(), providers=[CPU, WEBGPU]) as session:
        assert {p.provider for p in session.get_placement()} == {"cpu"} and isinstance(session.device, NullDevice)


def test_mixed_placement_is_reported_and_can_be_forbidden(caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.parser.parse_model(MIXED)
    with caplog.at_level(logging.INFO, "webrt"), webrt.InferenceSession(model) as session:
        (y,) = session.run(None, {"x": X[0]})
        np.testing.assert_array_equal(y, np.abs(X[0]))
    (record,) = [r for r in caplog.records if r.name == "webrt"]
    assert record.levelno == logging.WARNING and "3 nodes on cpu" in record.message and "Cast: " in record.message
    with pytest.raises(webrt.PlacementError, match=r"3 nodes would run on the CPU.*Cast.*Neg"):
        webrt.InferenceSession(model, options(disable_cpu_ep_fallback="1"))
    with pytest.raises(webrt.PlacementError, match="add CPUExecutionProvider"):
        webrt.InferenceSession(model, providers=[WEBGPU])


@pytest.mark.parametrize(("severity", "levels"), [(0, ["WARNING"]), (2, ["WARNING"]), (3, []), (4, [])])
def test_messages_below_the_severity_are_not_logged(
    severity: int, levels: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = options()
    settings.log_severity_level = severity
    with caplog.at_level(logging.DEBUG, "webrt"):
        webrt.InferenceSession(onnx.parser.parse_model(MIXED), settings).close()
    assert [r.levelname for r in caplog.records if r.name == "webrt"] == levels


@pytest.mark.parametrize(("severity", "levels"), [(1, ["INFO"]), (2, [])])
def test_the_placement_is_information(severity: int, levels: list[str], caplog: pytest.LogCaptureFixture) -> None:
    settings = options()
    settings.log_severity_level = severity
    with caplog.at_level(logging.DEBUG, "webrt"):
        webrt.InferenceSession(bias_model(), settings, providers=[CPU]).close()
    assert [r.levelname for r in caplog.records if r.name == "webrt"] == levels


class _NoDevice:
    def __init__(self, **options: Any) -> None:
        raise webrt.NoAdapter("no WebGPU adapter was found")


def test_without_an_adapter(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(devices, "NativeDevice", _NoDevice)
    monkeypatch.setattr(devices, "_open", {})
    with pytest.raises(webrt.NoAdapter):
        webrt.InferenceSession(bias_model(), providers=[WEBGPU])
    with caplog.at_level(logging.INFO, "webrt"):
        asked = webrt.InferenceSession(bias_model(), providers=[WEBGPU, CPU])
        assert (
            caplog.records[0].levelno == logging.WARNING and "everything runs on the CPU" in caplog.records[0].message
        )
        caplog.clear()
        default = webrt.InferenceSession(bias_model())
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    for session in (asked, default):
        assert session.get_providers() == [CPU] == webrt.get_available_providers()
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X + 1, 0))


def test_a_plan_without_a_device_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "p.webrt"
    webrt.save_plan(webrt.compile_model(bias_model()), path)
    monkeypatch.setattr(devices, "NativeDevice", _NoDevice)
    monkeypatch.setattr(devices, "_open", {})
    words = "the plan's kernels need a WebGPU device: no WebGPU adapter was found; without one, load the .onnx"
    with caplog.at_level(logging.DEBUG, "webrt"):
        for providers in (None, [WEBGPU, CPU], [CPU, WEBGPU]):
            with pytest.raises(webrt.NoAdapter, match=words):
                webrt.InferenceSession(path, providers=providers)
    assert not caplog.records


def test_a_lost_device_is_opened_again() -> None:
    first = devices.open_device({"power_preference": "low-power"})
    assert isinstance(first, NativeDevice)
    first.close()
    second = devices.open_device({"power_preference": "low-power"})
    assert second is not first
    second.close()


@pytest.mark.parametrize(
    ("providers", "provider_options", "message"),
    [
        (["CUDAExecutionProvider"], None, "there is no provider 'CUDAExecutionProvider'; the providers are"),
        ([], None, "the provider list is empty"),
        ([(WEBGPU, {"warp": 9})], None, "has no option 'warp'"),
        ([WEBGPU], [{"power_preference": "none"}], "power_preference is"),
        ([WEBGPU, CPU], [{}], "2 providers and 1 provider_options"),
        (None, [{}], "provider_options were given without providers"),
    ],
)
def test_wrong_providers(providers: Any, provider_options: Any, message: str) -> None:
    with pytest.raises(webrt.InputError, match=message):
        webrt.InferenceSession(bias_model(), None, providers, provider_options)


def test_options_as_pairs_or_beside() -> None:
    for providers, beside in (([(WEBGPU, {"adapter": ""}), CPU], None), ([WEBGPU, CPU], [{"adapter": ""}, {}])):
        with webrt.InferenceSession(bias_model(), None, providers, beside) as session:
            assert session.get_provider_options() == {WEBGPU: {"adapter": ""}, CPU: {}}


def test_session_options() -> None:
    chosen = options(level=webrt.GraphOptimizationLevel.ORT_DISABLE_ALL, free={"N": 2}, compile_only="0")
    assert chosen.get_session_config_entry("session.compile_only") == "0"
    with pytest.raises(webrt.InputError, match="no session config entry 'nothing'"):
        chosen.get_session_config_entry("nothing")
    with pytest.raises(AttributeError):
        chosen.graph_optimisation_level = 0  # type: ignore[attr-defined]
    with webrt.InferenceSession(bias_model(), chosen) as session:
        assert session.get_session_options() is chosen
        assert session.get_inputs()[0].shape == [2, 3]
        session.run(None, {"x": X})
        with pytest.raises(webrt.InputError, match="axis 0 has size 3 .* 2 is expected"):
            session.run(None, {"x": np.zeros((3, 3), np.float32)})
    with pytest.raises(webrt.InputError, match="no input has a dim named 'Q'"):
        webrt.InferenceSession(bias_model(), options(free={"Q": 1}))
    with pytest.raises(webrt.InputError, match='is "0" or "1", not \'yes\''):
        webrt.InferenceSession(bias_model(), options(compile_only="yes"))


def test_compile_only_writes_both_files_and_does_not_run(tmp_path: Path) -> None:
    chosen = options(compile_only="1", plan_filepath=str(tmp_path / "bias.webrt"))
    chosen.optimized_model_filepath = tmp_path / "optimised.onnx"
    session = webrt.InferenceSession(bias_model(), chosen)
    assert isinstance(session.device, NullDevice) and session.get_placement()
    with pytest.raises(webrt.DeviceFreeError, match="only compiles"):
        session.run(None, {"x": X})
    expected = np.maximum(X + 1, 0)
    for name in ("bias.webrt", "optimised.onnx"):
        with webrt.InferenceSession(tmp_path / name) as again:
            np.testing.assert_array_equal(again.run(None, {"x": X})[0], expected)
    with webrt.InferenceSession((tmp_path / "bias.webrt").read_bytes()) as again:
        np.testing.assert_array_equal(again.run(None, {"x": X})[0], expected)
        with pytest.raises(webrt.InputError, match="cannot be compiled again"):
            again.run(None, {"x": X, "b": X[0]})


def test_a_plan_with_host_steps_obeys_the_providers(tmp_path: Path) -> None:
    path = tmp_path / "mixed.webrt"
    webrt.InferenceSession(onnx.parser.parse_model(MIXED), options(compile_only="1", plan_filepath=str(path)))
    with webrt.InferenceSession(path) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X[0]})[0], np.abs(X[0]))
    for settings, providers in ((options(disable_cpu_ep_fallback="1"), None), (None, [WEBGPU])):
        with pytest.raises(webrt.PlacementError, match="3 nodes for the CPU.*Cast"):
            webrt.InferenceSession(path, settings, providers)


def test_sequences_and_strings_stay_on_the_host() -> None:
    text = (
        HEAD
        + """(float[N] x, string[N] s) => (seq(float[N]) q, string[N] t)
        { q = SequenceConstruct(x, x)  t = Identity(s) }"""
    )
    with webrt.InferenceSession(onnx.parser.parse_model(text)) as session:
        assert [a.type for a in session.get_outputs()] == ["seq(tensor(float))", "tensor(string)"]
        q, t = session.run(None, {"x": X[0], "s": np.array(["a", "b", "c"])})
        assert [v.tolist() for v in q] == [X[0].tolist()] * 2 and t.tolist() == ["a", "b", "c"]
        (t,) = session.run(["t"], {"x": X[0], "s": np.array([b"a", "é".encode(), b"c"])})
        assert t.tolist() == ["a", "é", "c"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", webrt.InvalidModel),
        (b"not a model at all", webrt.InvalidModel),
        (bias_model().SerializeToString()[:-9], webrt.InvalidModel),
        (b"\x10\0\0\0\0\0\0\0{" + bytes(40), webrt.PlanError),
    ],
)
def test_bad_files(data: bytes, error: type[Exception], tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    for source in (data, path):
        with pytest.raises(error):
            webrt.InferenceSession(source)
    with pytest.raises(webrt.InvalidModel, match="nowhere"):
        webrt.InferenceSession(tmp_path / "nowhere.onnx")
    with pytest.raises(webrt.PlanError, match="nowhere"):
        webrt.InferenceSession(tmp_path / "nowhere.webrt")


def test_errors_name_the_file_and_the_node(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(onnx.ModelProto(producer_name="tests").SerializeToString())
    with pytest.raises(webrt.InvalidModel, match=r"empty\.onnx is no ONNX model: it has no graph"):
        webrt.InferenceSession(path)
    model = onnx.parser.parse_model(HEAD + "(float[N] x) => (float[N] y) { y = Foo(x) }")
    model.graph.node[0].name = "my foo"
    with pytest.raises(webrt.UnsupportedOp, match=r"Foo, node 'my foo': ONNX has no such operator at opset 17"):
        webrt.InferenceSession(model)


@pytest.mark.parametrize(
    "damage",
    [
        {"meta": {"overridable": 7}},
        {"meta": {"custom_metadata_map": 1.5}},
        {"meta": {"version": None}},
        {"meta": None},
        {"dims": ()},
        {"placement": (PlacedNode("n", "Relu", {}, "kernel"),)},  # type: ignore[arg-type]
    ],
)
def test_a_plan_damaged_where_a_session_reads_it_first(damage: dict[str, Any]) -> None:
    plan = webrt.compile_model(onnx.parser.parse_model(BIAS))
    data = planfile.dump(replace(plan, **damage))
    with pytest.raises(webrt.PlanError):
        webrt.InferenceSession(data)


def python(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_importing_webrt_imports_nothing_heavy() -> None:
    code = "import sys, webrt; webrt.SessionOptions; print([m for m in ('numpy', 'onnx', 'wgpu') if m in sys.modules])"
    assert python(code) == "[]\n"
    assert set(webrt.__all__) <= set(dir(webrt))
    for name in webrt.__all__:
        assert getattr(webrt, name) is not None


def test_compile_only_loads_no_gpu_library(tmp_path: Path) -> None:
    path = tmp_path / "bias.onnx"
    path.write_bytes(bias_model().SerializeToString())
    code = """import sys, webrt
options = webrt.SessionOptions()
options.add_session_config_entry("session.compile_only", "1")
options.add_session_config_entry("session.plan_filepath", sys.argv[2])
webrt.InferenceSession(sys.argv[1], options)
maps = open("/proc/self/maps").read().lower() if sys.platform == "linux" else ""
names = "vulkan", "wgpu", "libegl", "libgl."
print([m for m in sys.modules if m.startswith("wgpu")], [n for n in names if n in maps])"""
    assert python(code, str(path), str(tmp_path / "bias.webrt")) == "[] []\n"


def test_running_a_plan_imports_no_onnx_and_prints_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bias.webrt"
    webrt.InferenceSession(bias_model(), options(compile_only="1", plan_filepath=str(path)))
    code = """import sys, webrt, numpy
session = webrt.InferenceSession(sys.argv[1])
session.run(None, {"x": numpy.zeros((2, 3), "float32")})
heavy = "onnx", "onnx_ir", "webrt.ops", "webrt.host", "webrt.compiler"
print([m for m in heavy if m in sys.modules])"""
    assert python(code, str(path)) == "[]\n"
