"""Many runs, sessions, losses and tasks in Chromium: nothing is left over, and every answer is the serial one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.models import CHAIN, SPLIT, plan_of
from tests.faults.test_soak import CACHE, sizes
from tests.web.driver import Player
from webrt.planfile import save

pytestmark = pytest.mark.xdist_group("chromium")

PRELUDE = """
  const { loadPlan, openDevice } = await import("/web/player.js");
  const [chain, cache, split] = ["chain", "cache", "split"].map((name) => `${base}soak_${name}.webrt`);
  let state = 1;
  const random = (n) => { state = (state * 48271) % 2147483647; return state % n; };
  const noise = (...dims) => ({ data: Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) },
    () => random(2000) / 1000 - 1), dims });
  const same = (a, b) => a.y.data.length === b.y.data.length && a.y.data.every((v, i) => Object.is(v, b.y.data[i]));
  const held = (s) => `${s.counters.buffers} ${s.counters.bytes}`;
  // A host that has the square root in float64 of what a plan of SPLIT passes.
  const host = async (steps, { a: { dims, data } }) => ({ b: { dtype: "float64", dims, data: null },
    c: { dtype: "float64", dims, data: null }, d: { dtype: "float32", dims, data: data.map(Math.sqrt) } });
  // What createBuffer made and nobody destroyed, of every device from now on.
  const alive = new Set();
  const { createBuffer } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  GPUDevice.prototype.createBuffer = function (d) {
    const made = createBuffer.call(this, d);
    alive.add(made);
    return made;
  };
  GPUBuffer.prototype.destroy = function () { alive.delete(this); destroy.call(this); };
  const restore = () => {
    Object.assign(GPUDevice.prototype, { createBuffer });
    Object.assign(GPUBuffer.prototype, { destroy });
    return alive.size;
  };
