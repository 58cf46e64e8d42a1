"""The page's sandbox: what its frame and its worker cannot do and the page itself can; limits; and bad answers.

A folder of scripts stands in for Pyodide here; tests/web/test_page.py compiles with the real one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Error, Frame, Page, Worker

from tests.fuzz.plans import bases, packed
from tests.fuzz.seeds import GRAPHS, text_model
from webrt.compiler.compile import compile_model
from webrt.compiler.frontend import read_model
from webrt.errors import InvalidModel
from webrt.planfile import dump

pytestmark = pytest.mark.xdist_group("chromium")

WAIT = "export const loadPyodide = () => new Promise(() => {});"
FAKE = """export const loadPyodide = async () => ({
  loadPackage: async () => {}, toPy: (x) => x,
  pyimport: (name) => name === "builtins" ? { bytes: (x) => x } : { compile_bytes },
});
const compile_bytes = (...args) => ({ toJs: () => compile(...args) });
const plan = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
"""
DONE = json.dumps({"placement": []})

ESCAPES: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("escapes.toml").read_text(encoding="utf-8"))
IN_WORKER = ESCAPES["worker"] | ESCAPES["both"]
IN_FRAME = ESCAPES["frame"] | ESCAPES["both"]
NAVIGATE = "top.location.href = `${base}blank.html?escaped`; await new Promise((r) => setTimeout(r, 500)); return true;"


@pytest.fixture(scope="module")
def addresses(base_url: str, files: Path) -> Iterator[dict[str, str]]:
    """A page's address, a WebSocket's and an EventSource's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        yield {"base": base_url, "socket": f"ws://127.0.0.1:{port}/", "events": f"http://127.0.0.1:{port}/events"}


