"""Writes the lock file that names exactly a site's wheels, with the tools that Pyodide has for it.

On Python 3.12 and newer that is the package pyodide-lock, if installed; otherwise `micropip.freeze()`, run inside
Pyodide in headless Chromium. Either way the checksums and dependencies in the file are checked against the wheels.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from webrt.cli import assets, chromium
from webrt.errors import WebrtError

_KEPT = 16
_FREEZE = """async ([packages, wheels]) => {
  const { loadPyodide } = await import(`${location.origin}/pyodide.mjs`);
  const pyodide = await loadPyodide({ packages });
  pyodide.globals.set("wheels", wheels.map((name) => `${location.origin}/${name}`));
  return await pyodide.runPythonAsync(`
import micropip
await micropip.install(wheels.to_py(), deps=False)
micropip.freeze()`);
}"""


def write_lock(path: Path, wheels: list[Path], progress: assets.Progress) -> None:
    """Writes `path`, a pyodide-lock.json whose packages are `wheels`, all in the lock's own folder at run time.

    A lock of the same wheels is taken from the cache. Raises WebrtError when there is neither tool, or when what it
    wrote does not fit the wheels.
    """
    folder = assets.cache_dir()
    kept = folder / f"lock-{_key(wheels)}.json"
    make = _by_pyodide_lock if _has_pyodide_lock() else _by_micropip
    parts = [] if make is _by_pyodide_lock else assets.fetch_groups("core", "build", progress=progress)
    with assets.locked(folder):
        if not kept.is_file():
            progress("Writing the lock file", 0, 1)
            found = {"info": assets.catalog().info, "packages": _checked(make(wheels, parts), wheels)}
            assets.keep(kept, json.dumps(found, indent=1, sort_keys=True) + "\n", _KEPT)
            progress("Writing the lock file", 1, 1)
    shutil.copyfile(kept, path)


def _key(wheels: list[Path]) -> str:
    """A digest of what the lock depends on: Pyodide's version and the wheels' names and contents."""
    digest = hashlib.sha256(assets.catalog().version.encode())
    for wheel in sorted(wheels):
        digest.update(f"{wheel.name} {assets.sha256_of(wheel)}\n".encode())
    return digest.hexdigest()[:16]


def _checked(found: dict[str, Any], wheels: list[Path]) -> dict[str, Any]:
    """The found packages that are in `wheels`, with plain file names, after checking them against the files."""
    by_name = {_canonical(wheel.name.split("-")[0]): wheel for wheel in wheels}
    packages = {
        name: package | {"file_name": by_name[name].name, "package_type": "package", "imports": _imports(by_name[name])}
        for name, package in found.items()
        if name in by_name
    }
    if missing := by_name.keys() - packages.keys():
        raise WebrtError(f"the lock file lacks {', '.join(sorted(missing))}")
    for name, package in packages.items():
        if package["sha256"] != assets.sha256_of(by_name[name]):
            raise WebrtError(f"the lock file has another sha256 for {by_name[name].name}")
        if unknown := set(package["depends"]) - packages.keys():
            raise WebrtError(f"{by_name[name].name} depends on {', '.join(sorted(unknown))}, which the site lacks")
    return packages


def _imports(wheel: Path) -> list[str]:
    """The modules and packages at the wheel's top: Pyodide's loadPackagesFromImports looks for them."""
    with zipfile.ZipFile(wheel) as archive:
        sources = [name for name in archive.namelist() if name.endswith(".py")]
    return sorted({name.split("/")[0].removesuffix(".py") for name in sources})


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _has_pyodide_lock() -> bool:
    """Whether pyodide-lock is installed on a Python for which it reads today's locks."""
    return sys.version_info >= (3, 12) and importlib.util.find_spec("pyodide_lock") is not None


def _by_pyodide_lock(wheels: list[Path], parts: list[Path]) -> dict[str, Any]:
    """The packages as pyodide-lock describes the wheels."""
    from pyodide_lock import PyodideLockSpec
    from pyodide_lock.utils import add_wheels_to_spec

    start = PyodideLockSpec.from_dict(_start(wheels))
    added = [wheel for wheel in wheels if not _is_pyodides(wheel)]
    try:
        packages: dict[str, Any] = add_wheels_to_spec(start, added).to_dict()["packages"]
    except (RuntimeError, ImportError) as error:
        raise WebrtError(f"pyodide-lock cannot describe the wheels: {error}") from error
    return packages


def _by_micropip(wheels: list[Path], parts: list[Path]) -> dict[str, Any]:
    """Installs the wheels in a Pyodide (`parts`: its core and micropip) and returns what `micropip.freeze()` lists."""
    with tempfile.TemporaryDirectory(prefix="webrt-lock-") as temporary:
        folder = Path(temporary)
        for path in [*parts, *wheels]:
            shutil.copyfile(path, folder / path.name)
        start = _start([*parts, *wheels])
        (folder / "pyodide-lock.json").write_text(json.dumps(start), encoding="utf-8")
        (folder / "index.html").write_text("<!doctype html><title>lock</title>", encoding="utf-8")
        added = [wheel.name for wheel in wheels if not _is_pyodides(wheel)]
        frozen = json.loads(chromium.evaluate(folder, _FREEZE, [[*start["packages"]], added]))
    return dict(frozen["packages"])


def _is_pyodides(wheel: Path) -> bool:
    """Whether the wheel is one of Pyodide's own distribution, which its tools take from a lock and do not add."""
    asset = assets.catalog().assets.get(wheel.name)
    return asset is not None and asset.cdn


def _start(files: list[Path]) -> dict[str, Any]:
    """A lock of those files that are Pyodide's own wheels, none of which depends on another package."""
    own = [file for file in files if file.suffix == ".whl" and _is_pyodides(file)]
    return {"info": assets.catalog().info, "packages": {_canonical(w.name.split("-")[0]): _entry(w) for w in own}}


def _entry(wheel: Path) -> dict[str, Any]:
    name = wheel.name.split("-")[0]
    return {
        "name": name,
        "version": wheel.name.split("-")[1],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": assets.sha256_of(wheel),
        "package_type": "package",
        "imports": [name],
        "depends": [],
        "unvendored_tests": False,
    }
