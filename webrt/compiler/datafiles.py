"""Where the bytes of external data come from: files in the model's folder and never outside it, or bytes by location.

Imports nothing of ONNX: a parent process reads for a confined compiler by the same rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from webrt.errors import ExternalDataError, InvalidModel
from webrt.files import plain_file


class Reader(Protocol):
    """Gives `count` bytes (None: all that remain) from `offset` of the data at `location`.

    `tensor` is the name for error messages. Raises ExternalDataError where data is missing or short, or lies outside.
    """

    def __call__(self, tensor: str, location: str, offset: int, count: int | None) -> bytes: ...


@dataclass(frozen=True)
class DataFiles:
    """A Reader: `given` maps a location to its bytes; other locations are files in `folder`, where there is one."""

    folder: Path | None
    given: Mapping[str, bytes]

    def __call__(self, tensor: str, location: str, offset: int, count: int | None) -> bytes:
        if location in self.given:
            return _slice(tensor, location, self.given[location], offset, count)
        if self.folder is None:
            raise ExternalDataError(
                f"tensor {tensor!r} lies in the file {location!r}; give the model's path, or its external data"
            )
        return _read(tensor, self.folder, location, offset, count)


def model_bytes(path: Path, most: int) -> bytes:
    """What a model's file holds. Raises InvalidModel where it cannot be read, is no plain file, or has more than `most`
    bytes."""
    try:
        size = plain_file(path, InvalidModel).stat().st_size
        if size > most:
            raise InvalidModel(f"out of memory: {path} has {size} bytes, {most} may be taken; raise the limit")
        return path.read_bytes()
    except (OSError, ValueError) as e:
        raise InvalidModel(f"cannot read {path}: {getattr(e, 'strerror', None) or e}") from e


def short(tensor: str, location: str, need: int, size: int) -> ExternalDataError:
    """The error for data that ends early."""
    return ExternalDataError(f"tensor {tensor!r} needs {need} bytes of {location!r}, which has {size}")


def _slice(tensor: str, location: str, data: bytes, offset: int, count: int | None) -> bytes:
    end = len(data) if count is None else offset + count
    if offset > end or end > len(data):
        raise short(tensor, location, end, len(data))
    return bytes(memoryview(data)[offset:end])


def _read(tensor: str, folder: Path, location: str, offset: int, count: int | None) -> bytes:
    try:
        path = _inside(tensor, folder, location)
        if path.exists() and not path.is_file():
            raise ExternalDataError(f"tensor {tensor!r}: {location!r} is no plain file")
        with path.open("rb") as f:
            size = os.fstat(f.fileno()).st_size
            want = size - offset if count is None else count
            if want < 0 or offset + want > size:
                raise short(tensor, location, offset + max(want, 0), size)
            f.seek(offset)
            return f.read(want)
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or e
        raise ExternalDataError(f"tensor {tensor!r}: cannot read {location!r}: {why}") from e


def _inside(tensor: str, folder: Path, location: str) -> Path:
    parts = location.replace("\\", "/").split("/")
    if not location or os.path.isabs(location) or ".." in parts or ":" in parts[0]:
        raise ExternalDataError(f"tensor {tensor!r} points outside the model's folder: {location!r}")
    base = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(base / location))
    if base not in path.parents:
        raise ExternalDataError(
            f"tensor {tensor!r} points outside the model's folder, by a symbolic link: {location!r}"
        )
    return path
