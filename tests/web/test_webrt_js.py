"""webrt.js, the API for plain pages: a page uses it as its first lines say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.driver import Player
from tests.web.test_player import compiled
from webrt.planfile import save
from webrt.resources import web_dir

pytestmark = pytest.mark.xdist_group("chromium")

CHAIN = "agraph (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Relu(x)  z = Neg(y) }"


@pytest.fixture(scope="module")
def url(files: Path, base_url: str) -> str:
    save(compiled(CHAIN), files / "chain.webrt")
    return f"{base_url}chain.webrt"


def run(player: Player, code: str, url: str) -> Any:
    """What an async function of `webrt` and `url` returns; an error as [name, message]."""
    return player.page.evaluate(
        f"""async (url) => {{
          const webrt = await import("/web/webrt.js");
          const {{ InferenceSession, Tensor }} = webrt;
          try {{ {code} }} catch (e) {{ return [e.name, e.message]; }}
        }}""",
        url,
    )


def test_create_run_release(player: Player, url: str) -> None:
    code = """
      const session = await InferenceSession.create(url);
      const { y, z } = await session.run({ x: new Tensor("float32", new Float32Array([-1, 2, 3, 4, -5, 6]), [2, 3]) });
      await session.release();
      return [session.inputNames, session.outputNames, session.inputMetadata, y instanceof Tensor, y.type, y.dims,
              [...y.data], [...z.data], y.size, y.location];
    """
    assert run(player, code, url) == [
        ["x"], ["y", "z"], [{"name": "x", "type": "float32", "shape": ["n", 3]}], True, "float32", [2, 3],
        [0, 2, 3, 4, 0, 6], [0, -2, -3, -4, 0, -6], 6, "cpu",
    ]  # fmt: skip


def test_sources(player: Player, url: str) -> None:
    code = """
      const bytes = await (await fetch(url)).arrayBuffer();
      const stream = async () => (await fetch(url)).body;
      const pieces = () => new ReadableStream({
        start(c) {
          for (let i = 0; i < bytes.byteLength; i += 7) c.enqueue(new Uint8Array(bytes.slice(i, i + 7)));
          c.close();
        },
      });
      const offset = new Uint8Array(bytes.byteLength + 3);
      offset.set(new Uint8Array(bytes), 3);
      const sources = [url, new URL(url), bytes, new Uint8Array(bytes), offset.subarray(3), new Blob([bytes]),
                       await fetch(url), await stream(), pieces()];
      const out = [];
      for (const source of sources) {
        const session = await InferenceSession.create(source);
        out.push([...(await session.run({ x: { data: [1, -2, 3], dims: [1, 3] } })).y.data].join());
        await session.release();
      }
      return out;
    """
    assert run(player, code, url) == ["1,0,3"] * 9
    assert run(player, "return await InferenceSession.create(42);", url)[0] == "PlanError"


def test_outputs_on_the_gpu(player: Player, url: str) -> None:
    code = """
      const session = await InferenceSession.create(url, { preferredOutputLocation: { y: "gpu-buffer" } });
      const { y, z } = await session.run({ x: new Tensor("float32", new Float32Array([-1, 2, 3]), [1, 3]) });
      const again = await session.run({ x: y }, ["z"]);
      const read = [...await y.getData()];
      const out = [y.location, y.data === undefined, y.gpuBuffer instanceof GPUBuffer, z.location, read,
                   Object.keys(again), [...again.z.data]];
      y.dispose();
      await session.release();
      return out;
    """
    assert run(player, code, url) == ["gpu-buffer", True, True, "cpu", [0, 2, 3], ["z"], [0, -2, -3]]


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ('new Tensor("float33", [1]);', "InputError", "no tensor type 'float33'"),
        ('new Tensor("float32", [1, 2], [3]);', "InputError", r"\[3\] is not the shape of 2 elements"),
        ("const s = await InferenceSession.create(url); await s.run({});", "InputError", "no value for 'x'"),
        ('await InferenceSession.create(url + "x");', "PlanError", "HTTP 404"),
        (
            'const s = await InferenceSession.create(url); await s.run({ x: new Tensor("int32", [1, 2, 3], [1, 3]) });',
            "InputError",
            "it is int32",
        ),
    ],
)
def test_errors(player: Player, url: str, code: str, name: str, message: str) -> None:
    found = run(player, code, url)
    assert found[0] == name
    assert re.search(message, found[1])


def test_types_declare_what_is_exported(player: Player, url: str) -> None:
    exported = set(run(player, "return Object.keys(webrt);", url))
    text = (web_dir() / "webrt.d.ts").read_text(encoding="utf-8")
    declared = set(re.findall(r"^export (?:class|function|const) (\w+)", text, re.M))
    assert exported == declared
