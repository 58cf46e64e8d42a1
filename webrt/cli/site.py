"""`webrt site DIR`: a static folder with the page and everything it needs, so that no other host is asked at run time.

    DIR/index.html, *.js, *.css, …   the repository's web/
    DIR/pyodide/                     Pyodide's core, the wheels, and pyodide-lock.json that names exactly these wheels
    DIR/models/                      the demo's model
    DIR/site.json                    what is there: paths relative to DIR, sizes in bytes, sha256

The page loads Pyodide with `loadPyodide({indexURL: "pyodide/"})` and `loadPackage(site.pyodide.packages)`, or, to run
plans only, with the package `webrt` (and numpy, for arrays); web/python.js does so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from webrt import resources
from webrt.cli import assets, bytecode, chromium, lock, page_wheels, wheels
from webrt.cli.progress import Bars
from webrt.errors import WebrtError

EXAMPLES = """examples:
  webrt site public                         a static folder for any web server
  webrt site public --serve --port 8080     and look at it now
  webrt site public --no-demo               without the OCR demo's model"""
MANIFEST = "site.json"


def build_site(out: Path, *, progress: assets.Progress = assets.silent, demo: bool = True) -> None:
    """Makes the folder `out` (see the module's docstring), replacing a site that was made there before.

    `demo` says whether the demo's model is included (10.9 MB). The folder is put together beside `out` and then
    renamed, so `out` is whole or absent. Raises WebrtError when a file cannot be had, when its checksum is wrong,
    when `out` exists and is not a site, or when it cannot be made.
    """
    out = out.absolute()
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise WebrtError(f"{out} exists and was not made by `webrt site`; choose another folder")
    with _folder_beside(out) as temporary:
        work = Path(temporary, "site")
        shutil.copytree(resources.web_dir(), work)
        _add_pyodide(work / "pyodide", progress)
        model = _add_demo_model(work / "models", progress) if demo else None
        _write_manifest(work, model)
        if out.exists():
            out.rename(Path(temporary, "old"))
        work.rename(out)


def _folder_beside(out: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent)
    except OSError as error:
        at = Path(error.filename or out)
        is_file = isinstance(error, FileExistsError)
        why = f"{at} is no folder" if is_file else f"nothing can be made in {at.parent} ({error.strerror})"
        raise WebrtError(f"the folder {out} cannot be made: {why}; choose another one") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `webrt site`."""
    parser.add_argument("dir", type=Path, metavar="DIR", help="the folder to make")
    parser.add_argument("--no-demo", action="store_true", help="leave the OCR demo's model out (10.9 MB)")
    parser.add_argument("--serve", action="store_true", help="serve the folder on this machine until interrupted")
    parser.add_argument("--port", type=int, default=8000, help="the port for --serve (default: 8000)")


def run(args: argparse.Namespace) -> int:
    """Runs `webrt site` and returns the exit code; errors are raised as WebrtError."""
    build_site(args.dir, progress=Bars(), demo=not args.no_demo)
    print(f"{args.dir}: {sum(p.stat().st_size for p in args.dir.rglob('*') if p.is_file()) / 1e6:.1f} MB")
    if args.serve:
        _serve(args.dir, args.port)
    return 0


def _serve(folder: Path, port: int) -> None:
    try:
        with chromium.serve(folder, port) as base:
            print(f"{base} (Ctrl+C ends it)")
            chromium.wait()
    except OSError as error:
        raise WebrtError(f"cannot serve on port {port}: {error.strerror}; choose another with --port") from error
    except KeyboardInterrupt:
        print()


def _add_pyodide(folder: Path, progress: assets.Progress) -> None:
    """Pyodide's core, all wheels and their lock file."""
    folder.mkdir()
    fetched = assets.fetch_groups("core", "wheels", progress=progress)
    packages = [*wheels.own_wheels(folder), page_wheels.ml_dtypes_wheel(folder)]
    for path in fetched:
        if path.suffix == ".whl":
            packages.append(page_wheels.slim(path, folder))
        else:
            shutil.copyfile(path, folder / path.name)
    bytecode.add_bytecode(folder, packages, progress)
    lock.write_lock(folder / "pyodide-lock.json", packages, progress)


def _add_demo_model(folder: Path, progress: assets.Progress) -> Path:
    folder.mkdir(exist_ok=True)
    source = assets.demo_model_path(progress)
    return Path(shutil.copyfile(source, folder / source.name))


def _write_manifest(site: Path, model: Path | None) -> None:
    files = [_describe(site, path) for path in sorted((site / "pyodide").iterdir())]
    manifest = {
        "webrt": next(f["path"] for f in files if f["path"].startswith("pyodide/webrt-")).split("-")[1],
        "pyodide": {
            "version": assets.catalog().version,
            "index": "pyodide/",
            "lock": "pyodide/pyodide-lock.json",
            "packages": ["webrt-compiler"],
            "files": files,
        },
        "demo": _describe(site, model) if model else None,
    }
    (site / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _describe(site: Path, path: Path) -> dict[str, Any]:
    return {
        "path": path.relative_to(site).as_posix(),
        "bytes": path.stat().st_size,
        "sha256": assets.sha256_of(path),
    }
