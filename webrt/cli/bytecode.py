"""Adds bytecode to a site's archives, so that pages do not compile Python's own library and the packages at each start.

Compiled, in the site's own Pyodide in headless Chromium, are the modules that a page imports to run or to compile a
model. Their sources stay, for tracebacks; the bytecode is of the kind that is taken without a look at them (PEP 552).
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from webrt.cli import assets, chromium
from webrt.cli.wheel_file import write_zip

STDLIB = "python_stdlib.zip"
_KEPT = 4
_MISSING = "no Chromium here to compile the site's Python; its pages start a second or two later"
_COMPILE = """async ([info, wheels]) => {
  const { loadPyodide } = await import(`${location.origin}/pyodide.mjs`);
  const pyodide = await loadPyodide({ lockFileContents: JSON.stringify({ info, packages: {} }) });
  await pyodide.loadPackage(wheels.map((name) => `${location.origin}/${encodeURIComponent(name)}`));
  return await pyodide.runPythonAsync(`
import base64, json, posixpath, py_compile, sys
import numpy, webrt.inference, webrt.runtime.browser, webrt.compiler.page, webrt.host
roots = [posixpath.dirname(posixpath.dirname(package.__file__)) + "/" for package in (json, numpy)]
made = {}
for module in list(sys.modules.values()):
    origin = getattr(module.__spec__, "origin", None) or ""
    root = next((r for r in roots if origin.startswith(r) and origin.endswith(".py")), None)
    if root is not None:
        with open("/tmp/source.py", "w", encoding="utf-8", newline="") as file:
            file.write(module.__spec__.loader.get_source(module.__name__))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile("/tmp/source.py", "/tmp/made.pyc", origin, doraise=True, invalidation_mode=mode)
        with open("/tmp/made.pyc", "rb") as file:
            made[origin.removeprefix(root)] = base64.b64encode(file.read()).decode()
json.dumps([sys.implementation.cache_tag, made])`);
}"""


def add_bytecode(folder: Path, wheels: Sequence[Path], progress: assets.Progress) -> None:
    """Adds bytecode to Python's own library and the `wheels`, all of them in `folder`, beside Pyodide's core.

    What equal archives were given before is taken from the cache. Without Chromium a line says so, and all stays as it
    is. Raises WebrtError when Chromium does not start, or when a module cannot be imported there.
    """
    if chromium.find_chromium() is None:
        print(f"webrt site: {_MISSING}", file=sys.stderr)
        return
    archives = [folder / STDLIB, *wheels]
    cache = assets.cache_dir()
    kept = cache / f"bytecode-{_key(archives)}.json"
    with assets.locked(cache):
        if not kept.is_file():
            progress("Compiling Python's modules", 0, 1)
            assets.keep(kept, _compiled(folder, wheels), _KEPT)
            progress("Compiling Python's modules", 1, 1)
        tag, made = json.loads(kept.read_text(encoding="utf-8"))
    for archive in archives:
        _add(archive, tag, made)


def _key(archives: Sequence[Path]) -> str:
    """A digest of what the bytecode depends on: how it is made, Pyodide's version, and the archives."""
    digest = hashlib.sha256(f"{_COMPILE}{assets.catalog().version}".encode())
    for archive in sorted(archives):
        digest.update(f"{archive.name} {assets.sha256_of(archive)}\n".encode())
    return digest.hexdigest()[:16]


def _compiled(folder: Path, wheels: Sequence[Path]) -> str:
    """JSON: [the tag in names of bytecode files, {path of a module's source in its archive: bytecode in base64}]."""
    with tempfile.TemporaryDirectory(prefix="webrt-bytecode-") as temporary:
        served = Path(temporary)
        for path in folder.iterdir():
            shutil.copyfile(path, served / path.name)
        (served / "index.html").write_text("<!doctype html><title>bytecode</title>", encoding="utf-8")
        return chromium.evaluate(served, _COMPILE, [assets.catalog().info, [wheel.name for wheel in wheels]])


def _add(archive: Path, tag: str, made: dict[str, str]) -> None:
    """Adds the bytecode of the modules that the archive holds, where Python looks for it."""
    with zipfile.ZipFile(archive) as opened:
        found = sorted(made.keys() & set(opened.namelist()))
        content = {} if archive.name == STDLIB else {name: opened.read(name) for name in opened.namelist()}
    if not found:
        return
    if archive.name == STDLIB:
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as opened:
            for name in found:
                entry = zipfile.ZipInfo(f"{name}c", date_time=(2020, 2, 2, 0, 0, 0))
                opened.writestr(entry, base64.b64decode(made[name]), zipfile.ZIP_DEFLATED)
        return
    [record] = [name for name in content if name.endswith(".dist-info/RECORD")]
    added = {_beside(PurePosixPath(name), tag): base64.b64decode(made[name]) for name in found}
    write_zip(archive, {n: data for n, data in (content | added).items() if n != record and n[-1] != "/"}, record)


def _beside(source: PurePosixPath, tag: str) -> str:
    return str(source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc")
