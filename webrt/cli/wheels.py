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


def own_wheel(folder: Path) -> Path:
    """Packs the installed webrt (editable or not), its WGSL bodies and its page files into a wheel in `folder`.

    Raises WebrtError when webrt is imported without having been installed.
    """
    try:
        distribution = importlib.metadata.distribution("webrt")
    except importlib.metadata.PackageNotFoundError as error:
        raise WebrtError("webrt is not installed; `pip install -e .` in its checkout first") from error
    package = Path(resources.__file__).parent
    files = {f"webrt/{name}": content for name, content in _tree(package) if not name.startswith("_data/")}
    for data in ("shaders", "web"):
        files |= {f"webrt/_data/{data}/{name}": content for name, content in _tree(resources.data_dir(data))}
    return write_wheel(folder, "webrt", distribution.version, files, distribution.read_text("METADATA") or "")


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
