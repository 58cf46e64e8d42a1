"""One Chromium for all tests of a process, and a server that has the repository's web/ and tests/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.web.driver import Player
from webrt.cli import chromium

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.launch() as launched:
        yield launched


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The served folder; tests may put files there."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "web").symlink_to(ROOT / "web")
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "blank.html").write_text("<!doctype html><meta charset=utf-8><title>webrt</title>", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def base_url(files: Path) -> Iterator[str]:
    with chromium.serve(files) as url:
        yield url


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture(scope="session")
def player(context: BrowserContext, base_url: str) -> Iterator[Player]:
    page = context.new_page()
    page.goto(base_url + "blank.html")
    yield Player(page)
    page.close()


@pytest.fixture
def host_page(context: BrowserContext, base_url: str) -> Iterator[Player]:
    """A page of its own, since a page keeps what is exposed to it."""
    page = context.new_page()
    page.goto(base_url + "blank.html")
    yield Player(page)
    page.close()
