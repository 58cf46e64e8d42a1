"""Downloads are checked, whole or absent; the lists of what to download are consistent."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from webrt.cli import assets, chromium, download
from webrt.errors import WebrtError

CONTENT = b"the right content" * 100


def _asset(name: str = "file.bin", **fields: object) -> assets.Asset:
    given = {"group": "core", "sha256": hashlib.sha256(CONTENT).hexdigest(), "bytes": len(CONTENT), "cdn": True}
    return assets.Asset(name=name, distribution="dist", member=f"pkg/{name}", **(given | fields))  # type: ignore[arg-type]


def _catalog(cdn: str, *listed: assets.Asset) -> assets.Catalog:
    return assets.Catalog("1", cdn, {}, {"dist": assets.Distribution("dist==1", 100)}, {a.name: a for a in listed})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEBRT_CACHE", str(tmp_path / "cache"))
    return assets.cache_dir()


@pytest.fixture
def cdn(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    (folder := tmp_path / "cdn").mkdir()
    with chromium.serve(folder) as base:
        yield folder, base


def _wheel_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, members: dict[str, bytes]) -> list[str]:
    """Replaces pip: a wheel with `members`; returns the list of what gets asked for."""
    asked: list[str] = []
    path = tmp_path / "dist-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)

    @contextmanager
    def wheel(requirement: str, *rest: object) -> Iterator[Path]:
        asked.append(requirement)
        yield path

    monkeypatch.setattr(download, "wheel", wheel)
    return asked


def _left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def test_taken_from_the_cdn_once(cache: Path, cdn: tuple[Path, str]) -> None:
    folder, base = cdn
    (folder / "file.bin").write_bytes(CONTENT)
    asset, seen = _asset(), []
    paths = assets.fetch([asset], lambda *step: seen.append(step), known=_catalog(base, asset))
    assert paths["file.bin"].read_bytes() == CONTENT
    assert seen[-1] == ("Downloading file.bin", len(CONTENT), len(CONTENT))
    (folder / "file.bin").unlink()
    assert assets.fetch([asset], assets.silent, known=_catalog(base, asset)) == paths


def test_wrong_content_from_the_cdn_falls_back_to_the_wheel(
    cache: Path, cdn: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cdn[0] / "file.bin").write_bytes(b"something else")
    asset, other = _asset(), _asset("other.bin")
    asked = _wheel_source(monkeypatch, tmp_path, {"pkg/file.bin": CONTENT, "pkg/other.bin": CONTENT})
    known = _catalog(cdn[1], asset, other)
    assert assets.fetch([asset], assets.silent, known=known)["file.bin"].read_bytes() == CONTENT
    assert assets.fetch([other], assets.silent, known=known)["other.bin"].read_bytes() == CONTENT
    assert asked == ["dist==1"], "one download serves every file of the wheel"


def test_wrong_content_everywhere_is_an_error_and_leaves_nothing(
    cache: Path, cdn: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cdn[0] / "file.bin").write_bytes(b"something else")
    _wheel_source(monkeypatch, tmp_path, {"pkg/file.bin": b"and else"})
    asset = _asset()
    with pytest.raises(WebrtError, match=r"file\.bin has sha256 .*expected " + asset.sha256) as caught:
        assets.fetch([asset], assets.silent, known=_catalog(cdn[1], asset))
    assert "Pyodide's CDN" in str(caught.value)
    assert _left(cache) == []


def test_wheel_without_the_member_is_an_error(
    cache: Path, cdn: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wheel_source(monkeypatch, tmp_path, {"pkg/another": CONTENT})
    asset = _asset()
    with pytest.raises(WebrtError, match=r"no readable member pkg/file\.bin"):
        assets.fetch([asset], assets.silent, known=_catalog(cdn[1], asset))
    assert _left(cache) == []


def test_damaged_file_in_the_cache_is_fetched_again(cache: Path, cdn: tuple[Path, str]) -> None:
    (cdn[0] / "file.bin").write_bytes(CONTENT)
    (cache / "file.bin").write_bytes(CONTENT[:-1])
    asset = _asset()
    paths = assets.fetch([asset], assets.silent, known=_catalog(cdn[1], asset))
    assert paths["file.bin"].read_bytes() == CONTENT


def test_pip_without_an_index_says_what_it_wanted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with (
        pytest.raises(WebrtError, match="webrt-no-such-package==1"),
        download.wheel("webrt-no-such-package==1", "", 1000, cache, assets.silent),
    ):
        pass
    assert _left(cache) == []


def test_cache_that_cannot_be_made_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WEBRT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(WebrtError, match="WEBRT_CACHE"):
        assets.cache_dir()


def test_catalog_is_consistent() -> None:
    known = assets.catalog()
    assert {asset.group for asset in known.assets.values()} == {"core", "wheels", "build", "demo"}
    for asset in known.assets.values():
        assert len(asset.sha256) == 64 and int(asset.sha256, 16) >= 0, asset.name
        assert asset.distribution in known.distributions, asset.name
        assert asset.bytes > 0 and (asset.member or asset.name.endswith(".whl")), asset.name
    assert not any("sympy" in name for name in known.assets)
