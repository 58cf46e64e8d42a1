/**
 * Runs a webrt plan (a .webrt file, format in webrt/plan.py) on WebGPU: ES modules, no dependencies, no build step.
 *
 *   const session = await loadPlan("model.webrt");
 *   const { y } = await session.run({ x: { data: new Float32Array(6), dims: [2, 3] } });   // y = { dtype, dims, data }
 *   session.release();
 *
 * A plan with host steps needs a host provider, `host(steps, inputs) -> Promise<outputs>`: it runs the plan's steps of
 * these indices; inputs and outputs are { name: { dtype, dims, data } }. The plan's constants are not
 * passed.
 * `data` may be null for a value that never meets a device: the host then keeps it by name, for the same run.
 */

import { DeviceError, PlacementError } from "./player/common.js";
import { shareDevice } from "./player/device.js";
import { sizeText } from "./player/dims.js";
import { Gpu } from "./player/gpu.js";
import { pipelineOf } from "./player/kernels.js";
import { Memory } from "./player/memory.js";
import { Profile, traceOf } from "./player/profile.js";
import { Resolver, nameOf, placesOf } from "./player/resolve.js";
import { Run } from "./player/run.js";
import { Source, readPlan } from "./player/source.js";

export {
  DTYPES, DeviceError, DeviceLost, InputError, KernelError, ModelError, NoAdapter, OutOfMemory, PlacementError,
  PlanError, ShapeError, TargetError, UnsupportedType, WebrtError,
} from "./player/common.js";
export { evaluate } from "./player/dims.js";
export { GpuTensor } from "./player/feeds.js";
export { openDevice } from "./player/device.js";
export { checkKernels } from "./player/kernels.js";
export { parsePlan } from "./player/plan.js";

const MAX_FRAMES = 8;

/**
 * A session of a .webrt file: its bytes, a Blob, a Response, a ReadableStream or a URL.
 *
 * Options: `device` (a GPUDevice that stays the caller's), `host` (see above), `fetch`, and `onProgress(stage, done,
 * total)` with the stages "download" (bytes of constants) and "pipelines". Raises PlanError, PlacementError, NoAdapter,
 * TargetError, KernelError, OutOfMemory or DeviceLost.
 */
export async function loadPlan(file, { device, host = null, fetch = globalThis.fetch, onProgress = () => {} } = {}) {
  const source = await Source.open(file, (url) => fetch(url));
  let session = null;
  let leave = () => {};
  try {
    const plan = await readPlan(source);
    refuseHostSteps(plan, host);
    if (!device) ({ device, leave } = await shareDevice());
    session = new Session(plan, device, { host, leave });
    await session.load(source, onProgress);
    return session;
  } catch (e) {
    source.cancel();
    if (session) session.release();
    else leave();
    throw e;
  }
}

function refuseHostSteps(plan, host) {
  const steps = plan.steps.filter((s) => s.kind === "host");
  if (host !== null || !steps.length) return;
  const names = steps.map((s) => nameOf(plan, s)).join(", ");
  throw new PlacementError(`the plan has nodes for the CPU provider, and none was given: ${names}`);
}

/** A plan on a device: constants resident, runs repeated, one at a time. Made by `loadPlan`. */
export class Session {
  constants = new Map();
  evaluated = new Map();
  #pipelines = new Map();
  #groups = new Map();
  #frames = new Map();
  #sums = null;
  #last = Promise.resolve();
  #released = false;
  #leave;

  constructor(plan, device, { host, leave }) {
    this.plan = plan;
    this.host = host;
    this.#leave = leave;
    this.gpu = new Gpu(device);
    this.resolver = new Resolver(plan, this.gpu.target);
    this.memory = new Memory(plan, this.gpu, this.resolver);
  }

