"""Makes the wheels of a site: webrt's own, the stand-in for ml_dtypes, and onnx without its test data.

Equal content gives equal bytes, so a lock file and a browser's cache stay valid until something changes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from webrt import resources
from webrt.errors import WebrtError

_ONNX_DROPPED = ("onnx/backend/test/data/", "onnx/backend/test/case/", "onnx/test/")
_ONNX_DROPPED_SUFFIXES = (".h", ".cc", ".proto", ".in.proto", ".pyi")


_COMPILES = (
    "webrt/compiler/", "webrt/confine/", "webrt/host/", "webrt/ops/", "webrt/_data/shaders/",
    "webrt/ir.py", "webrt/lowering.py", "webrt/schema_shapes.py", "webrt/schemas.py",
)  # fmt: skip
_RUNS = ("webrt/runtime/", "webrt/_data/web/player.js", "webrt/_data/web/player/")
_NATIVE = ("webrt/sandbox.py",)


def write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes], metadata: str = "") -> Path:
    """Writes the pure wheel name-version-py3-none-any.whl with `files` (path in the wheel → content) and returns it.

    `metadata` is the METADATA text; without it only name and version are stated.
    """
    info = f"{name}-{version}.dist-info"
    tops = sorted({path.split("/")[0].removesuffix(".py") for path in files})
    content = dict(sorted(files.items())) | {
        f"{info}/METADATA": (metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: webrt\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/top_level.txt": "".join(f"{top}\n" for top in tops).encode(),
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    _write_zip(path, content, f"{info}/RECORD")
    return path


def own_wheels(folder: Path) -> list[Path]:
    """Packs what works in a page of the installed webrt (editable or not) into two wheels in `folder`: `webrt`, which
    runs plans and needs no other package, and `webrt_compiler`, which adds the compile half and the CPU provider.

    Raises WebrtError when webrt is imported without having been installed.
    """
    try:
        version = importlib.metadata.version("webrt")
    except importlib.metadata.PackageNotFoundError as error:
        raise WebrtError("webrt is not installed; `pip install -e .` in its checkout first") from error
    files = own_files()
    runs = {name: content for name, content in files.items() if _is_run(name)}
    compiles = {name: content for name, content in files.items() if name.startswith(_COMPILES)}
    needs = "".join(f"Requires-Dist: {name}\n" for name in ("webrt", "numpy", "onnx"))
    metadata = f"Metadata-Version: 2.1\nName: webrt_compiler\nVersion: {version}\n{needs}"
    return [
        write_wheel(folder, "webrt", version, runs),
        write_wheel(folder, "webrt_compiler", version, compiles, metadata),
    ]


def own_files() -> dict[str, bytes]:
    """The installed package as a wheel has it, with its WGSL bodies and page files: path in the wheel → content."""
    package = Path(resources.__file__).parent
    files = {f"webrt/{name}": content for name, content in _tree(package) if not name.startswith("_data/")}
    for data in ("shaders", "web"):
        files |= {f"webrt/_data/{data}/{name}": content for name, content in _tree(resources.data_dir(data))}
    return files


def _is_run(name: str) -> bool:
    """Whether a file belongs to what runs plans in a page: the modules at the top, runtime/ and the player."""
    at_top = name.count("/") == 1 and not name.startswith((*_COMPILES, *_NATIVE))
    return at_top or name.startswith(_RUNS)


def ml_dtypes_wheel(folder: Path) -> Path:
    """Packs the stand-in for ml_dtypes into a wheel in `folder`."""
    source = Path(__file__).with_name("ml_dtypes_stand_in.py").read_bytes()
    return write_wheel(folder, "ml_dtypes", "0.5.4+webrt", {"ml_dtypes/__init__.py": source})


def slim_onnx(wheel: Path, folder: Path) -> Path:
    """Copies onnx's wheel without test data, C++ sources and stubs, which are three quarters of it.

    The result has the build tag 1webrt, so its name differs from the original's.
    """
    name, version, *tags = wheel.name.split("-")
    path = folder / "-".join((name, version, "1webrt", *tags))
    with zipfile.ZipFile(wheel) as archive:
        content = {member: archive.read(member) for member in archive.namelist() if _is_kept(member)}
    _write_zip(path, content, f"{name}-{version}.dist-info/RECORD")
    return path


def _is_kept(member: str) -> bool:
    return not (
        member.endswith(("/", "/RECORD")) or member.startswith(_ONNX_DROPPED) or member.endswith(_ONNX_DROPPED_SUFFIXES)
    )


def _tree(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files below `folder`, without caches and hidden ones: relative path and content."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if path.is_file() and not hidden:
            yield relative.as_posix(), path.read_bytes()


def _record(content: Iterable[tuple[str, bytes]], record: str) -> bytes:
    lines = []
    for name, data in content:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()


def _write_zip(path: Path, content: dict[str, bytes], record: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*content.items(), (record, _record(content.items(), record))]:
            entry = zipfile.ZipInfo(name, date_time=(2020, 2, 2, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
