"""player.js in Chromium when something goes wrong: no memory, refused commands, runs that must end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.driver import Player
from tests.web.faults import refused, run, write_plans

pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture(scope="module")
def url(files: Path, base_url: str) -> str:
    write_plans(files)
    return base_url


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
      const labels = [];
      let last = null;
      GPUComputePassEncoder.prototype.setPipeline = function (p) {
        labels.push(p.label);
        this.label = p.label;
        setPipeline.call(this, p);
      };
      GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...groups) {
        dispatchWorkgroups.apply(this, this.label === last ? [70000] : groups);
      };
      await y(session);
      last = labels.at(-1);
      const ran = labels.length;
      const { dispatches } = session.counters;
      const out = [await told(() => y(session)), session.counters.dispatches - dispatches === ran];
      Object.assign(GPUComputePassEncoder.prototype, { setPipeline, dispatchWorkgroups });
      out.push(await y(session) === right);
      session.release();
      return [...out, session.plan.placement.at(-1)];
    """
    answer, counted, fine, placed = run(player, url, code)
    refused(answer, "DeviceError", f"^{placed['op']} '{placed['node']}': the device .* refused it: .*70000")
    assert counted and fine


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
      const x = { x: { data: new Float32Array(slowSize), dims: [slowSize] } };
      const out = [await told(() => session.run(x, { timeout: 0.1 })), await y(other) === right];
      session.release();
      other.release();
      return out;
    """
    answer, fine = run(player, url, code)
    refused(answer, "DeviceLost", r"did not end its work within 0\.1 s and was given up")
    assert fine


def test_a_loop_that_goes_on_for_too_long_is_ended(player: Player, url: str) -> None:
    """A trip count that only the feeds tell; the device answers, and stays."""
    code = """
      const session = await loadPlan(loop);
      const x = { data: new Float32Array(64).fill(0.1), dims: [8, 8] };
      const times = (n, options) => session.run({ x, n: { data: new BigInt64Array([n]), dims: [] } }, options);
      const first = [...(await times(3n)).y.data];
      const held = session.counters.buffers;
      const out = [];
      for (const n of [9n, 18n]) out.push(await told(() => times(10n ** n, { timeout: 2 })));
      out.push(first.join() === [...(await times(3n)).y.data].join(), session.counters.buffers === held);
      session.release();
      return out;
    """
    *ended, same, kept = run(player, url, code)
    for answer in ended:
        refused(answer, "RunTerminated", r"did not end within its 2 s \(timeout; session\.run_timeout in Python\)")
    assert same and kept


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