def _serve(server: socket.socket) -> None:
    """Accepts WebSockets, and event streams of any page."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        request = connection.recv(10_000).decode("latin-1")
        found = re.search(r"Sec-WebSocket-Key: (\S+)", request, re.I)
        if found:
            digest = hashlib.sha1((found[1] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            accept = base64.b64encode(digest).decode()
            answer = f"101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}"
        else:
            answer = "200 X\r\nContent-Type: text/event-stream\r\nAccess-Control-Allow-Origin: *"
        connection.sendall(f"HTTP/1.1 {answer}\r\n\r\n".encode())


def write_site(files: Path, name: str, pyodide: str) -> str:
    """A folder with a site.json whose Pyodide is this script; another script has another address, for the cache."""
    name = f"{name}-{hashlib.sha256(pyodide.encode()).hexdigest()[:16]}"
    folder = files / name
    folder.mkdir(exist_ok=True)
    contents = {"pyodide.mjs": pyodide, "pyodide.asm.mjs": "export default null;", "pyodide-lock.json": "{}"}
    for file, text in contents.items():
        (folder / file).write_text(text, encoding="utf-8")
    listed = [{"path": file, "bytes": len(text)} for file, text in contents.items()]
    (folder / "site.json").write_text(json.dumps({"pyodide": {"files": listed}}), encoding="utf-8")
    return f"/{name}/site.json"


def begin(page: Page, site: str, options: str = "{}") -> None:
    """Starts a compilation of what may be a model; `webrtResult` is what becomes of it."""
    page.evaluate(
        """([site, options]) => {
          globalThis.webrtResult = import("/web/webrt.js").then(async ({ compileInSandbox }) => {
            try {
              const made = await compileInSandbox(Uint8Array.of(0x3a, 1, 0), { site, ...options });
              return { bytes: made.bytes, placement: made.placement.length };
            } catch (e) { return [e.name, e.message]; }
          });
        }""",
        [site, json.loads(options)],
    )


def result(page: Page, files: Path, compile: str, **options: Any) -> Any:
    """What compileInSandbox gives where the compiler is this function body of (bytes, request, external, report)."""
    body = f"{FAKE}\nfunction compile(bytes, request, external, report) {{ {compile} }}"
    begin(page, write_site(files, "fake", body), json.dumps(options))
    made = page.evaluate("webrtResult")
    assert page.locator("iframe").count() == 0, "the frame is gone, and its worker with it"
    return made


@pytest.fixture
def page(context: BrowserContext, base_url: str) -> Iterator[Page]:
    made = context.new_page()
    made.goto(base_url + "blank.html")
    yield made
    made.close()


@pytest.fixture(scope="module")
def waiting(context: BrowserContext, base_url: str, files: Path) -> Iterator[tuple[Page, Frame, Worker]]:
    """A page whose sandbox waits, its frame and its worker."""
    page = context.new_page()
    page.goto(base_url + "blank.html")
    with page.expect_worker() as found:
        begin(page, write_site(files, "waits", WAIT))
    yield page, next(f for f in page.frames if f.url.endswith("compile-frame.html")), found.value
    page.close()


def attempt(where: Page | Frame | Worker, code: str, addresses: dict[str, str]) -> bool:
    """Whether an attempt works; an exception or no answer in 3 s is a no."""
    text = f"""async ({{ base, socket, events }}) => {{
      const late = new Promise((resolve) => setTimeout(() => resolve(false), 3000));
      try {{ return await Promise.race([late, (async () => {{ {code} }})()]); }} catch {{ return false; }}
    }}"""
    return bool(where.evaluate(text, addresses))


@pytest.mark.parametrize("name", IN_WORKER)
def test_the_worker_cannot(name: str, waiting: tuple[Page, Frame, Worker], addresses: dict[str, str]) -> None:
    assert not attempt(waiting[2], IN_WORKER[name], addresses)


@pytest.mark.parametrize("name", IN_WORKER)
def test_a_worker_of_the_page_can(name: str, page: Page, addresses: dict[str, str], files: Path) -> None:
    (files / "plain.js").write_text("", encoding="utf-8")
    with page.expect_worker() as found:
        page.evaluate("() => { globalThis.plain = new Worker('/plain.js'); }")
    assert attempt(found.value, IN_WORKER[name], addresses)


@pytest.mark.parametrize("name", IN_FRAME)
def test_the_frame_cannot(name: str, waiting: tuple[Page, Frame, Worker], addresses: dict[str, str]) -> None:
    assert not attempt(waiting[1], IN_FRAME[name], addresses)


@pytest.mark.parametrize("name", IN_FRAME)
def test_a_frame_of_the_page_can(name: str, page: Page, addresses: dict[str, str]) -> None:
    assert attempt(plain_frame(page), IN_FRAME[name], addresses)


def plain_frame(page: Page) -> Frame:
    """A frame of the same origin without sandbox and policy."""
    page.evaluate(
        """() => new Promise((resolve) => {
          const frame = document.createElement("iframe");
          frame.src = "/blank.html";
          frame.onload = resolve;
          document.body.append(frame);
        })"""
    )
    return page.frames[-1]


@pytest.mark.parametrize("how", ["sandboxed", "plain"])
def test_top_navigation(how: str, page: Page, addresses: dict[str, str], files: Path) -> None:
    if how == "sandboxed":
        with page.expect_worker():
            begin(page, write_site(files, "waits", WAIT))
        frame = next(f for f in page.frames if f.url.endswith("compile-frame.html"))
    else:
        frame = plain_frame(page)
    try:
        attempt(frame, NAVIGATE, addresses)
    except Error:
        assert how == "plain"  # the frame is gone with its page
    page.wait_for_timeout(200)
    assert page.url.endswith("?escaped") == (how == "plain")


def test_a_plan_comes_back(page: Page, files: Path) -> None:
    made = dump(compile_model(text_model(GRAPHS["chain"])))
    text = (
        f"report('partition', 2, 7); return [plan('{base64.b64encode(made).decode()}'), new Uint8Array(0), '{DONE}'];"
    )
    assert result(page, files, text) == {"bytes": len(made), "placement": 0}


def test_a_plan_that_breaks_the_rules(page: Page, files: Path) -> None:
    base, data = bases()[0]
    broken = base64.b64encode(packed({**base, "slots": []}, data)).decode()
    name, message = result(page, files, f"return [plan('{broken}'), new Uint8Array(0), '{DONE}'];")
    assert name == "SandboxError" and "a plan that breaks the rules" in message and "out of range" in message


@pytest.mark.parametrize(
    ("compile", "options", "expected"),
    [
        ("for (;;);", {"timeout": 2}, "out of time: compiling took longer than 2 s"),
        ("return [new Uint8Array(2000), new Uint8Array(0), '{}'];", {"output": 1000}, "too much output: 2002 bytes"),
        ("for (let i = 0; i < 20000; i += 1) report('x', 0, 1); for (;;);", {}, "more messages than allowed"),
        ("report({}, 0, 1); for (;;);", {}, "a message of the wrong form"),
        ("report('x', 'y', 1); for (;;);", {}, "a message of the wrong form"),
        ("return [new Uint8Array(3), [1], '{}'];", {}, "a message of the wrong form|could not be cloned|failed"),
        ("return [new Uint8Array(0), new Uint8Array(0), 'no JSON'];", {}, "a message of the wrong form"),
        ("return [new Uint8Array(3), new Uint8Array(0), '{}'];", {}, "a plan that breaks the rules"),
        ("throw new Error('odd');", {}, "the sandbox's worker failed: failed: .*odd"),
        ("new WebAssembly.Memory({ initial: 1 }).grow(600); for (;;);", {"memory": 32 << 20}, "memory is used up"),
        (
            'return [new Uint8Array(0), new Uint8Array(0), \'{"kind": "memory"}\'];',
            {"memory": 10**9},
            "out of memory: compiling needs more than 1.00 GB",
        ),
    ],
)
def test_what_a_worker_does_wrong(
    compile: str, options: dict[str, Any], expected: str, page: Page, files: Path
) -> None:
    name, message = result(page, files, compile, **options)
    assert name == "SandboxError" and re.search(expected, message), message


def test_memory_within_the_ceiling(page: Page, files: Path) -> None:
    code = "new WebAssembly.Memory({ initial: 1 }).grow(100); throw new Error('grown');"
    assert "grown" in result(page, files, code, memory=32 << 20)[1]


def test_errors_of_the_compiler_keep_their_class(page: Page, files: Path) -> None:
    told = json.dumps({"kind": "webrt", "class": "InvalidModel", "what": "bad\\u0007", "node": "n", "op": "Add"})
    code = f"return [new Uint8Array(0), new Uint8Array(0), {json.dumps(told)}];"
    name, message = result(page, files, code)
    assert name == "InvalidModel" and message == "Add, node 'n': bad\\u0007"


def test_a_site_that_is_not_there(page: Page) -> None:
    begin(page, "/nowhere/site.json")
    name, message = page.evaluate("webrtResult")
    assert name == "SandboxError" and "HTTP 404" in message


def verdicts(page: Page, models: list[bytes]) -> list[str]:
    """What web/model-bytes.js says of each."""
    made: list[str] = page.evaluate(
        """async (models) => {
          const { whyNoModel } = await import("/web/model-bytes.js");
          return models.map((text) => whyNoModel(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));
        }""",
        [base64.b64encode(model).decode() for model in models],
    )
    return made


def test_what_is_no_model_is_refused_before_the_sandbox_starts(page: Page) -> None:
    for data, why in ((b"", "is empty (zero bytes)"), (b"This is no model.", "is no ONNX model, or is cut short")):
        outcome = page.evaluate(
            """async (text) => {
              const { compileInSandbox } = await import("/web/webrt.js");
              const made = compileInSandbox(new TextEncoder().encode(text), { site: "/nowhere/site.json" });
              return made.catch((e) => [e.name, e.message]);
            }""",
            data.decode(),
        )
        assert outcome == ["InvalidModel", f"the model {why}"]


def test_models_are_refused_only_where_protobuf_refuses_them(page: Page) -> None:
    """A small model cut anywhere, with a byte changed anywhere, and other files."""
    whole = text_model(GRAPHS["branches"])
    random = np.random.default_rng(0)
    changed = [bytearray(whole) for _ in whole]
    for i, data in enumerate(changed):
        data[i] ^= int(random.integers(1, 256))
    picture, archive = b"\x89PNG\r\n\x1a\n" + bytes(20), b"PK\x03\x04" + bytes(30)
    other = [b"", b"<!doctype html>", picture, archive, b"\x08\x09", b"\x3a\x00", bytes(range(256))]
    models = [whole[:n] for n in range(len(whole) + 1)] + [bytes(c) for c in changed] + other
    told = verdicts(page, models)
    there = [refused(data) for data in models]
    assert all(yes for yes, why in zip(there, told, strict=True) if why)
    cuts = slice(0, len(whole) + 1)
    assert [bool(why) for why in told[cuts]] == there[cuts] and there.count(False) > 1
    assert [bool(why) for why in told[-len(other) :]] == [True, True, True, True, True, False, True]


def refused(data: bytes) -> bool:
    """Whether the compiler takes these bytes for no model."""
    try:
        read_model(data)
        return False
    except InvalidModel:
        return True


def test_known_elements_arrive_as_they_are_or_are_refused(page: Page, files: Path) -> None:
    told = "JSON.stringify({ kind: 'webrt', class: 'InputError', what: request })"
    tell = f"return [new Uint8Array(0), new Uint8Array(0), {told}];"
    name, message = result(page, files, tell, options={"known": {"k": [1, 2.5], "on": True}})
    assert name == "InputError" and json.loads(message) == {"known": {"k": [1, 2.5], "on": True}}
    begin(page, "/nowhere/site.json", json.dumps({"options": {"known": {"k": 2**53}}}))
    assert page.evaluate("webrtResult") == ["InputError", f"{2**53} is too large to be exact"]
