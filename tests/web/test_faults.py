"""player.js in Chromium when something goes wrong: lost devices, no memory, refused commands, runs that must end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.models import CHAIN, SPLIT, plan_of, slow_plan
from tests.web.driver import Player
from webrt.plan import save

pytestmark = pytest.mark.xdist_group("chromium")

# Within a page: `webrt`, files of plans by name, and shortcuts. A call's error is told as [name, message].
PRELUDE = """
  const webrt = await import("/web/player.js");
  const { loadPlan, openDevice } = webrt;
  const feeds = { x: { data: new Float32Array([0, 3, 1, -4, 1, 1, 1, 1]), dims: [2, 4] } };
  const right = "33,39,45,45,52.5,60";
  const told = (work) => Promise.resolve().then(work).then(() => "nothing was thrown", (e) => [e.name, e.message]);
  const y = async (session, options) => [...(await session.run(feeds, options)).y.data].join();
  const bytes = async (name) => (await fetch(base + name)).arrayBuffer();
  const [chain, split, slow] = ["chain", "split", "slow"].map((name) => `${base}${name}.webrt`);
"""


@pytest.fixture(scope="module")
def url(files: Path, base_url: str) -> str:
    save(plan_of(CHAIN), files / "chain.webrt")
    save(plan_of(SPLIT), files / "split.webrt")
    slow_plan(files / "slow.webrt")
    return base_url


def run(player: Player, url: str, code: str) -> Any:
    """What `code` returns in the page."""
    return player.page.evaluate(f"async (base) => {{ {PRELUDE} {code} }}", url)


def refused(answer: Any, name: str, message: str) -> None:
    assert answer[0] == name, answer
    assert re.search(message, answer[1]), answer


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


OUT_OF_MEMORY = """
  // Buffers beyond `most` bytes are as invalid as those that a device has no memory for.
  const scarce = (device, most) => {
    const { createBuffer, popErrorScope } = device;
    let pops = 0;
    device.createBuffer = (d) => {
      if (d.size <= most) return createBuffer.call(device, d);
      pops = 2;
      device.pushErrorScope("validation");
      const made = createBuffer.call(device, { ...d, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.STORAGE });
      popErrorScope.call(device);
      return made;
    };
    device.popErrorScope = async () => {
      pops -= 1;
      const none = pops === 0;
      const found = await popErrorScope.call(device);
      return none ? new GPUOutOfMemoryError("no memory") : found;
    };
    return () => Object.assign(device, { createBuffer, popErrorScope });
  };
"""


def test_no_memory_names_sizes_and_leaves_everything_usable(player: Player, url: str) -> None:
    code = """
      const device = await openDevice();
      const session = await loadPlan(chain, { device });
      await y(session);
      const big = { x: { data: new Float32Array(400000), dims: [100000, 4] } };
      const plenty = scarce(device, 65536);
      const out = [await told(() => session.run(big)), await told(() => session.run(big, { location: "gpu" }))];
      out.push(await y(session) === right);
      plenty();
      out.push((await session.run(big)).y.data.length, await y(session) === right);
      const held = session.counters.buffers;
      const none = scarce(device, 0);
      out.push(await told(() => loadPlan(chain, { device })));
      none();
      out.push(await y(session) === right, session.counters.buffers === held);
      session.release();
      device.destroy();
      return [...out, session.counters.buffers];
    """
    cpu, gpu, small, size, right, load, *rest = run(player, url, OUT_OF_MEMORY + code)
    for answer in (cpu, gpu):
        refused(answer, "OutOfMemory", r"\d{6,} bytes: .* no memory left beside the \d+ bytes in \d+ buffers")
    refused(load, "OutOfMemory", r"\d+ bytes: .* no memory left")
    assert (small, size, right) == (True, 300_000, True) and rest == [True, True, 0]


def test_a_refused_command_is_told_with_its_node(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      await y(session);
      const { setPipeline, dispatchWorkgroups } = GPUComputePassEncoder.prototype;
      let count = 0;
      GPUComputePassEncoder.prototype.setPipeline = function (p) { this.label = p.label; setPipeline.call(this, p); };
      GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...groups) {
        dispatchWorkgroups.apply(this, this.label === last ? [70000] : groups);
      };
      const last = session.plan.kernels[session.plan.kernels.length - 1].name;
      const { dispatches } = session.counters;
      const out = [await told(() => y(session)), session.counters.dispatches - dispatches];
      Object.assign(GPUComputePassEncoder.prototype, { setPipeline, dispatchWorkgroups });
      out.push(await y(session) === right);
      session.release();
      return [...out, session.plan.placement.at(-1), session.plan.kernels.length];
    """
    answer, dispatches, fine, placed, kernels = run(player, url, code)
    refused(answer, "DeviceError", f"^{placed['op']} '{placed['node']}': the device .* refused it: .*70000")
    assert fine and dispatches == kernels == 3


