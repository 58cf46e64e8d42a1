"""The browser is found or named as missing; the server gives the types that modules and WebAssembly need; bars draw."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from webrt.cli import chromium
from webrt.cli.progress import Bars
from webrt.errors import WebrtError


def test_named_browser_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (browser := tmp_path / "my-chrome").write_text("")
    monkeypatch.setenv("WEBRT_CHROMIUM", str(browser))
    assert chromium.find_chromium() == browser


def test_missing_browser_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBRT_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(chromium, "_MAC", "/nowhere")
    assert chromium.find_chromium() is None
    with pytest.raises(WebrtError, match="install it .*WEBRT_CHROMIUM"), chromium.launch():
        pass


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.mjs", "text/javascript"),
        ("a.js", "text/javascript"),
        ("a.wasm", "application/wasm"),
        ("a.html", "text/html"),
    ],
)
def test_server_gives_the_right_types(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    with chromium.serve(tmp_path) as base, urllib.request.urlopen(base + name) as answer:
        assert answer.read() == b"content"
        assert answer.headers.get_content_type() == kind


def test_server_ends_and_stays_in_its_folder(tmp_path: Path) -> None:
    (folder := tmp_path / "site").mkdir()
    (tmp_path / "secret").write_text("no")
    with chromium.serve(folder) as base, pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}../secret")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(base, timeout=2)


def test_progress_without_a_terminal_is_one_line_a_stage() -> None:
    stream = io.StringIO()
    bars = Bars(stream)
    for done in (0, 50, 100):
        bars("Downloading", done, 100)
    bars("Writing", 0, 1)
    assert stream.getvalue() == "Downloading …\nWriting …\n"


def test_progress_on_a_terminal_redraws_and_ends_the_line() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    bars = Bars(stream)
    bars("Downloading", 0, 2_000_000)
    bars("Downloading", 2_000_000, 2_000_000)
    last = stream.getvalue().split("\r\x1b[K")[-1]
    assert last.startswith("Downloading ") and last.endswith("100%  2.0 of 2.0 MB\n")


@pytest.mark.xdist_group("pages")
def test_launch_within_a_launch() -> None:
    with chromium.launch() as outer:
        with chromium.launch() as inner:
            assert inner.new_page().evaluate("1 + 1") == 2
        assert outer.new_page().evaluate("2 + 2") == 4
    with chromium.launch() as again:
        assert again.new_page().evaluate("3 + 3") == 6