"""


@pytest.fixture(scope="module")
def url(files: Path, base_url: str) -> str:
    for name, text in (("chain", CHAIN), ("cache", CACHE), ("split", SPLIT)):
        save(plan_of(text), files / f"soak_{name}.webrt")
    return base_url


def run(player: Player, url: str, count: int, code: str) -> Any:
    """What `code` returns in the page, which knows `count`."""
    return player.page.evaluate(f"async ([base, count]) => {{ {PRELUDE} {code} }}", [url, count])


@pytest.mark.timeout(900)
@sizes(100, 2000)
def test_runs_with_changing_shapes(player: Player, url: str, count: int) -> None:
    code = """
      const [a, b] = [await loadPlan(chain), await loadPlan(cache)];
      const big = noise(1, 64, 8);
      for (let i = 0; i < 2; i += 1) {
        await a.run({ x: noise(64, 4) });
        await b.run({ past: big, x: big });
      }
      const before = [held(a), held(b), alive.size].join();
      const wrong = [];
      for (let i = 0; i < count; i += 1) {
        const n = random(65);
        const ones = { data: new Float32Array(4 * n), dims: [n, 4] };
        const { y } = await a.run({ x: ones });
        const first = [1, 0, 3, 0.5].flatMap((v, k) => [0, 1, 2].map((j) => v * (3 * k + j + 1)));
        const row = [0, 1, 2].map((j) => first[j] + first[3 + j] + first[6 + j] + first[9 + j]);
        if (!y.data.every((v, k) => v === row[k % 3]) || y.data.length !== 3 * n) wrong.push(["chain", n]);
        const [past, x] = [noise(1, n, 8), noise(1, 64 - n, 8)];
        const joined = (await b.run({ past, x })).y.data;
        if (![...past.data, ...x.data].every((v, k) => joined[k] === v)) wrong.push(["cache", n]);
        if ([held(a), held(b), alive.size].join() !== before) wrong.push(["memory", n]);
      }
      a.release();
      b.release();
      return [wrong, held(a), held(b), restore()];
    """
    assert run(player, url, count, code) == [[], "0 0", "0 0", 0]


@pytest.mark.timeout(900)
@sizes(10, 200)
@pytest.mark.parametrize("shared", [True, False])
def test_sessions_made_and_released(player: Player, url: str, count: int, shared: bool) -> None:
    code = """
      const device = shared ? undefined : await openDevice();
      const keeper = await loadPlan(chain, { device });
      const want = await keeper.run({ x: noise(8, 4) });
      const before = [held(keeper), alive.size].join();
      const wrong = [];
      for (let i = 0; i < count; i += 1) {
        const session = await loadPlan(i % 2 ? cache : chain, { device });
        if (i % 2) await session.run({ past: noise(1, i % 5, 8), x: noise(1, 3, 8) });
        else await session.run({ x: noise(i % 7, 4) });
        session.release();
        if (held(session) !== "0 0" || [held(keeper), alive.size].join() !== before) wrong.push(i);
      }
      state = 1;
      const again = same(want, await keeper.run({ x: noise(8, 4) }));
      keeper.release();
      device?.destroy();
      return [wrong, again, restore()];
    """
    made = run(player, url, count, f"const shared = {str(shared).lower()}; {code}")
    assert made == [[], True, 0]


@pytest.mark.timeout(900)
@sizes(3, 50)
def test_losses(player: Player, url: str, count: int) -> None:
    code = """
      const [a, b] = [await loadPlan(chain, { autoRecover: true }), await loadPlan(cache, { autoRecover: true })];
      const requests = [{ x: noise(8, 4) }, { past: noise(1, 5, 8), x: noise(1, 3, 8) }];
      const want = [await a.run(requests[0]), await b.run(requests[1])];
      const before = [held(a), held(b), alive.size].join();
      const wrong = [];
      for (let i = 0; i < count; i += 1) {
        const lost = a.gpu.device;
        const running = i % 2 ? a.run(requests[0]) : null;
        lost.destroy();
        const first = await (running ?? a.run(requests[0]));
        const second = await b.run(requests[1]);
        if (!same(want[0], first) || !same(want[1], second)) wrong.push(i);
        await a.run(requests[0]); // a run that was over before the loss made no new device
        if (a.gpu.device !== b.gpu.device || a.gpu.device === lost) wrong.push(["device", i]);
        if ([held(a), held(b), alive.size].join() !== before) wrong.push(["memory", i, held(a), held(b), alive.size]);
      }
      a.release();
      b.release();
      return [wrong, held(a), held(b), restore()];
    """
    assert run(player, url, count, code) == [[], "0 0", "0 0", 0]


@pytest.mark.timeout(900)
@sizes(5, 100)
def test_tasks(player: Player, url: str, count: int) -> None:
    """8 tasks × `count` runs over 3 sessions equal the serial answers bit for bit."""
    code = """
      const sessions = [await loadPlan(chain), await loadPlan(cache), await loadPlan(split, { host })];
      const feeds = [() => ({ x: noise(random(40), 4) }),
        () => ({ past: noise(1, random(40), 8), x: noise(1, random(40), 8) }),
        () => { const x = noise(random(40)); x.data.forEach((v, i) => { x.data[i] = -Math.abs(v); }); return { x }; }];
      const requests = Array.from({ length: 24 }, (_, i) => [sessions[i % 3], feeds[i % 3]()]);
      const want = [];
      for (const [session, feed] of requests) want.push(await session.run(feed));
      const task = async (t) => {
        const wrong = [];
        for (let i = 0; i < count; i += 1) {
          const k = (t * 7 + i) % requests.length;
          const [session, feed] = requests[k];
          if (!same(want[k], await session.run(feed))) wrong.push(k);
        }
        return wrong;
      };
      const wrong = (await Promise.all([...Array(8).keys()].map(task))).flat();
      sessions.forEach((s) => s.release());
      return [wrong, restore()];
    """
    assert run(player, url, count, code) == [[], 0]
