"""A build from the source tree: one pure wheel, with the WGSL bodies and the page inside; resources are found in every
kind of install; what `webrt site` adds to it. The wheels that are released: test_wheels.py."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from webrt import resources
from webrt.cli import lock, ml_dtypes_stand_in, site
from webrt.cli.wheel_file import write_wheel
from webrt.errors import WebrtError

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1_000_000

pytestmark = pytest.mark.xdist_group("packaging")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _data_files(folder: str) -> dict[str, bytes]:
    paths = [path for path in (ROOT / folder).rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {f"webrt/_data/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in paths}


def test_wheel_is_pure_and_small(built: Path) -> None:
    assert built.name.endswith("-py3-none-any.whl")
    assert built.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("folder", ["shaders", "web"])
def test_wheel_holds_the_data_folder(built: Path, folder: str) -> None:
    expected = _data_files(folder)
    assert expected, f"{folder}/ is empty"
    assert expected.items() <= _files(built).items()


def test_wheel_needs_numpy_and_onnx_only(built: Path) -> None:
    [metadata] = [data.decode() for name, data in _files(built).items() if name.endswith("/METADATA")]
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.MULTILINE)
    assert sorted(needed) == ["numpy", "onnx"]
    assert not re.search(r"^\s*(import|from) sympy", str(_files(built)), re.MULTILINE)


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_resources_are_found(built: Path, tmp_path: Path, kind: str) -> None:
    environment = dict(os.environ)
    home = ROOT
    if kind == "wheel":
        home = tmp_path / "lib"
        zipfile.ZipFile(built).extractall(home)
        environment["PYTHONPATH"] = str(home)
    script = "from webrt import resources as r; print(r.web_dir()); print(r.data_dir('shaders'))"
    command = [sys.executable, "-c", script]
    lines = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    for line in lines.splitlines():
        assert Path(line).is_relative_to(home) and Path(line).is_dir()


def test_shader_text_stays_inside_its_folder() -> None:
    assert resources.shader_text("lib/index") == (ROOT / "shaders/lib/index.wgsl").read_text(encoding="utf-8")
    for name in ("no_such_kernel", "../pyproject.toml", "/etc/passwd", "../web/index"):
        with pytest.raises(WebrtError, match="no WGSL body"):
            resources.shader_path(name)


def test_stand_in_has_every_type_that_onnx_names() -> None:
    package = Path(onnx.__file__).parent
    sources = [package / "_mapping.py", package / "numpy_helper.py"]
    named = {name for source in sources for name in re.findall(r"\bml_dtypes\.(\w+)", source.read_text())}
    assert {"bfloat16", "int4"} <= named
    for name in sorted(named - {"finfo", "iinfo"}):
        stand_in = getattr(ml_dtypes_stand_in, name)
        assert stand_in.itemsize == np.dtype(getattr(ml_dtypes, name)).itemsize, name
    types = [getattr(ml_dtypes_stand_in, name) for name in named - {"finfo", "iinfo"}]
    assert len(set(types)) == len(types)


def test_lock_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "some", "1.0", {"some.py": b""})
    package = {"name": "some", "sha256": "0" * 64, "depends": [], "file_name": wheel.name}
    with pytest.raises(WebrtError, match=r"another sha256 for some-1\.0"):
        lock._checked({"some": package}, [wheel])
    with pytest.raises(WebrtError, match="lacks some"):
        lock._checked({}, [wheel])


def test_site_is_not_made_over_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(WebrtError, match="not made by `webrt site`"):
        site.build_site(tmp_path / "mine")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


@pytest.mark.parametrize(
    ("folder", "why"),
    [("file/out", "{}/file is no folder"), ("file/deep/out", "nothing can be made in {}/file \\(Not a directory\\)")],
)
def test_a_site_that_cannot_be_made_says_why(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WebrtError, match=f"{folder} cannot be made: {why.format(tmp_path)}; choose another"):
        site.build_site(tmp_path / folder)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux has a folder in which nobody may make one")
def test_a_site_where_nothing_can_be_made_says_so() -> None:
    with pytest.raises(
        WebrtError, match=r"the folder /proc/out cannot be made: nothing can be made in /proc \(No such"
    ):
        site.build_site(Path("/proc/out"))


def test_failed_site_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*groups: str, **rest: object) -> list[Path]:
        raise WebrtError("no source has it")

    monkeypatch.setattr("webrt.cli.assets.fetch_groups", fail)
    with pytest.raises(WebrtError, match="no source has it"):
        site.build_site(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_repository_names_no_registry_host() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    hosts = re.compile(r"pypi\.(org|python)|pythonhosted\.|registry\.npmjs|deb\.debian|unpkg\.")
    guilty = []
    for name in listed.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix not in (".png", ".onnx", ".webrt", ".npz") and path != Path(__file__):
            guilty += [name] if hosts.search(path.read_text(encoding="utf-8", errors="replace")) else []
    assert guilty == []


def test_command_is_declared() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="webrt")
    assert [script.value for script in scripts] == ["webrt.cli:main"]
