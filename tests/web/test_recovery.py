"""player.js in Chromium on a device that goes away, and on the next one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.faults.models import CHAIN, plan_of
from tests.web.driver import Player
from tests.web.faults import refused, run, write_plans
from webrt.planfile import save

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture(scope="module")
def url(files: Path, base_url: str) -> str:
    write_plans(files)
    return base_url


def test_the_expected_numbers_are_right(player: Player, url: str) -> None:
    x = np.array([[0, 3, 1, -4], [1, 1, 1, 1]], np.float32)
    want = np.maximum(x + np.array([1, -2, 3, 0.5], np.float32), 0) @ np.arange(1, 13).reshape(4, 3)
    answer = run(player, url, "const s = await loadPlan(chain); const v = await y(s); s.release(); return [v, right];")
    assert answer == [",".join(f"{v:g}" for v in want.reshape(-1))] * 2


@pytest.mark.parametrize("when", ["before", "between", "within"])
def test_lost_and_recovered(player: Player, url: str, when: str) -> None:
    code = """
      const session = await loadPlan(chain);
      if (when !== "before") await y(session);
      const lost = session.gpu.device;
      const started = when === "within" ? told(() => y(session)) : null;
      lost.destroy();
      const first = await (started ?? told(() => y(session)));
      const second = await told(() => y(session));
      await session.recover();
      const out = [await y(session), await y(session), session.gpu.device !== lost];
      session.release();
      return [first, second, out, session.counters.buffers, session.counters.bytes, right];
    """
    first, second, out, buffers, nbytes, right = run(player, url, f"const when = {when!r}; {code}")
    if when != "within" or first != "nothing was thrown":
        refused(first, "DeviceLost", "is lost .*recover the session, or make a new one")
    refused(second, "DeviceLost", "is lost")
    assert out == [right, right, True] and buffers == nbytes == 0


def test_lost_within_a_host_step(player: Player, url: str) -> None:
    code = """
      let lose = true;
      const host = async (steps, { a }) => {
        if (lose) session.gpu.device.destroy();
        lose = false;
        return Object.fromEntries(session.plan.steps.filter((s) => s.kind === "host").flatMap((s) => s.outputs)
          .map((n) => [n, n === "d" ? { dtype: "float32", dims: a.dims, data: a.data.map(Math.sqrt) }
            : { dtype: "float64", dims: a.dims, data: null }]));
      };
      const session = await loadPlan(split, { host });
      const x = { x: { data: new Float32Array([-4, -9]), dims: [2] } };
      const first = await told(() => session.run(x));
      await session.recover();
      const made = await session.run(x);
      session.release();
      return [first, [...made.y.data]];
    """
    first, y = run(player, url, code)
    refused(first, "DeviceLost", "is lost")
    assert y == [-2, -3]


def test_auto_recover(player: Player, url: str) -> None:
    code = """
      const out = [];
      for (const file of [chain, await bytes("chain.webrt"), new Blob([await bytes("chain.webrt")])]) {
        const session = await loadPlan(file, { autoRecover: true });
        for (let i = 0; i < 3; i += 1) {
          session.gpu.device.destroy();
          out.push(await y(session) === right);
        }
        session.release();
        out.push(session.counters.buffers === 0);
      }
      return out;
    """
    assert run(player, url, code) == [True] * 12


def test_sessions_of_one_device_share_the_next_one(player: Player, url: str) -> None:
    code = """
      const [a, b] = [await loadPlan(chain), await loadPlan(chain, { autoRecover: true })];
      const same = a.gpu.device === b.gpu.device;
      a.gpu.device.destroy();
      const first = await told(() => y(a));
      const out = [same, await y(b) === right];
      await a.recover();
      out.push(await y(a) === right, a.gpu.device === b.gpu.device);
      a.release();
      out.push(await y(b) === right);
      b.release();
      return [first[0], out];
    """
    assert run(player, url, code) == ["DeviceLost", [True] * 5]


def test_where_a_plan_cannot_be_read_again(player: Player, url: str, files: Path) -> None:
    save(plan_of(CHAIN), files / "goes.webrt")
    whole = (files / "goes.webrt").read_bytes()
    code = """
      const file = await bytes("chain.webrt");
      const session = await loadPlan(file);
      const streamed = await loadPlan((await fetch(chain)).body);
      globalThis.kept = await loadPlan(base + "goes.webrt", { fetch: (url) => fetch(url, { cache: "no-store" }) });
      session.gpu.device.destroy();
      const out = [await told(() => session.recover()), await told(() => streamed.recover())];
      await session.recover({ file });
      await streamed.recover({ file: chain });
      out.push(await y(session) === right, await y(streamed) === right);
      session.release();
      streamed.release();
      return out;
    """
    kept, stream, *fine = run(player, url, code)
    refused(kept, "PlanError", r"bytes of the plan were not kept; give them again, recover\(\{ file \}\)")
    refused(stream, "PlanError", r"were not kept|cannot be read again")
    assert fine == [True, True]
    (files / "goes.webrt").unlink()
    again = "const out = await told(() => kept.recover()); return [out, await told(() => y(kept))];"
    gone, run_then = run(player, url, again)
    refused(gone, "PlanError", "HTTP 404")
    refused(run_then, "DeviceLost", "is lost")
    for change in (-60, 60):
        changed = bytearray(whole)
        changed[change] ^= 1
        (files / "goes.webrt").write_bytes(changed)
        refused(run(player, url, again)[0], "PlanError", "damaged")
    save(plan_of(CHAIN.replace("-2.0", "-7.0")), files / "goes.webrt")
    refused(run(player, url, again)[0], "PlanError", "changed since it was opened")
    save(plan_of(CHAIN.replace("MatMul(r, m)", "MatMul(a, m)")), files / "goes.webrt")
    refused(run(player, url, again)[0], "PlanError", "changed since it was opened")
    (files / "goes.webrt").write_bytes(whole)
    code = "await kept.recover(); const out = await y(kept) === right; kept.release(); return out;"
    assert run(player, url, code)


def test_the_caller_s_device_is_the_caller_s_to_replace(player: Player, url: str) -> None:
    code = """
      const device = await openDevice();
      const session = await loadPlan(chain, { device, autoRecover: true });
      device.destroy();
      const out = [await told(() => y(session)), await told(() => session.recover())];
      const other = await openDevice();
      await session.recover({ device: other });
      out.push(await y(session) === right, session.gpu.device === other);
      session.release();
      other.destroy();
      return out;
    """
    run_told, recover_told, *fine = run(player, url, code)
    for answer in (run_told, recover_told):
        refused(answer, "DeviceLost", r"was the caller's; give another: recover\(\{ device \}\)")
    assert fine == [True, True]


def test_tensors_of_a_lost_device_say_so(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      const { y: tensor } = await session.run(feeds, { location: "gpu" });
      session.gpu.device.destroy();
      const out = [await told(() => tensor.read())];
      await session.recover();
      Object.assign(tensor, { dims: [2, 4] });
      out.push(await told(() => session.run({ x: tensor })), await y(session) === right, tensor.lost);
      tensor.dispose();
      session.release();
      return [...out, session.counters.buffers];
    """
    read, fed, *fine = run(player, url, code)
    refused(read, "DeviceLost", "is lost")
    refused(fed, "DeviceLost", "input 'x' was on a device that is lost; feed it from the host again")
    assert fine == [True, True, 0]
