"""Makes the wheels of other packages that a site has: the stand-in for ml_dtypes, and onnx without its test data."""

from __future__ import annotations

import zipfile
from pathlib import Path

from webrt.cli.wheel_file import write_wheel, write_zip

_ONNX_DROPPED = ("onnx/backend/test/data/", "onnx/backend/test/case/", "onnx/test/")
_ONNX_DROPPED_SUFFIXES = (".h", ".cc", ".proto", ".in.proto", ".pyi")


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
    write_zip(path, content, f"{name}-{version}.dist-info/RECORD")
    return path


def _is_kept(member: str) -> bool:
    return not (
        member.endswith(("/", "/RECORD")) or member.startswith(_ONNX_DROPPED) or member.endswith(_ONNX_DROPPED_SUFFIXES)
    )