def test_an_error_that_no_scope_caught_fails_the_run(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      await y(session);
      const { device } = session.gpu;
      device.createBuffer({ size: 16, usage: 0 });  // before the run: not its error
      await device.queue.onSubmittedWorkDone();
      const out = [await y(session) === right];
      const { submit } = device.queue;
      device.queue.submit = (list) => {
        device.createBuffer({ size: 16, usage: 0 });
        submit.call(device.queue, list);
      };
      const guard = session.gpu.guard;
      session.gpu.guard = (what, make) => make();  // as if nothing had asked for it
      out.push(await told(() => y(session)));
      session.gpu.guard = guard;
      device.queue.submit = submit;
      out.push(await y(session) === right);
      session.release();
      return out;
    """
    before, answer, after = run(player, url, code)
    refused(answer, "DeviceError", "failed meanwhile: .*usage")
    assert before and after


def test_a_failed_mapping_gives_no_zeros(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      const { mapAsync } = GPUBuffer.prototype;
      GPUBuffer.prototype.mapAsync = () => Promise.reject(new DOMException("the driver says no", "OperationError"));
      const out = [await told(() => y(session))];
      GPUBuffer.prototype.mapAsync = mapAsync;
      out.push(await y(session) === right);
      session.release();
      return [...out, session.counters.buffers];
    """
    answer, *fine = run(player, url, code)
    refused(answer, "DeviceError", "the driver says no")
    assert fine == [True, 0]


def test_an_abort_signal_ends_a_run(player: Player, url: str) -> None:
    code = """
      const ends = new AbortController();
      let ran = 0;
      const host = async () => { ran += 1; ends.abort(); return {
        b: { dtype: "float64", dims: [1], data: null }, c: { dtype: "float64", dims: [1], data: null },
        d: { dtype: "float32", dims: [1], data: new Float32Array([2]) } }; };
      const session = await loadPlan(split, { host });
      const x = { x: { data: new Float32Array([-4]), dims: [1] } };
      const { submits } = session.counters;
      const out = [await told(() => session.run(x, { signal: AbortSignal.abort() })), ran,
        session.counters.submits === submits];
      out.push(await told(() => session.run(x, { signal: ends.signal })), ran);
      out.push(await told(() => session.run(x, { signal: ends.signal })), ran);
      out.push([...(await session.run(x)).y.data]);
      const mine = new AbortController();
      mine.abort(new RangeError("enough"));
      out.push(await told(() => session.run(x, { signal: mine.signal })));
      const waits = new AbortController();
      const [first, second] = [session.run(x), told(() => session.run(x, { signal: waits.signal }))];
      waits.abort();
      out.push([...(await first).y.data], (await second)[0]);
      session.release();
      return out;
    """
    early, none, submits, within, ran, late, still, y, mine, first, second = run(player, url, code)
    for answer in (early, within, late):
        refused(answer, "AbortError", "abort")
    assert (none, submits, ran, still, y) == (0, True, 1, 1, [-2])
    assert mine == ["RangeError", "enough"] and first == [-2] and second == "AbortError"


def test_work_that_does_not_end_is_given_up(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(slow, { autoRecover: true });
      const other = await loadPlan(chain, { autoRecover: true });
      const x = { x: { data: new Float32Array(16384), dims: [16384] } };
      const out = [await told(() => session.run(x, { timeout: 0.1 })), await y(other) === right];
      session.release();
      other.release();
      return out;
    """
    answer, fine = run(player, url, code)
    refused(answer, "DeviceLost", r"did not end its work within 0\.1 s and was given up")
    assert fine


def test_release_gives_everything_back(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      const { y: tensor } = await session.run(feeds, { location: "gpu" });
      const running = told(() => y(session));
      session.release();
      session.release();
      const out = [await running, await told(() => y(session)), await told(() => session.recover())];
      const held = session.counters.buffers;
      tensor.dispose();
      return [...out, held, session.counters.buffers, session.counters.bytes];
    """
    running, later, recover, held, buffers, nbytes = run(player, url, code)
    for answer in (running, later, recover):
        refused(answer, "DeviceError", "the session was released; make a new one")
    assert (held, buffers, nbytes) == (1, 0, 0)


def test_unknown_outputs_in_locations_are_refused(player: Player, url: str) -> None:
    code = """
      const session = await loadPlan(chain);
      const out = await told(() => session.run(feeds, { location: { zz: "gpu" } }));
      session.release();
      return out;
    """
    refused(run(player, url, code), "InputError", "there is no output 'zz'; the outputs are y")
