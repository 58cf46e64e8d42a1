"""Files as they are read and written: plain ones, and whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from webrt.errors import PlanError, WebrtError


def plain_file(source: str | os.PathLike[str], error: type[WebrtError]) -> Path:
    """The path of a file, a folder or nothing. Raises `error` for a pipe, a socket or a device: reading one may never
    end."""
    path = Path(source)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise error(f"{path} is no plain file (but a pipe, a socket or a device); save its bytes in a file first")
    return path


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Any]:
    """A binary file that appears under `path` only when the block ends well; nothing is left behind otherwise."""
    if path.is_dir():
        raise PlanError(f"cannot write {path}: it is a folder")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise PlanError(f"cannot write {path}: {e.strerror or e}") from e
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
