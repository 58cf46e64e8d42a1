"""webrt under Pyodide in a page: InferenceSession on player.js, with and without waiting inside a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from webrt.cli import chromium, site

pytestmark = [pytest.mark.xdist_group("chromium"), pytest.mark.timeout(600)]

START = """async () => {
  const site = await (await fetch("site.json")).json();
  const index = new URL(site.pyodide.index, location.href).href;
  const { loadPyodide } = await import(`${index}pyodide.mjs`);
  globalThis.pyodide = await loadPyodide({ indexURL: index });
  await pyodide.loadPackage(site.pyodide.packages, { messageCallback() {} });
}"""

SETUP = '''
import json
import numpy as np
import webrt
from onnx import parser
from webrt.runtime import browser

def model(text):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString()

CHAIN = model("""agraph (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[4] w = {1.0, -2.0, 3.0, 0.5}>
    { a = Add(x, w)  b = Relu(a)  y = Mul(b, a)  z = Sub(y, w) }""")
import webrt.compiler.infer
from webrt import lowering
for name in ("NonZero", "Unique"):  # stay on the CPU, as operators without a kernel do
    del lowering._REGISTRY["", name]

LATE = model("""agraph (float[n] x, float least) => (float[k] y)
    { m = Greater(x, least)  kept = Compress <axis = 0> (x, m)  y = Neg(kept) }""")
HOSTED = model("""agraph (float[n] x) => (float[m] y, int64[1, k] nz)
    { a = Abs(x)  nz = NonZero(a)  u = Unique(a)  y = Exp(u) }""")
LOOP = model("""agraph (float[4] x, int64 n) => (float[4] y, float[T, 4] all) {
    y, all = Loop (n, , x) <body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] s2, float[4] o) {
        c2 = Identity (c) d = Cast <to = 11> (s) e = Abs (d) f = Cast <to = 1> (e) g = Add (f, x)
        o = Neg (g) ten = Constant <value = float {100.0}> () m = ReduceMax <keepdims = 0> (g) on = Less (m, ten)
        s2 = If (on) <then_branch = t () => (float[4] p) { p = Add (g, f) },
          else_branch = u () => (float[4] q) { q = Identity (x) }> }> }""")
W = np.array([1, -2, 3, 0.5], np.float32)
x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5

def expected(x):
    y = np.maximum(x + W, 0) * (x + W)
    return y, y - W

def close(got, want):
    pairs = list(zip(got, want, strict=True))
    return [(g.dtype, g.shape) == (w.dtype, w.shape) and bool(np.allclose(g, w, 1e-4, 1e-5)) for g, w in pairs]

def told(action, *args, **kwargs):
    try:
        action(*args, **kwargs)
    except webrt.WebrtError as e:
        return [type(e).__name__, str(e)]
'''


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with Pyodide and webrt, and SETUP in its globals."""
    folder: Path = tmp_path_factory.mktemp("pyodide") / "site"
    site.build_site(folder, demo=False)
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href='data:,'><title>webrt</title>")
    context = browser.new_context()
    with chromium.serve(folder) as base:
        made = context.new_page()
        made.set_default_timeout(300_000)
        made.goto(f"{base}blank.html")
        made.evaluate(START)
        made.evaluate("code => { pyodide.runPython(code); }", SETUP)
        yield made
    context.close()


def run(page: Page, code: str) -> Any:
    """What the last line of `code` is, as JSON; the code may await."""
    *lines, last = code.strip().splitlines()
    source = "\n".join([*lines, f"json.dumps({last.strip()})"])
    return json.loads(page.evaluate("code => pyodide.runPythonAsync(code)", source))


def test_a_session_is_made_and_run_with_await(page: Page) -> None:
    assert run(
        page,
        """
session = await webrt.InferenceSession.create(CHAIN)
got = await session.arun(None, {"x": x})
await session.arun(["z"], {"x": x})
stats = session.last_run
await session.arun(["z"], {"x": x})
whole = stats.dispatches == len(session.plan.steps)
[close(got, expected(x)), session.last_run == stats, stats.submits, stats.buffers, stats.pipelines, whole]
""",
    ) == [[True, True], True, 1, 0, 0, True]


def test_a_session_is_made_and_run_without_await(page: Page) -> None:
    assert run(
        page,
        """
with webrt.InferenceSession(CHAIN) as session:
    got = session.run(None, {"x": x})
    (z,) = session.run(["z"], {"x": x[:2]})
[close(got, expected(x)), close([z], expected(x[:2])[1:]), told(session.run, None, {"x": x})]
""",
    ) == [[True, True], [True], ["DeviceError", "the session was closed; make a new one"]]


def test_tensors_stay_on_the_device(page: Page) -> None:
    assert run(
        page,
        """
session = webrt.InferenceSession(CHAIN)
(y,) = session.run(["y"], {"x": x}, output_location="device")
again = session.run(None, {"x": y})
given = webrt.Tensor.from_numpy(x, session.device)
from_given = session.run(None, {"x": given})
before = session.device.counters
given.close()
freed = before.buffers - session.device.counters.buffers
right = [close([y.numpy()], expected(x)[:1]), close(again, expected(expected(x)[0])), close(from_given, expected(x))]
[right, freed, repr(y).split(" on ")[0]]
""",
    ) == [[[True], [True, True], [True, True]], 1, "Tensor(float32[3,4]"]


