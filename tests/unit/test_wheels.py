"""The two wheels that are released and that pages load: their sizes, files and metadata, and what one of them does."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from webrt import parts
from webrt.cli import main, wheels
from webrt.cli.wheel_file import write_wheel

MOST_BYTES = 300_000
PLAN = Path(__file__).with_name("plan_v1.webrt")

pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    run, compiler = wheels.own_wheels(tmp_path_factory.mktemp("dist"))
    return run, compiler


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _metadata(wheel: Path) -> dict[str, list[str]]:
    [text] = [data.decode() for name, data in _files(wheel).items() if name.endswith("/METADATA")]
    message = HeaderParser().parsestr(text)
    return {key: [str(v) for v in message.get_all(key, [])] for key in message}


def test_the_wheel_that_runs_plans_is_small(both: tuple[Path, Path]) -> None:
    assert [path.name.split("-")[0] for path in both] == ["webrt", "webrt_compiler"]
    assert both[0].stat().st_size < MOST_BYTES


def test_every_file_is_in_exactly_one_wheel(both: tuple[Path, Path]) -> None:
    run, compiler = ({n: d for n, d in _files(w).items() if n.startswith("webrt/")} for w in both)
    assert not run.keys() & compiler.keys()
    assert run | compiler == wheels.own_files()
    assert {"webrt/cli/main.py", "webrt/runtime/native.py", "webrt/_data/web/player.js"} <= run.keys()
    assert {"webrt/cli/compile.py", "webrt/_data/web/index.html"} <= compiler.keys()


def test_every_name_of_the_list_is_there() -> None:
    files = wheels.own_files()
    for start in (*wheels._COMPILES, *wheels._RUNS_IN_PAGES):
        assert any(name.startswith(start) for name in files), start


def test_metadata(both: tuple[Path, Path]) -> None:
    run, compiler = map(_metadata, both)
    version = importlib.metadata.version("webrt")
    assert (run["Name"], compiler["Name"]) == (["webrt"], [parts.COMPILER])
    assert run["Version"] == compiler["Version"] == [version]
    assert run["Requires-Python"] == compiler["Requires-Python"] == [">=3.11"]
    assert sorted(run["Provides-Extra"]) == ["compile", "native"] and "Provides-Extra" not in compiler
    assert run["Requires-Dist"] == [
        'numpy>=1.26; sys_platform != "emscripten"',
        f'webrt-compiler=={version}; extra == "compile"',
        'wgpu>=0.32; extra == "native"',
    ]
    assert compiler["Requires-Dist"] == [f"webrt=={version}", "numpy>=1.26", "onnx>=1.18"]
    scripts = [data for name, data in _files(both[0]).items() if name.endswith("/entry_points.txt")]
    assert scripts == [b"[console_scripts]\nwebrt = webrt.cli:main\n"]
    for wheel in both:
        [text] = [data for name, data in _files(wheel).items() if name.endswith("/licenses/LICENSE")]
        assert b"Apache License" in text


def _imports(tree: ast.AST, late: bool = False) -> Iterator[tuple[str, bool]]:
    """Modules of webrt that code imports, as they are written, and whether only once a function is called."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "webrt":
            yield from ((f"{node.module}.{a.name}", late) for a in node.names)
        elif isinstance(node, ast.Import):
            yield from ((a.name, late) for a in node.names if a.name.split(".")[0] == "webrt")
        else:
            yield from _imports(node, late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_what_runs_plans_imports_the_rest_only_where_it_asked_for_it(both: tuple[Path, Path]) -> None:
    """No module of `webrt` needs one of `webrt-compiler` to be imported; those that import one later say so first."""
    run, every = _files(both[0]), wheels.own_files()
    modules = {n.removesuffix(".py").removesuffix("/__init__").replace("/", "."): n for n in every if n.endswith(".py")}
    asking = set()
    for name, data in run.items():
        for found, late in _imports(ast.parse(data)) if name.endswith(".py") else ():
            file = modules.get(found) or modules[found.rpartition(".")[0]]
            assert file in run or late, f"{name} imports {file}"
            asking |= {name} if file not in run else set()
    guarded = {"webrt/loading.py", "webrt/cli/inspect.py"}
    assert asking - guarded == {"webrt/cli/options.py", "webrt/signature.py"}, "only called by those that asked"
    assert all("parts.need(" in run[name].decode() for name in guarded)


def test_wheels_are_reproducible_and_record_every_file(both: tuple[Path, Path], tmp_path: Path) -> None:
    for first, second in zip(both, wheels.own_wheels(tmp_path), strict=True):
        assert first.read_bytes() == second.read_bytes()
        files = _files(first)
        [record] = [name for name in files if name.endswith(".dist-info/RECORD")]
        rows = {row[0]: row[1:] for row in csv.reader(files[record].decode().splitlines())}
        assert rows.keys() == files.keys() and rows[record] == ["", ""]
        for name in files.keys() - {record}:
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert rows[name] == [f"sha256={digest}", str(len(files[name]))]


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    first = write_wheel(tmp_path, "some", "1.0", {"some/__init__.py": b"x = 1\n", "some/a.txt": b"a"})
    kept = first.read_bytes()
    assert write_wheel(tmp_path, "some", "1.0", {"some/a.txt": b"a", "some/__init__.py": b"x = 1\n"}) == first
    assert first.read_bytes() == kept


def test_the_command_writes_them(tmp_path: Path, both: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main([str(tmp_path / "dist")]) == 0
    assert [p.read_bytes() for p in sorted((tmp_path / "dist").iterdir())] == [p.read_bytes() for p in both]
    assert f"{both[0].stat().st_size} bytes" in capsys.readouterr().out


def _install(folder: Path, *built: Path) -> dict[str, str]:
    """Installs wheels in a folder that Python then looks into first; returns the environment for it."""
    asked = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run([*asked, "--target", str(folder), *map(str, built)], check=True)
    return {**os.environ, "PYTHONPATH": str(folder)}


def _python(environment: dict[str, str], folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run_only(both: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return _install(tmp_path_factory.mktemp("run"), both[0])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = relu(x), float32[2]."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_one_wheel_runs_a_plan_natively(run_only: dict[str, str], model: Path, tmp_path: Path) -> None:
    assert main(["compile", str(model), "-o", str(tmp_path / "m.webrt")]) == 0
    command = ["-m", "webrt.cli", "run", "m.webrt", "--input", "x=[-1, 2]", "--output", "y.npz"]
    done = _python(run_only, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], np.array([0, 2], np.float32))


def test_one_wheel_inspects_a_plan_and_lists_the_commands(run_only: dict[str, str], tmp_path: Path) -> None:
    done = _python(run_only, tmp_path, "-m", "webrt.cli", "inspect", str(PLAN))
    assert done.returncode == 0 and "placement" in done.stdout, done.stderr
    listed = _python(run_only, tmp_path, "-m", "webrt.cli", "--help").stdout
    assert "(with webrt-compiler)" in listed and "runs a model or a plan" in listed


@pytest.mark.parametrize("command", ["compile", "run", "inspect", "bench", "site", "sandbox-status"])
def test_one_wheel_says_which_package_the_rest_needs(run_only: dict[str, str], model: Path, command: str) -> None:
    done = _python(run_only, model.parent, "-m", "webrt.cli", command, "m.onnx")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = [line for line in done.stderr.splitlines() if not line.endswith("…")]
    assert line.startswith(f"webrt {command}: ") and line.endswith("not installed: pip install webrt-compiler"), line


def test_one_wheel_says_so_in_python_too(run_only: dict[str, str], model: Path) -> None:
    script = """
import webrt
for attempt in (lambda: webrt.InferenceSession("m.onnx"), lambda: webrt.compile_model("m.onnx")):
    try:
        attempt()
    except webrt.WebrtError as e:
        print(e)
"""
    done = _python(run_only, model.parent, "-c", script)
    assert [line.endswith("pip install webrt-compiler") for line in done.stdout.splitlines()] == [True] * 2, done


def test_one_wheel_needs_no_other_package_to_read_a_plan(run_only: dict[str, str], tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules |= dict.fromkeys(["numpy", "onnx", "google.protobuf", "wgpu"])
import webrt, webrt.inference, webrt.runtime.profile, webrt.resources
print((webrt.resources.web_dir() / "player" / "pyodide.js").is_file(), len(webrt.load_plan({str(PLAN)!r}).steps) > 0)
sys.platform = "emscripten"
try:
    webrt.InferenceSession(b"model", providers=["CPUExecutionProvider"])
except webrt.PlacementError as e:
    print(e)
"""
    done = _python(run_only, tmp_path, "-S", "-c", script)
    assert done.returncode == 0, done.stderr
    first, told = done.stdout.splitlines()
    assert first == "True True" and "loadPackage('webrt-compiler')" in told


def test_both_wheels_compile_and_write_the_same_wheels(both: tuple[Path, Path], model: Path) -> None:
    environment = _install(model.parent / "lib", *both)
    done = _python(environment, model.parent, "-m", "webrt.cli", "compile", "m.onnx")
    assert done.returncode == 0 and (model.parent / "m.webrt").is_file(), done.stderr
    done = _python(environment, model.parent, "-m", "webrt.cli.wheels", "again")
    assert done.returncode == 0, done.stderr
    assert [p.read_bytes() for p in sorted((model.parent / "again").iterdir())] == [p.read_bytes() for p in both]
