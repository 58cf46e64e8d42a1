"""Sessions under Pyodide: lost devices, callers that end runs, many tasks, kernels that are measured."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.faults.models import CHAIN, SPLIT, model
from webrt.cli import chromium, site

pytestmark = [pytest.mark.xdist_group("pages"), pytest.mark.timeout(900)]

PYTHON = """
import asyncio, base64, json
import numpy as np
import webrt
from webrt import InferenceSession, RunOptions, SessionOptions

def told(error):
    return [type(error).__name__, str(error)]

async def caught(work):
    try:
        return await work
    except webrt.WebrtError as e:
        return told(e)

def sync(call, *args):
    try:
        return call(*args)
    except webrt.WebrtError as e:
        return told(e)

async def recovers(chain, split):
    options = SessionOptions()
    options.add_session_config_entry("session.auto_recover", "1")
    x = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    auto, plain = await InferenceSession.create(chain, options), await InferenceSession.create(chain)
    (want,), lost = await auto.arun(None, x), auto.device
    same = lambda made: bool(np.array_equal(made[0], want))
    out = {"shared": plain.device is lost}
    lost.opened.device.destroy()
    out["auto"] = same(await auto.arun(None, x))
    out["plain"] = await caught(plain.arun(None, x))
    await plain.arecover()
    out["again"] = [same(await plain.arun(None, x)), plain.device is auto.device, plain.device is not lost]
    plain.device.close()
    out["waiting"] = sync(plain.run, None, x)
    plain.recover()
    out["waited"] = [same(plain.run(None, x)), same(auto.run(None, x))]
    auto.close()
    out["closed"] = sync(auto.run, None, x)
    tensor = webrt.Tensor.from_numpy(x["x"], plain.device)
    plain.device.close()
    out["tensor"] = await caught(plain.arun(None, {"x": tensor}))
    await plain.arecover()
    out["fed"] = await caught(plain.arun(None, {"x": tensor}))
    plain.close()
    return out

async def ends(chain, split):
    session = await InferenceSession.create(split)
    x, options = {"x": np.array([-4, -9], np.float32)}, RunOptions()
    options.terminate = True
    out = {"ended": await caught(session.arun(None, x, options))}
    options.terminate = False
    out["went"] = (await session.arun(None, x, options))[0].tolist()
    session.close()
    return out

async def tasks(chain, split):
    a, b = await InferenceSession.create(chain), await InferenceSession.create(split)
    rng = np.random.default_rng(0)
    requests = [(a, {"x": rng.standard_normal((i, 4)).astype(np.float32)}) for i in range(6)]
    requests += [(b, {"x": -np.abs(rng.standard_normal(i)).astype(np.float32)}) for i in range(6)]
    want = [(await s.arun(None, x))[0].tobytes() for s, x in requests]
    async def one(t):
        mine = list(zip(requests, want))
        return [(await s.arun(None, x))[0].tobytes() == w for (s, x), w in mine[t:] + mine[:t]]
    wrong = [done for task in await asyncio.gather(*map(one, range(8))) for done in task if not done]
    a.close()
    b.close()
    return {"wrong": len(wrong)}

async def tunes(chain, split):
    import onnx
    head = '<ir_version: 8, opset_import: ["": 20]> g (float[n, 64] x, float[64, 32] w) => (float[n, 32] y)'
    text = head + " { y = MatMul(x, w) }"
    model = onnx.parser.parse_model(text).SerializeToString()
    rng = np.random.default_rng(0)
    x = {"x": rng.standard_normal((64, 64), np.float32), "w": rng.standard_normal((64, 32), np.float32)}
    out = {"measured": [], "near": []}
    for options in ({}, {"tuning": "1", "tuning_budget": 600}, {"tuning": "1"}):
        session = await InferenceSession.create(model, providers=[("WebGpuExecutionProvider", options)])
        (y,) = await session.arun(None, x)
        out["near"].append(bool(np.allclose(y, x["x"] @ x["w"], 1e-4, 1e-4)))
        out["measured"].append(int(session._general._loaded.session.counters.measured))
        session.close()
    return out

async def call(name, chain, split):
    return json.dumps(await globals()[name](base64.b64decode(chain), base64.b64decode(split)))
"""

WORKER = f"""
const started = (async () => {{
  const site = await (await fetch("site.json")).json();
  const at = (path) => new URL(path, location.href);
  const {{ loadPyodide }} = await import(at(site.pyodide.index + "pyodide.mjs"));
  const pyodide = await loadPyodide({{ indexURL: at(site.pyodide.index).href }});
  await pyodide.loadPackage(site.pyodide.packages, {{ messageCallback() {{}} }});
  pyodide.runPython({json.dumps(PYTHON)});
  return pyodide.globals.get("call");
}})();
onmessage = async ({{ data }}) => {{
  try {{
    postMessage(JSON.parse(await (await started)(...data)));
  }} catch (error) {{
    postMessage({{ error: String(error.message ?? error) }});
  }}
}};
"""
START = """() => {
  globalThis.worker = new Worker("faults.mjs", { type: "module" });
  globalThis.ask = (message) => new Promise((resolve) => {
    worker.onmessage = (event) => resolve(event.data);
    worker.onerror = (event) => resolve({ error: event.message });
    worker.postMessage(message);
  });
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("pyodide") / "site"
    site.build_site(folder, demo=False)
    (folder / "faults.mjs").write_text(WORKER, encoding="utf-8")
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href=data:,>", encoding="utf-8")
    with chromium.serve(folder) as base:
        opened = browser.new_page()
        opened.goto(base + "blank.html")
        opened.evaluate(START)
        yield opened
        opened.close()


def ask(page: Any, name: str) -> dict[str, Any]:
    models = [base64.b64encode(model(text)).decode() for text in (CHAIN, SPLIT)]
    answer: dict[str, Any] = page.evaluate("m => ask(m)", [name, *models])
    assert "error" not in answer, answer["error"]
    return answer


def test_lost_devices(page: Any) -> None:
    out = ask(page, "recovers")
    assert out["shared"] and out["auto"] and out["again"] == [True] * 3 and out["waited"] == [True] * 2
    for name in ("plain", "waiting", "tensor", "fed"):
        assert out[name][0] == "DeviceLost", out[name]
    assert "feed it from the host again" in out["fed"][1]
    assert out["closed"] == ["DeviceError", "the session was closed; make a new one"]


def test_a_run_that_its_caller_ends(page: Any) -> None:
    out = ask(page, "ends")
    assert out["ended"][0] == "RunTerminated" and out["went"] == [-2, -3]


def test_many_tasks(page: Any) -> None:
    assert ask(page, "tasks") == {"wrong": 0}


def test_the_browser_remembers_what_a_session_measured(page: Any) -> None:
    out = ask(page, "tunes")
    assert out["near"] == [True] * 3
    assert out["measured"][0] == out["measured"][2] == 0 < out["measured"][1]
