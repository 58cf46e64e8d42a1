"""Bytecode in a site's archives: where it is put, and what happens without Chromium. tests/web/test_site.py uses it."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from pathlib import Path

import pytest

from webrt.cli import assets, bytecode, chromium
from webrt.cli.wheel_file import write_wheel


@pytest.fixture
def archives(tmp_path: Path) -> tuple[Path, Path]:
    """A library with `json` and a wheel with `some`."""
    library = tmp_path / bytecode.STDLIB
    with zipfile.ZipFile(library, "w") as archive:
        archive.writestr("json/__init__.py", "x = 1\n")
        archive.writestr("rare.py", "y = 1\n")
    return library, write_wheel(tmp_path, "some", "1.0", {"some/__init__.py": b"", "some/a.py": b"z = 1\n"})


def _content(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert len(set(archive.namelist())) == len(archive.namelist())
        return {name: archive.read(name) for name in archive.namelist()}


def test_it_is_put_beside_the_sources_and_recorded(archives: tuple[Path, Path]) -> None:
    before = [_content(path) for path in archives]
    made = {name: base64.b64encode(name.encode()).decode() for name in ("json/__init__.py", "some/a.py", "no.py")}
    for path in archives:
        bytecode._add(path, "cpython-314", made)
    library, wheel = (_content(path) for path in archives)
    assert library == before[0] | {"json/__init__.pyc": b"json/__init__.py"}
    compiled = "some/__pycache__/a.cpython-314.pyc"
    record = "some-1.0.dist-info/RECORD"
    assert {name: wheel[name] for name in wheel.keys() - {record}} == {
        name: data for name, data in (before[1] | {compiled: b"some/a.py"}).items() if name != record
    }
    rows = {row[0]: row[1:] for row in csv.reader(wheel[record].decode().splitlines())}
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"some/a.py").digest()).rstrip(b"=").decode()
    assert rows.keys() == wheel.keys() and rows[compiled] == [f"sha256={digest}", "9"]


def test_without_chromium_a_line_says_so(
    archives: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chromium, "find_chromium", lambda: None)
    before = [path.read_bytes() for path in archives]
    bytecode.add_bytecode(archives[0].parent, [archives[1]], assets.silent)
    assert [path.read_bytes() for path in archives] == before
    assert "no Chromium" in capsys.readouterr().err


def test_the_cache_keeps_the_newest_of_a_kind(tmp_path: Path) -> None:
    for i in range(3):
        assets.keep(tmp_path / f"kind-{i}.json", str(i), 2)
    (tmp_path / "other-0.json").write_text("")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 3 and {"kind-2.json", "other-0.json"} <= set(left)
