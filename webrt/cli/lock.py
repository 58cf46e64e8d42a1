"""Writes the lock file that names exactly a site's wheels, with the tools that Pyodide has for it.

On Python 3.12 and newer that is the package pyodide-lock, if installed; otherwise `micropip.freeze()`, run inside
Pyodide in headless Chromium. Either way the checksums and dependencies in the file are checked against the wheels.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from webrt.cli import assets, chromium
from webrt.errors import WebrtError

_FREEZE = """async (wheels) => {
  const { loadPyodide } = await import(`${location.origin}/pyodide.mjs`);
  const pyodide = await loadPyodide({ packages: ["micropip"], checkIntegrity: false });
  pyodide.globals.set("wheels", wheels.map((name) => `${location.origin}/${name}`));
  return await pyodide.runPythonAsync(`
import micropip
await micropip.install(wheels.to_py(), deps=False)
micropip.freeze()`);
}"""


def write_lock(path: Path, wheels: list[Path], progress: assets.Progress) -> str:
    """Writes `path`, a pyodide-lock.json whose packages are `wheels`, all in the lock's own folder at run time.

    Returns the name of the tool that made it. A lock of the same wheels is taken from the cache. Raises WebrtError when
    neither tool is there, or when what it wrote does not fit the wheels.
    """
    kept = assets.cache_dir() / f"lock-{_key(wheels)}.json"
    tool = "the cache"
    if not kept.is_file():
        packages, tool = _packages(wheels, progress)
        text = json.dumps({"info": assets.catalog().info, "packages": packages}, indent=1, sort_keys=True)
        part = kept.with_suffix(".part")
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(kept)
    shutil.copyfile(kept, path)
    return tool


def _key(wheels: list[Path]) -> str:
    """A digest of what the lock depends on: Pyodide's version and the wheels' names and contents."""
    digest = hashlib.sha256(assets.catalog().version.encode())
    for wheel in sorted(wheels):
        digest.update(f"{wheel.name} {assets.sha256_of(wheel)}\n".encode())
    return digest.hexdigest()[:16]


def _packages(wheels: list[Path], progress: assets.Progress) -> tuple[dict[str, Any], str]:
    found = _by_pyodide_lock(wheels)
    tool = "pyodide-lock"
    if found is None:
        found, tool = _by_micropip(wheels, progress), "micropip.freeze()"
    by_name = {_canonical(wheel.name.split("-")[0]): wheel for wheel in wheels}
    packages = {name: package | {"file_name": by_name[name].name} for name, package in found.items() if name in by_name}
    if missing := by_name.keys() - packages.keys():
        raise WebrtError(f"the lock file written by {tool} lacks {', '.join(sorted(missing))}")
    for name, package in packages.items():
        if package["sha256"] != assets.sha256_of(by_name[name]):
            raise WebrtError(f"the lock file written by {tool} has another sha256 for {by_name[name].name}")
        if unknown := set(package["depends"]) - packages.keys():
            raise WebrtError(f"{by_name[name].name} depends on {', '.join(sorted(unknown))}, which the site lacks")
    return packages, tool


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _by_pyodide_lock(wheels: list[Path]) -> dict[str, Any] | None:
    """The packages as pyodide-lock describes them; None where it is not installed or Python is too old for it."""
    if sys.version_info < (3, 12):
        return None
    try:
        from pyodide_lock import PyodideLockSpec
        from pyodide_lock.utils import add_wheels_to_spec
    except ImportError:
        return None
    empty = PyodideLockSpec.from_dict({"info": assets.catalog().info, "packages": {}})
    try:
        packages: dict[str, Any] = add_wheels_to_spec(empty, wheels).to_dict()["packages"]
    except RuntimeError as error:
        raise WebrtError(f"pyodide-lock refuses the wheels: {error}") from error
    return packages


def _by_micropip(wheels: list[Path], progress: assets.Progress) -> dict[str, Any]:
    """Installs the wheels in a Pyodide in headless Chromium and returns the packages of `micropip.freeze()`."""
    catalog = assets.catalog()
    [micropip] = assets.fetch(catalog.group("build"), progress).values()
    core = assets.fetch(catalog.group("core"), progress)
    progress("Writing the lock file", 0, 1)
    with tempfile.TemporaryDirectory(prefix="webrt-lock-") as temporary:
        folder = Path(temporary)
        for path in [*core.values(), micropip, *wheels]:
            shutil.copyfile(path, folder / path.name)
        start = {"info": catalog.info, "packages": {"micropip": _entry("micropip", micropip)}}
        (folder / "pyodide-lock.json").write_text(json.dumps(start), encoding="utf-8")
        (folder / "index.html").write_text("<!doctype html><title>lock</title>", encoding="utf-8")
        text = _evaluate(folder, [wheel.name for wheel in wheels])
    progress("Writing the lock file", 1, 1)
    packages: dict[str, Any] = json.loads(text)["packages"]
    return packages


def _entry(name: str, wheel: Path) -> dict[str, Any]:
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


def _evaluate(folder: Path, names: list[str]) -> str:
    with chromium.serve(folder) as base, chromium.launch() as browser:
        from playwright.sync_api import Error

        page = browser.new_page()
        try:
            page.goto(base)
            return str(page.evaluate(_FREEZE, names))
        except Error as error:
            raise WebrtError(f"micropip.freeze() failed in Chromium: {error.message}") from error