  /** The inputs: [{ name, dtype, shape }], shape a list of numbers and expressions, or null. */
  get inputs() {
    return this.plan.inputs.map((info) => this.#describe(info));
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
    const work = [
      this.#makePipelines(this.plan.steps.map((_, i) => this.resolver.choices.first(i)), onProgress).catch(failed),
      this.#loadConstants(source, onProgress),
    ];
    const results = await Promise.allSettled(work);
    const first = results.find((r) => r.status === "rejected");
    if (first) throw await this.gpu.named(first.reason);
    await this.gpu.settle();
  }

  /**
   * Runs once. `feeds`: { name: typed array | list | { data, dims } | device tensor }. Options: `outputs` (names,
   * default all), `location` ("cpu" or "gpu", for all or by name).
   * Returns { name: { dtype, dims, data } }; with "gpu", a GpuTensor.
   */
  run(feeds, { outputs, location = "cpu" } = {}) {
    const turn = this.#last.then(() => this.#run(feeds, outputs, location));
    this.#last = turn.catch(() => null);
    return turn;
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
    this.memory.close();
    this.gpu.close();
    this.#groups.clear();
    this.#frames.clear();
    this.#leave();
  }

  /** All numbers of the plan at these sizes, and the pipelines that they need; kept for the last few. */
  async frame(key, values) {
    if (!this.#frames.has(key)) {
      const frame = this.resolver.frame(values);
      await this.#makePipelines(frame.steps.map((ready) => ready?.kernel));
      if (this.#frames.size >= MAX_FRAMES) this.#frames.delete(this.#frames.keys().next().value);
      this.#frames.set(key, frame);
    }
    return this.#frames.get(key);
  }

  /** The pipeline of a dispatch's kernel and its bind group over these resources, which is kept. */
  group(index, kernel, resources) {
    const pipeline = this.#pipelines.get(kernel);
    const name = (r) => (r.view ? `t${r.id}` : `${r.buffer.id}:${r.offset}:${r.nbytes}`);
    const key = `${kernel}:${resources.map(name).join()}`;
    let kept = this.#groups.get(index);
    if (kept?.key !== key) {
      kept = { key, group: this.gpu.bind(pipeline, resources) };
      this.#groups.set(index, kept);
    }
    return { pipeline, group: kept.group };
  }

  /** What `work` gives; at the first run of a shape under error scopes. */
  async checked(frame, work) {
    const result = await (frame.fresh ? this.gpu.guard("the first run at these sizes", work) : work());
    await this.gpu.settle();
    return result;
  }

  async #run(feeds, outputs, location) {
    if (this.#released) throw new DeviceError("the session was released; make a new one");
    this.gpu.alive();
    try {
      const run = new Run(this, outputs, location);
      const { profile } = this.gpu;
      profile?.begin();
      const made = await run.go(feeds);
      await profile?.end(run.sizes.values, (step) => run.kernelOf(step));
      return made;
    } catch (e) {
      throw await this.gpu.named(e);
    }
  }

  /** The pipelines of `kernels`, of each step one or none, as far as there is none yet. */
  async #makePipelines(kernels, onProgress = () => {}) {
    const missing = new Map();
    kernels.forEach((kernel, i) => {
      if (kernel === undefined || this.#pipelines.has(kernel) || missing.has(kernel)) return;
      const where = this.resolver.where(this.plan.steps[i]);
      missing.set(kernel, pipelineOf(this.gpu, this.plan.kernels[kernel], where));
    });
    let done = 0;
    await Promise.all([...missing].map(async ([kernel, made]) => {
      this.#pipelines.set(kernel, await made);
      done += 1;
      onProgress("pipelines", done, missing.size);
    }));
  }

  async #loadConstants(source, onProgress) {
    const { inputs, outputs, values, steps } = this.plan;
    const { buffers, contents } = this.resolver.choices.constants();
    const others = steps.filter((s) => s.kind !== "dispatch").flatMap(placesOf);
    const places = [...others, ...[...inputs, ...outputs, ...values.values()].map((v) => v.place)];
    const wanted = new Set([...buffers, ...places.filter((p) => p?.[0] === "c").map(([, index]) => index)]);
    const kept = new Set(this.plan.outputs.map((v) => v.constant).filter((c) => c !== null));
    const loaded = await this.memory.load(source, { wanted, contents, kept, sums: this.#sums }, onProgress);
    this.constants = loaded.host;
    this.#sums = loaded.sums;
  }

  #describe(info) {
    const shape = info.shape === null ? null : info.shape.map((d) => sizeText(this.plan.dims, d));
    return { name: info.name, dtype: info.dtype, shape };
  }
}