def test_host_segments_run_in_python(page: Page) -> None:
    assert run(
        page,
        """
session = webrt.InferenceSession(HOSTED)
how = {p.op: p.how for p in session.get_placement()}
feeds = [np.array(v, np.float32) for v in ([1, -1, 0, 2], [0, 0], [3, 1, -3, 0, 5, 5, 7, 9, -1])]
got = [session.run(None, {"x": f}) for f in feeds]
want = [(np.exp(np.unique(np.abs(f))), np.stack(np.nonzero(f)).astype(np.int64)) for f in feeds]
[[close(g, w) for g, w in zip(got, want)], how["Unique"], session.last_run.host_nodes >= 1]
""",
    ) == [[[True, True]] * 3, "host", True]


def test_a_loop_with_host_steps(page: Page) -> None:
    """A branch within it; values of an iteration cross the border, and nothing else."""
    assert run(
        page,
        """
def by_hand(s, n):
    made, first = [], s
    for _ in range(n):
        f = np.abs(s)
        g = f + first
        made.append(-g)
        s = g + f if g.max() < 100 else first
    return s, np.array(made, np.float32).reshape(n, 4)
session = webrt.InferenceSession(LOOP)
how = {p.op: p.how for p in session.get_placement()}
row = np.array([1, -2, 3, 4], np.float32)
right = []
for n in (3, 0, 7, 3, 3):
    right += close(session.run(None, {"x": row, "n": np.array(n, np.int64)}), by_hand(row, n))
stats = session.last_run
[right, how["Loop"], how["If"], stats.host_nodes, stats.buffers, stats.pipelines]
""",
    ) == [[True] * 10, "loop", "branch", 9, 0, 0]


def test_sizes_are_read_back(page: Page) -> None:
    assert run(
        page,
        """
session = webrt.InferenceSession(LATE)
feeds = [np.array(v, np.float32) for v in ([1, -1, 0, 2], [0, 0], [3, 1, -3, 0, 5, 5, 7, 9, -1], [1, -1, 0, 2])]
got = [session.run(None, {"x": f, "least": np.float32(0)})[0] for f in feeds]
again = session.run(None, {"x": feeds[-1], "least": np.float32(0)})
stats = session.last_run
[close(got, [-f[f > 0] for f in feeds]), stats.host_nodes, stats.buffers, stats.submits]
""",
    ) == [[True] * 4, 0, 0, 2]


def test_errors_have_python_classes(page: Page) -> None:
    answers = run(
        page,
        """
session = webrt.InferenceSession(CHAIN)
wrong = [{}, {"x": x, "q": x}, {"x": x.astype(np.float64)}, {"x": x[0]}, {"x": x[:, :3]}]
plan = session.plan
kernel = plan.kernels[0]
import dataclasses
broken = dataclasses.replace(kernel, wgsl=kernel.wgsl.replace("fn main", "fn nothing() { let a = nowhere; } fn main"))
bad = dataclasses.replace(plan, kernels=(broken, *plan.kernels[1:]))
large = dataclasses.replace(plan, target={**plan.target, "limits": {"maxStorageBuffersPerShaderStage": 1000}})
answers = [told(session.run, None, f) for f in wrong]
answers += [told(browser.BrowserSession, p, session.device) for p in (bad, large)]
answers
""",
    )
    assert [a[0] for a in answers] == ["InputError"] * 5 + ["KernelError", "TargetError"]
    assert "expected" in answers[2][1]
    assert "nowhere" in answers[5][1]
    assert "1000" in answers[6][1]


def test_errors_of_the_host_keep_their_class(page: Page) -> None:
    assert run(
        page,
        """
class Failing:
    def prepare(self, node, opsets):
        return self
    def run(self, inputs, outer=None):
        raise webrt.ShapeError("no such shape")
session = webrt.InferenceSession(HOSTED)
other = browser.BrowserSession(session.plan, session.device, Failing())
told(other.run, None, {"x": np.ones(3, np.float32)})
""",
    ) == ["ShapeError", "no such shape"]


def test_profiles(page: Page) -> None:
    assert run(
        page,
        """
from webrt.runtime.report import report
session = webrt.InferenceSession(HOSTED)
f = np.array([1, -1, 0, 2], np.float32)
plain = session.run(None, {"x": f})
session.start_profiling()
same = [close(session.run(None, {"x": f}), plain) for _ in range(2)]
runs = session.profiled_runs
hosted = [sum(s.kind == "host" for s in r.spans) == session.last_run.host_nodes for r in runs]
made = report(runs, "here")
name = session.end_profiling()
events = json.load(open(name))["traceEvents"]
cats = sorted({e["cat"] for e in events if "cat" in e} - {"copy", "fill"})
[same, hosted, made["clock"], made["dispatches"] > 0, made["host_ms"] > 0, cats, session.profiled_runs]
""",
    ) == [[[True, True]] * 2, [True, True], "timestamp queries", True, True, ["dispatch", "host", "run", "submit"], []]
