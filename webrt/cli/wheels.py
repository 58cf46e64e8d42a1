"""webrt's own two wheels: `python -m webrt.cli.wheels FOLDER` writes what is released, `webrt site` ships the same.

`webrt` runs plans, natively and in a page; `webrt-compiler` adds what makes plans, the CPU provider, the sandbox and
the page to the same folder. Every file of the installed package is in exactly one of them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from webrt import parts, resources
from webrt.cli.wheel_file import write_wheel
from webrt.errors import WebrtError

_COMPILES = (
    "webrt/compiler/", "webrt/confine/", "webrt/host/", "webrt/ops/", "webrt/_data/shaders/",
    "webrt/builder.py", "webrt/costs.", "webrt/ir.py", "webrt/launches.py", "webrt/lowering.py", "webrt/sandbox.py",
    "webrt/schema_shapes.py", "webrt/schemas.py",
    *(f"webrt/cli/{name}" for name in (
        "assets.", "bytecode.", "chromium.", "compile.", "download.", "lock.", "ml_dtypes_stand_in.", "page_wheels.",
        "precision.", "sandbox_status.", "site.", "wheel_file.", "wheels.",
    )),
)  # fmt: skip
"""What `webrt-compiler` holds, beside the files of the page; the rest is `webrt`'s."""
_RUNS_IN_PAGES = tuple(
    f"webrt/_data/web/{name}" for name in ("player.js", "player/", "python.js", "webrt.d.ts", "webrt.js")
)
_SUMMARY = "Compiles ONNX models for webrt, and runs them on the CPU: its compile half and CPU provider"
_SCRIPTS = "[console_scripts]\nwebrt = webrt.cli:main\n"


def own_wheels(folder: Path) -> list[Path]:
    """Packs the installed webrt (editable, of a source tree, or of these wheels) into the two wheels, in `folder`.

    Raises WebrtError when webrt is imported without having been installed.
    """
    try:
        installed = importlib.metadata.distribution("webrt")
    except importlib.metadata.PackageNotFoundError as error:
        raise WebrtError("webrt is not installed; `pip install -e .` in its checkout first") from error
    files, version = own_files(), installed.version
    info = {"licenses/LICENSE": installed.read_text("licenses/LICENSE") or ""}
    runs = {name: content for name, content in files.items() if not of_compiler(name)}
    compiles = {name: content for name, content in files.items() if of_compiler(name)}
    metadata, more = _metadata(installed)
    return [
        write_wheel(folder, "webrt", version, runs, info | {"METADATA": metadata, "entry_points.txt": _SCRIPTS}),
        write_wheel(folder, "webrt_compiler", version, compiles, info | {"METADATA": more}),
    ]


def own_files() -> dict[str, bytes]:
    """The installed package as a wheel has it, with its WGSL bodies and page files: path in the wheel → content."""
    package = Path(resources.__file__).parent
    files = {f"webrt/{name}": content for name, content in _tree(package) if not name.startswith("_data/")}
    for data in ("shaders", "web"):
        files |= {f"webrt/_data/{data}/{name}": content for name, content in _tree(resources.data_dir(data))}
    return files


def of_compiler(name: str) -> bool:
    """Whether a file, by its path in a wheel, is part of `webrt-compiler` and not of `webrt`."""
    return name.startswith(_COMPILES) or (name.startswith("webrt/_data/web/") and not name.startswith(_RUNS_IN_PAGES))


def _metadata(installed: importlib.metadata.Distribution) -> tuple[str, str]:
    """METADATA of `webrt` and of `webrt-compiler`. In a page, `webrt` needs numpy only for arrays, so not there."""
    head, _, readme = (installed.read_text("METADATA") or "").partition("\n\n")
    kept = [line for line in head.splitlines() if not line.startswith(("Provides-Extra:", "Requires-Dist:"))]
    same = f"=={installed.version}"
    runs = [
        f'Requires-Dist: {_requirement("numpy")}; sys_platform != "emscripten"',
        "Provides-Extra: compile",
        f'Requires-Dist: {parts.COMPILER}{same}; extra == "compile"',
        "Provides-Extra: native",
        f'Requires-Dist: {_requirement("wgpu")}; extra == "native"',
    ]
    said = {"Name": parts.COMPILER, "Summary": _SUMMARY}
    other = [f"{key}: {said.get(key, text)}" for key, text in (line.split(": ", 1) for line in kept)]
    needs = [f"Requires-Dist: {name}" for name in (f"webrt{same}", _requirement("numpy"), _requirement("onnx"))]
    compiles = [line for line in other if not line.startswith("Description-Content-Type:")]
    return "\n".join([*kept, *runs]) + f"\n\n{readme}", "\n".join([*compiles, *needs]) + "\n"


def _requirement(name: str) -> str:
    """A package and its versions as the installed webrt asks for it. Raises WebrtError where it does not."""
    for own in ("webrt", parts.COMPILER):
        try:
            listed = importlib.metadata.requires(own) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in listed:
            if re.match(rf"{name}\b(?!-)", line):
                return line.split(";")[0].strip()
    raise WebrtError(f"the installed webrt does not say which {name} it needs; install it again")


def _tree(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files below `folder`, without caches and hidden ones: relative path and content."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if path.is_file() and not hidden:
            yield relative.as_posix(), path.read_bytes()


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m webrt.cli.wheels FOLDER`: writes both wheels and prints their sizes."""
    parser = argparse.ArgumentParser(prog="python -m webrt.cli.wheels", description="Writes webrt's two wheels.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="made where there is none")
    folder: Path = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    for path in own_wheels(folder):
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
