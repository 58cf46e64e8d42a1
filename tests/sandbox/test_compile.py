"""Models compiled in the confined worker: the same bytes as in this process, the same errors, nothing opened."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnx.parser
import pytest

from benchmarks.models import public_model, table
from webrt import planfile as plans
from webrt import sandbox
from webrt.compiler.compile import compile_model
from webrt.compiler.options import CompileOptions
from webrt.confine import NAMES, Layer, parent
from webrt.confine.parent import Worker
from webrt.errors import (
    ExternalDataError,
    InputError,
    InvalidModel,
    NotConstant,
    PlacementError,
    SandboxError,
    UnsupportedOp,
    WebrtError,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the layers exist on Linux only")
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
AUDITED = Path(__file__).with_name("audited.py")
SMALL = """
<ir_version: 10, opset_import: ["" : 20]>
small (float[N, 4] x, float[4] w) => (float[N, 4] y) { y = Mul(x, w) }
"""
CONTROL = """
<ir_version: 10, opset_import: ["" : 20]>
control (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
<int64 trips = {3}, bool yes = {1}, float zero = {0}>
{
    sum = ReduceSum <keepdims = 0> (x)
    more = Greater(sum, zero)
    y = If (more) <
        then_branch = yes_branch () => (float[N, 4] a) { a = Relu(x) },
        else_branch = no_branch () => (float[N, 4] b) { b = Neg(x) }
    >
    z = Loop (trips, yes, x) <
        body = step (int64 i, bool go, float[N, 4] s) => (bool on, float[N, 4] t) { on = Identity(go) t = Add(s, x) }
    >
}
"""


def small() -> bytes:
    return bytes(onnx.parser.parse_model(SMALL).SerializeToString())


def with_external(location: str) -> bytes:
    """The small model with its `w` as an initializer of 16 bytes at `location`."""
    model = onnx.parser.parse_model(SMALL)
    del model.graph.input[1]
    w = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4])
    w.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "4"), ("length", "16")):
        w.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())


class Heard(Worker):
    """A worker with an audit hook, kept for the test to look at."""

    last: Heard

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more, command=[sys.executable, "-P", "-X", "utf8", str(AUDITED)])
        Heard.last = self


def check(source: bytes | Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both plans and both optimised models are the same bytes; nothing was opened or loaded after the lock."""
    monkeypatch.setattr(sandbox, "Worker", Heard)
    made = sandbox.compile(source, wants=("plan", "onnx"), require=True)
    models: list[bytes] = []
    here = compile_model(source, CompileOptions(optimized=models.append))
    assert made.plan == plans.dump(here) and made.onnx == models[-1]
    assert made.placement == here.placement
    report = json.loads(b"".join(Heard.last.last_words))
    assert report == {"events": [], "gpu": []}


@LINUX
def test_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    check(small(), monkeypatch)


@LINUX
def test_control_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    check(bytes(onnx.parser.parse_model(CONTROL).SerializeToString()), monkeypatch)


LARGE = ("light_bvlc_alexnet", "light_vgg19", "light_zfnet512")


@LINUX
@pytest.mark.parametrize(
    "name",
    [pytest.param(p.stem, marks=[pytest.mark.long] if p.stem != "light_squeezenet" else [])
     for p in sorted(LIGHT.glob("*.onnx")) if p.stem not in LARGE],
)  # fmt: skip
def test_light(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(LIGHT / f"{name}.onnx", monkeypatch)


@LINUX
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n != "ppocrv4_rec" else []) for n in table()]
)
def test_public(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = public_model(name).path
    try:
        compile_model(path)
    except NotConstant as e:
        with pytest.raises(NotConstant) as caught:
            sandbox.compile(path)
        assert caught.value.roots == e.roots
    else:
        check(path, monkeypatch)


def test_options_reach_the_worker() -> None:
    w = np.array([1, 2, 3, 4], np.float32)
    options = CompileOptions(known_inputs={"w": w}, free_dims={"N": 2}, providers=("cpu",), level="basic")
    assert sandbox.compile(small(), options).plan == plans.dump(compile_model(small(), options))


def test_progress_is_told() -> None:
    told: dict[str, list[tuple[str, int, int]]] = {"here": [], "there": []}
    for where, compiler in (("here", compile_model), ("there", sandbox.compile)):
        compiler(small(), CompileOptions(progress=lambda *stage, w=where: told[w].append(stage)))
    assert told["here"] == told["there"] != []


@pytest.mark.parametrize("location", ["w.bin", "gone.bin", "../w.bin", "short.bin", "link.bin", "folder"])
def test_external_data_by_the_same_rules(location: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(bytes(20))
    (inside / "w.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    (inside / "short.bin").write_bytes(bytes(8))
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    (inside / "m.onnx").write_bytes(with_external(location))
    if location == "w.bin":
        assert sandbox.compile(inside / "m.onnx").plan == plans.dump(compile_model(inside / "m.onnx"))
        return
    same_error(inside / "m.onnx", ExternalDataError)


def test_external_data_as_bytes() -> None:
    options = CompileOptions(external_data={"w.bin": bytes(20)})
    data = with_external("w.bin")
    assert sandbox.compile(data, options).plan == plans.dump(compile_model(data, options))
    same_error(data, ExternalDataError)


def same_error(source: bytes | Path, kind: type[WebrtError], options: CompileOptions | None = None) -> None:
    with pytest.raises(kind) as here:
        compile_model(source, options)
    with pytest.raises(kind) as there:
        sandbox.compile(source, options)
    assert type(there.value) is type(here.value) and str(there.value) == str(here.value)
    for name in ("what", "node", "op", "opset", "inputs", "wanted", "roots"):
        assert getattr(there.value, name, None) == getattr(here.value, name, None)


def unknown_operator() -> bytes:
    return small().replace(b"Mul", b"Fly")


@pytest.mark.parametrize(
    ("source", "kind", "options"),
    [
        (b"", InvalidModel, None),
        (b"This is no model.", InvalidModel, None),
        (Path("/nowhere/m.onnx"), InvalidModel, None),
        (unknown_operator(), UnsupportedOp, None),
        (small(), InputError, CompileOptions(free_dims={"M": 1})),
        (small(), PlacementError, CompileOptions(strict=True, providers=("cpu",))),
    ],
    ids=["empty", "text", "missing", "operator", "dim", "strict"],
)
def test_errors_are_the_same(source: bytes | Path, kind: type[WebrtError], options: CompileOptions | None) -> None:
    same_error(source, kind, options)


@LINUX
def test_out_of_memory_and_out_of_time() -> None:
    model = onnx.parser.parse_model(SMALL)
    big = onnx.numpy_helper.from_array(np.zeros((64 << 20,), np.float32), "unused")
    model.graph.initializer.append(big)
    with pytest.raises(SandboxError, match="out of memory"):
        sandbox.compile(model.SerializeToString(), limits=sandbox.Limits(memory=600 << 20))
    with pytest.raises(SandboxError, match="out of time"):
        sandbox.compile(small(), limits=sandbox.Limits(seconds=0.2))


def test_output_limit() -> None:
    with pytest.raises(SandboxError, match="too much output"):
        sandbox.compile(small(), limits=sandbox.Limits(output=2000))


def fake(*messages: tuple[str, bytes]) -> list[str]:
    """A command that says it is ready and then sends these messages, whatever it is told."""
    ready = json.dumps([{"name": n, "on": True, "detail": ""} for n in NAMES]).encode()
    code = "from webrt.confine import frames\nimport sys\n" + "".join(
        f"frames.send(1, {tag!r}, [{data!r}])\n" for tag, data in (("ready", ready), *messages)
    )
    return [sys.executable, "-P", "-c", code + "sys.stdin.read()"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([("plan", b"nonsense"), ("done", b'{"placement": [], "precision": {}}')], "breaks the rules"),
        ([("done", b'{"placement": [], "precision": {}}')], "returned no plan"),
        ([("plan", b""), ("done", b"{")], "no message"),
        ([("plan", b""), ("done", b'{"placement": [{"x": 1}], "precision": {}}')], "damaged placement"),
        ([("surprise", b"")], "nobody asked"),
        ([("onnx", b"")], "nobody asked"),
        ([("need", b'{"location": "x", "offset": -1}')], "cannot be"),
        ([("error", b'{"kind": "webrt", "class": "SystemExit", "what": "\\u001b[2J"}')], "the compiler failed: �"),
        ([("error", b"[]")], "wrong form"),
        ([("error", b'{"kind": "other", "what": "ValueError: x"}')], "the compiler failed: ValueError: x"),
        ([("error", b'{"kind": "refused", "what": "[Errno 1]"}')], "a call was refused"),
    ],
)
def test_a_worker_that_was_taken_over(
    messages: list[tuple[str, bytes]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "Worker", partial(Worker, command=fake(*messages)))
    with pytest.raises(SandboxError, match=text):
        sandbox.compile(small())


def test_missing_layers_warn_or_fail(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    real = Worker.layers
    gone = Layer("landlock", False, "not in this kernel")
    monkeypatch.setattr(Worker, "layers", lambda w: tuple(gone if x.name == "landlock" else x for x in real(w)))
    with pytest.raises(SandboxError, match="landlock: not in this kernel"):
        sandbox.compile(small(), require=True)
    with caplog.at_level(logging.WARNING, "webrt"):
        made = sandbox.compile(small())
    assert made.plan and gone in made.layers and "landlock: not in this kernel" in caplog.text


def test_a_worker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "Worker", partial(Worker, command=["/nowhere/python"]))
    with pytest.raises(SandboxError, match="cannot be started"):
        sandbox.compile(small())


def test_the_worker_has_the_import_path_of_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "only_here.py").write_text("print('found')")
    done = subprocess.run(parent.python("import only_here"), capture_output=True, text=True, check=True, env={})
    assert done.stdout == "found\n"


def test_the_parent_imports_neither_numpy_nor_onnx(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(small())
    code = (
        "import sys\nfrom webrt.cli import main\ncode = main(['compile', 'm.onnx', '--sandbox'])\n"
        "print('LOADED', [m for m in ('numpy', 'onnx', 'google.protobuf', 'wgpu') if m in sys.modules])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "LOADED []" in done.stdout.splitlines()


@LINUX
def test_status_names_every_layer() -> None:
    layers = sandbox.status()
    assert [layer.name for layer in layers] == list(NAMES)
    assert all(layer.detail for layer in layers)
