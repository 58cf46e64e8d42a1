/**
 * Runs a webrt plan (a .webrt file, format in webrt/planfile.py) on WebGPU: ES modules, no dependencies, no build step.
 *
 *   const session = await loadPlan("model.webrt");
 *   const { y } = await session.run({ x: { data: new Float32Array(6), dims: [2, 3] } });   // y = { dtype, dims, data }
 *   session.release();
 *
 * A plan with host steps needs a host provider, `host(steps, inputs) -> Promise<outputs>`: it runs the plan's steps of
 * these indices (among all steps, each followed by those within it); inputs and outputs are { name: { dtype, dims, data } }. The plan's constants are not
 * passed.
 * `data` may be null for a value that never meets a device: the host then keeps it by name, for the same run.
 */

import { DeviceError, DeviceLost, PlacementError, PlanError } from "./player/common.js";
import { shareDevice } from "./player/device.js";
import { sizeText } from "./player/dims.js";
import { Gpu } from "./player/gpu.js";
import { fixedOf } from "./player/known.js";
import { Profile, traceOf } from "./player/profile.js";
import { nameOf } from "./player/resolve.js";
import { Run } from "./player/run.js";
import { Scope } from "./player/scope.js";
import { Origin, readPlan } from "./player/source.js";
import { walk } from "./player/subplans.js";
import { Tuning } from "./player/tuning.js";

// What these import in turn: named here, a browser asks for all of them at once and not level by level.
import {} from "./player/checks.js";
import {} from "./player/checksum.js";
import {} from "./player/choose.js";
import {} from "./player/flow.js";
import {} from "./player/measure.js";
import {} from "./player/memory.js";
import {} from "./player/segments.js";
import {} from "./player/steps.js";
import {} from "./player/textures.js";

export {
  DTYPES, DeviceError, DeviceLost, InputError, KernelError, ModelError, NoAdapter, OutOfMemory, PlacementError,
  PlanError, RunTerminated, SandboxError, ShapeError, TargetError, UnsupportedType, WebrtError,
} from "./player/common.js";
export { evaluate } from "./player/dims.js";
export { GpuTensor } from "./player/feeds.js";
export { openDevice } from "./player/device.js";
export { checkKernels } from "./player/kernels.js";
export { parsePlan } from "./player/plan.js";

/**
 * A session of a .webrt file: its bytes, a Blob, a Response, a ReadableStream or a URL.
 *
 * Options: `device` (a GPUDevice that stays the caller's), `host` (see above), `fetch`, `autoRecover` (a run that meets
 * a lost device gets a new one and is done once more; bytes are kept for that), and `onProgress(stage, done, total)` with
 * the stages "download" (bytes of constants) and "pipelines". `tuning`: true, where kernels that do the same are measured
 * at the first run, for `tuningBudget` seconds in all (2), and the browser remembers the fastest; or a table that was
 * measured before (`session.tuning.table` as JSON, or `webrt tune`'s). `tuningTimer(kernel)` gives seconds in place of the
 * device's clock. `warn(text)` is told what is not as a user would expect it (the console is, without it). Raises
 * PlanError, PlacementError, NoAdapter, TargetError, KernelError, OutOfMemory or DeviceLost.
 */
export async function loadPlan(file, { warn = toConsole, ...others } = {}) {
  const options = { ...others, warn };
  const { host = null, fetch = globalThis.fetch, onProgress = () => {}, autoRecover = false } = options;
  const given = options.device;
  const opening = given ? Promise.resolve({ device: given, leave: () => {} }) : shareDevice();
  opening.catch(() => null); // what is wrong with the plan is told first
  let source = null;
  let session = null;
  try {
    const origin = new Origin(file, (url) => fetch(url), autoRecover);
    source = await origin.opened;
    const plan = await readPlan(source);
    refuseHostSteps(plan, host);
    const { device, leave } = await opening;
    const tuning = await Tuning.open(device, options, plan.tuning);
    session = new Session(plan, device, { host, leave, origin, autoRecover, shared: !given, options, tuning });
    await session.load(source, onProgress);
    origin.loaded();
    return session;
  } catch (e) {
    source?.cancel();
    if (session) session.release();
    else opening.then(({ leave }) => leave(), () => null);
    throw e;
  }
}

