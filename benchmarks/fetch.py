"""The rivals of rivals.toml, fetched by npm and pip on demand into webrt's cache, and checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from webrt.cli.assets import Progress, cache_dir, sha256_of
from webrt.errors import WebrtError

TABLE = Path(__file__).with_name("rivals.toml")


def table() -> dict[str, Any]:
    """rivals.toml."""
    with TABLE.open("rb") as f:
        return tomllib.load(f)


def onnxruntime_web(progress: Progress) -> Path:
    """A folder with onnxruntime-web's modules. Raises WebrtError where npm is missing or gives something else."""
    entry = table()["onnxruntime-web"]
    folder = cache_dir() / entry["package"].replace("@", "-")
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise WebrtError("npm is not installed, which fetches onnxruntime-web")
    what = f"Fetching {entry['package']}"
    progress(what, 0, 1)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as name:
        _run([npm, "pack", "--silent", entry["package"], "--pack-destination", name])
        archive = Path(name, entry["file"])
        _check(archive, [entry["sha256"]])
        unpacked = Path(name, "dist")
        unpacked.mkdir()
        with tarfile.open(archive) as tar:
            for member in entry["members"]:
                source = tar.extractfile(member)
                if source is None:
                    raise WebrtError(f"{entry['package']} has no {member}")
                with source, (unpacked / Path(member).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        unpacked.rename(folder)
    progress(what, 1, 1)
    return folder


def onnxruntime_webgpu(progress: Progress) -> Path:
    """A Python interpreter that has onnxruntime-webgpu. Raises WebrtError where none can be had."""
    entry = table()["onnxruntime-webgpu"]
    folder = cache_dir() / entry["package"].replace("==", "-")
    python = folder / "bin" / "python"
    if python.exists():
        return python
    what = f"Fetching {entry['package']}"
    progress(what, 0, 1)
    base = find_python(entry["pythons"])
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as name:
        pip = [str(base), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "download", "--no-deps", "--only-binary=:all:", "--dest", name, entry["package"]])
        (wheel,) = Path(name).glob("*.whl")
        _check(wheel, entry["sha256"])
        _run([str(base), "-m", "venv", str(folder)])
        try:
            own = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
            _run([*own, "--no-deps", str(wheel), *entry["needs"]])
        except WebrtError:
            shutil.rmtree(folder)
            raise
    progress(what, 1, 1)
    return python


def find_python(versions: list[str]) -> Path:
    """An interpreter of one of these versions, from PATH or pyenv. Raises WebrtError."""
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in versions:
        on_path = shutil.which(f"python{version}")
        found = [Path(on_path)] if on_path else []
        found += sorted(roots.glob(f"{version}*/bin/python3"))
        for python in found:
            said = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False)
            if said.returncode == 0:
                return python
    raise WebrtError(f"there is no Python {' or '.join(versions)} on PATH or in pyenv, which onnxruntime-webgpu needs")


def _check(path: Path, allowed: list[str]) -> None:
    found = sha256_of(path)
    if found not in allowed:
        raise WebrtError(f"{path.name} has sha256 {found}, expected {' or '.join(allowed)}; it was not kept")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise WebrtError(f"{Path(command[0]).name} {command[1]} failed: {said or f'exit status {done.returncode}'}")
