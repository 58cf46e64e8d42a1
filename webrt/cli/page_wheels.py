"""Makes the wheels of other packages that a site has: a stand-in for ml_dtypes; others without what no page uses."""

from __future__ import annotations

import zipfile
from pathlib import Path

from webrt.cli.wheel_file import write_wheel, write_zip

_DROPPED = ("onnx/backend/test/data/", "onnx/backend/test/case/", "onnx/test/")
_DROPPED_SUFFIXES = (".a", ".c", ".cc", ".h", ".proto", ".pxd", ".pyi", ".pyx")


def ml_dtypes_wheel(folder: Path) -> Path:
    """Packs the stand-in for ml_dtypes into a wheel in `folder`."""
    source = Path(__file__).with_name("ml_dtypes_stand_in.py").read_bytes()
    return write_wheel(folder, "ml_dtypes", "0.5.4+webrt", {"ml_dtypes/__init__.py": source})


def slim(wheel: Path, folder: Path) -> Path:
    """Copies a wheel without onnx's test data, and without C sources, libraries to link with, and stubs: three quarters
    of onnx, and nearly half of numpy's files, which a page would unpack at each start.

    The result has the build tag 1webrt, so its name differs from the original's.
    """
    name, version, *tags = wheel.name.split("-")
    path = folder / "-".join((name, version, "1webrt", *tags))
    with zipfile.ZipFile(wheel) as archive:
        content = {member: archive.read(member) for member in archive.namelist() if _is_kept(member)}
    write_zip(path, content, f"{name}-{version}.dist-info/RECORD")
    return path


def _is_kept(member: str) -> bool:
    return not (member.endswith(("/", "/RECORD")) or member.startswith(_DROPPED) or member.endswith(_DROPPED_SUFFIXES))