const toConsole = (text) => console.warn(`webrt: ${text}`);

function refuseHostSteps(plan, host) {
  const steps = walk(plan.steps).filter((s) => s.kind === "host");
  if (host !== null || !steps.length) return;
  const names = steps.map((s) => nameOf(plan, s)).join(", ");
  throw new PlacementError(`the plan has nodes for the CPU provider, and none was given: ${names}`);
}

/** A plan on a device: constants resident, runs repeated, one at a time. Made by `loadPlan`. */
export class Session {
  constants = new Map();
  #sums = null;
  #last = Promise.resolve();
  #released = false;
  #leave;
  #origin;
  #autoRecover;
  #shared;
  #options;

  constructor(plan, device, { host, leave, origin, autoRecover, shared, options, tuning }) {
    this.plan = plan;
    this.host = host;
    this.warn = options.warn;
    this.tuning = tuning;
    this.#options = options;
    this.#leave = leave;
    this.#origin = origin;
    this.#autoRecover = autoRecover;
    this.#shared = shared;
    this.#attach(device);
  }

  #attach(device) {
    const { counters, profile } = this.gpu ?? {};
    this.gpu = new Gpu(device, counters);
    if (profile) this.gpu.profile = new Profile(device, profile.runs);
    this.scope = new Scope(this, this.plan);
  }

  /** The inputs: [{ name, dtype, shape }], shape a list of numbers and expressions, or null; one with `fixed` may be left out. */
  get inputs() {
    return this.plan.inputs.map((info) => ({ ...this.#describe(info), ...fixedOf(this.plan, info.name) }));
  }

  get outputs() {
    return this.plan.outputs.map((info) => this.#describe(info));
  }

  /** Which provider runs each node, and why. */
  get placement() {
    return this.plan.placement;
  }

  /** What was done since the session was made; `buffers` and `bytes` are alive now. */
  get counters() {
    return { ...this.gpu.counters };
  }

  /** Makes pipelines while constants arrive. */
  async load(source, onProgress) {
    const failed = (e) => {
      source.cancel();
      throw e;
    };
    for (const scope of this.scope.every()) await scope.tune(scope.plan.dims.map(() => null)).catch(failed);
    const work = [
      this.scope.makeFirst(onProgress).catch(failed),
      this.#loadConstants(source, onProgress),
    ];
    const results = await Promise.allSettled(work);
    const first = results.find((r) => r.status === "rejected");
    if (first) throw await this.gpu.named(first.reason);
    await this.loadMissing();
    await this.gpu.settle();
  }

  /** Reads the plan's file once more where alternatives that took a refused kernel's place want other constants. */
  async loadMissing() {
    const constants = this.scope.constants();
    if (this.scope.memory.holds(constants)) return;
    if (!this.#origin.canRepeat) {
      throw new PlanError("a kernel was refused, and another needs constants that were not kept; load the plan from a URL "
        + "or a Blob, or with autoRecover");
    }
    const source = await this.#origin.again();
    try {
      await this.#skipPlan(source);
      await this.scope.memory.load(source, { ...constants, kept: new Set(), sums: this.#sums }, () => {});
    } finally {
      source.cancel();
    }
  }

  /**
   * Runs once. `feeds`: { name: typed array | list | { data, dims } | device tensor }. Options: `outputs` (names,
   * default all), `location` ("cpu" or "gpu", for all or by name), `signal` (an AbortSignal, which ends the run between
   * submits, host steps and iterations: its reason is thrown), `timeout` (seconds for the run, which ends there as well:
   * RunTerminated; and for one wait for the device, which is given up after that: DeviceLost).
   * Returns { name: { dtype, dims, data } }; with "gpu", a GpuTensor.
   */
  run(feeds, options = {}) {
    return this.#turn(async () => {
      try {
        return await this.#run(feeds, options);
      } catch (e) {
        if (!this.#autoRecover || !(e instanceof DeviceLost) || e.timedOut) throw e;
      }
      await this.#recover({});
      return this.#run(feeds, options);
    });
  }

  /**
   * After a DeviceLost: another device, with the constants and pipelines of this session on it. It does nothing where
   * the device is there. Sessions that shared the lost device share the new one as each of them recovers.
   *
   * Options: `device`, where the lost one was the caller's; `file`, where the plan was given as a stream, or as bytes
   * without `autoRecover`. Raises PlanError where the file is gone or another one, and what `loadPlan` raises.
   */
  recover({ device, file } = {}) {
    return this.#turn(() => this.#recover({ device, file }));
  }

  /** Times runs step by step from now on. */
  startProfiling() {
    this.gpu.profile = new Profile(this.gpu.device);
  }

  /** The runs that were timed, as a Chrome trace: an object for JSON, or null where none was. They are timed no more. */
  endProfiling() {
    const { runs } = this.gpu.profile ?? { runs: [] };
    this.gpu.profile = null;
    return runs.length ? traceOf(this.plan, runs, this.gpu.target.name) : null;
  }

  /** Frees all device memory of the session; a shared device goes with its last session. May be called again. */
  release() {
    if (this.#released) return;
    this.#released = true;
    this.scope.close();
    this.gpu.close();
    this.#leave();
  }

  /** Work on the session waits for the work before it. */
  #turn(work) {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => null);
    return turn;
  }

  #open() {
    if (this.#released) throw new DeviceError("the session was released; make a new one");
  }

  async #run(feeds, options) {
    this.#open();
    this.gpu.alive();
    try {
      const run = new Run(this, options);
      const { profile } = this.gpu;
      profile?.begin();
      const made = await run.go(feeds);
      await profile?.end(run.sizes.values, (step) => run.kernelOf(step));
      return made;
    } catch (e) {
      const { signal } = options;
      if (signal?.aborted && e === signal.reason) throw e;
      this.#open();
      throw await this.gpu.named(e);
    }
  }

  async #recover({ device, file }) {
    this.#open();
    if (!await this.gpu.isLost()) return;
    const source = await this.#origin.again(file);
    try {
      await this.#skipPlan(source);
      await this.#move(device ? { device, leave: () => {} } : await this.#another(), source);
    } catch (e) {
      source.cancel();
      throw e;
    }
  }

  /** Reads a source up to the constants. Raises PlanError where its plan is another than this session's. */
  async #skipPlan(source) {
    const { digest } = await readPlan(source);
    if (digest !== this.plan.digest) throw new PlanError("the plan's file was changed since it was opened; load it anew");
  }

  async #another() {
    if (this.#shared) return shareDevice();
    throw new DeviceLost("the lost device was the caller's; give another: recover({ device })");
  }

  async #move({ device, leave }, source) {
    const { gpu, scope } = this;
    scope.close();
    gpu.close();
    try {
      this.tuning = await Tuning.open(device, this.#options, this.plan.tuning);
      this.#attach(device);
      await this.load(source, () => {});
    } catch (e) {
      this.scope.close();
      this.gpu.close();
      leave();
      Object.assign(this, { gpu, scope }); // still lost: it can be tried again
      throw e;
    }
    this.#leave();
    this.#leave = leave;
  }

  async #loadConstants(source, onProgress) {
    const loaded = await this.scope.memory.load(source, { ...this.scope.constants(), sums: this.#sums }, onProgress);
    this.constants = loaded.host;
    this.#sums = loaded.sums;
  }

  #describe(info) {
    const shape = info.shape === null ? null : info.shape.map((d) => sizeText(this.plan.dims, d));
    return { name: info.name, dtype: info.dtype, shape };
  }
}
