"""A headless Chromium with WebGPU and a server for a static folder: for the demo, the tests and `webrt site`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from webrt.errors import WebrtError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, BrowserType, Playwright

_T = TypeVar("_T", "Browser", "BrowserContext")

FLAGS = (
    "--enable-unsafe-webgpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SOFTWARE_ADAPTER = "--use-webgpu-adapter=swiftshader"

_drivers = threading.local()
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find_chromium() -> Path | None:
    """Chromium or Chrome: $WEBRT_CHROMIUM, else the first on PATH, else macOS's usual place, else None."""
    named = os.environ.get("WEBRT_CHROMIUM")
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    for candidate in (named, found, _MAC if sys.platform == "darwin" else None):
        if candidate and Path(candidate).exists():
            return Path(candidate)
    return None


@contextmanager
def launch(*, software: bool = True, args: Sequence[str] = ()) -> Iterator[Browser]:
    """A headless Chromium driven by playwright (its synchronous API), closed at the end.

    `software` asks for the SwiftShader adapter, the same on every machine; `args` are more switches. Raises WebrtError
    when Chromium or playwright is not installed, or when the browser does not start.
    """
    with _started(software, args, lambda chromium, how: chromium.launch(**how)) as browser:
        yield browser


@contextmanager
def launch_with_profile(*, software: bool = True, args: Sequence[str] = ()) -> Iterator[BrowserContext]:
    """As `launch`, with a new profile on disk, which goes at the end: there, as in people's browsers and unlike in the
    contexts of `launch`, large files and compiled WebAssembly stay in the cache."""
    with (
        tempfile.TemporaryDirectory(prefix="webrt-profile-", ignore_cleanup_errors=True) as folder,
        _started(software, args, lambda chromium, how: chromium.launch_persistent_context(folder, **how)) as context,
    ):
        yield context


@contextmanager
def _started(software: bool, args: Sequence[str], start: Callable[[BrowserType, dict[str, Any]], _T]) -> Iterator[_T]:
    executable = find_chromium()
    if executable is None:
        raise WebrtError("no Chromium found; install it (Debian: apt-get install chromium) or set WEBRT_CHROMIUM to it")
    switches = [*FLAGS, *([SOFTWARE_ADAPTER] if software else []), *args]
    with _driver() as playwright:
        from playwright.sync_api import Error

        try:
            browser = start(playwright.chromium, {"executable_path": executable, "headless": True, "args": switches})
        except Error as error:
            raise WebrtError(f"{executable} does not start: {error.message.splitlines()[0]}") from error
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _driver() -> Iterator[Playwright]:
    """Playwright's driver: a thread can have one at a time, so that a launch within a launch shares the outer one's."""
    running: Playwright | None = getattr(_drivers, "running", None)
    if running is not None:
        yield running
        return
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise WebrtError("playwright is not installed; pip install playwright") from error
    with sync_playwright() as started:
        _drivers.running = started
        try:
            yield started
        finally:
            _drivers.running = None


def evaluate(folder: Path, script: str, given: Any) -> str:
    """What a script (a function, as JavaScript) gives of `given`, in a page of `folder`'s index.html in Chromium.

    Raises WebrtError when it fails, and as `launch`.
    """
    with serve(folder) as base, launch() as browser:
        from playwright.sync_api import Error

        page = browser.new_page()
        try:
            page.goto(base)
            return str(page.evaluate(script, given))
        except Error as error:
            words = [line for line in error.message.splitlines() if line and not line.startswith(" ")]
            raise WebrtError(f"a script failed in Chromium: {words[-1]}") from error


def foreign_requests(context: BrowserContext, base: str) -> list[str]:
    """A list that fills with the URL of every request of the context that goes to another host than `base`."""
    seen: list[str] = []
    home = urlsplit(base).netloc

    def note(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != home:
            seen.append(url)

    context.on("request", lambda request: note(request.url))
    return seen


def wait() -> None:
    """Sleeps until the user interrupts; raises KeyboardInterrupt then."""
    threading.Event().wait()


class _Handler(SimpleHTTPRequestHandler):
    """Serves files with the types that browsers insist on for modules and streamed WebAssembly."""

    protocol_version = "HTTP/1.1"
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".json": "application/json",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
        ".onnx": "application/octet-stream",
        ".webrt": "application/octet-stream",
    }

    isolated = False

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing; the browser's console shows what failed."""


class _Isolated(_Handler):
    isolated = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that closes a connection early is no error."""


@contextmanager
def serve(folder: Path, port: int = 0, *, isolated: bool = False) -> Iterator[str]:
    """Serves `folder` on the loopback address at `port` (0 = any free one); gives the base URL, ending in a slash.

    `isolated`: with the headers that give a page shared memory, and so threads.
    """
    handler = _Isolated if isolated else _Handler
    with _Server(("127.0.0.1", port), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
