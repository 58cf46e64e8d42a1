"""Writes wheels: equal content gives equal bytes, so a lock file and a browser's cache stay valid until it changes."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], info: Mapping[str, str] | None = None
) -> Path:
    """Writes the pure wheel name-version-py3-none-any.whl with `files` (path in the wheel → content) and returns it.

    `info` holds more files for its dist-info folder; without METADATA among them only name and version are stated.
    """
    at = f"{name}-{version}.dist-info"
    tops = sorted({path.split("/")[0].removesuffix(".py") for path in files})
    told = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: webrt\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "top_level.txt": "".join(f"{top}\n" for top in tops),
        **(info or {}),
    }
    content = dict(sorted(files.items())) | {f"{at}/{key}": text.encode() for key, text in told.items()}
    path = folder / f"{name}-{version}-py3-none-any.whl"
    write_zip(path, content, f"{at}/RECORD")
    return path


def write_zip(path: Path, content: Mapping[str, bytes], record: str) -> None:
    """Writes a zip of `content` and its RECORD, called `record`, with one date and mode for all."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*content.items(), (record, _record(content.items(), record))]:
            entry = zipfile.ZipInfo(name, date_time=(2020, 2, 2, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            entry.create_system = 3
            archive.writestr(entry, data)


def _record(content: Iterable[tuple[str, bytes]], record: str) -> bytes:
    lines = []
    for name, data in content:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{record},,\n"]).encode()
