/** Measures alternatives on the device, over buffers of their own: the twin of webrt/runtime/measure.py. */

import { InputError, OutOfMemory, PlanError, TargetError, padded, product } from "./common.js";
import { resolve } from "./dims.js";
import { fill } from "./gpu.js";
import { SKIP } from "./resolve.js";
import { keyOf } from "./textures.js";

const ROUNDS = 5;
const LEAST_ROUNDS = 3; // with fewer nothing is known
const ENOUGH = 4e-3; // seconds that a measurement should take: Chrome's timestamps are multiples of 0.1 ms
const MOST_REPEATS = 100;
const FAR = 3;
const WORTH = 0.95;

/**
 * Measures what the table lacks of a plan at sizes `values`, the largest first, until the budget is used up. Whether the
 * table has more than before. After `timeout` seconds of waiting for a measurement the device is given up.
 */
export async function tune(scope, tuning, values, timeout) {
  let added = false;
  for (let refused = -1; refused !== scope.refused.size;) {
    refused = scope.refused.size;
    const jobs = jobsOf(scope, tuning, values).sort((a, b) => b.count * b.groups - a.count * a.groups);
    for (const job of jobs) {
      if (tuning.budget > 0 && await measure(scope, tuning, { ...job, timeout }, values)) added = true;
    }
  }
  return added;
}

async function measure(scope, tuning, job, values) {
  const start = performance.now();
  const candidates = new Candidates(scope, tuning, job, values, start + 1000 * tuning.budget);
  let entry = null;
  try {
    entry = await candidates.entry();
  } catch (e) {
    // What does not fit beside the session is not measured; a run tells what does not fit at all.
    if (![OutOfMemory, TargetError, InputError, PlanError].some((kind) => e instanceof kind)) throw e;
  } finally {
    candidates.free();
  }
  tuning.budget -= (performance.now() - start) / 1000;
  if (entry) tuning.table.put(entry);
  return entry !== null;
}

/** Dispatches with the same alternatives and about the same sizes: the first of them, and how many they are. */
function jobsOf(scope, tuning, values) {
  const found = new Map();
  const { choices } = scope.resolver;
  for (const [i, step] of scope.plan.steps.entries()) {
    if (step.kind !== "dispatch" || step.alternatives.length < 2) continue;
    const options = choices.options(i, values);
    const key = choices.key(i, options, values);
    if (!key || tuning.table.has(...key)) continue;
    const groups = product(step.alternatives[options[0]].slice(1).map((g) => resolve(g, values)));
    if (groups <= 0) continue;
    const name = JSON.stringify(key);
    if (found.has(name)) found.get(name).count += 1;
    else found.set(name, { key, step, index: i, options, groups, count: 1 });
  }
  return [...found.values()];
}

/** The alternatives of a job, over scratch buffers. */
class Candidates {
  #made = [];

  constructor(scope, tuning, job, values, end) {
    Object.assign(this, { scope, tuning, job, values, end, step: job.step, gpu: scope.session.gpu });
  }

  /** What was measured; null where the time was too short, a kernel was refused, or there is nothing to do. */
  async entry() {
    const { scope, job, step, values } = this;
    const ready = job.options.map((i) => scope.resolver.ready(step, step.alternatives[i], values));
    const words = scope.resolver.words(step, values);
    const unknown = ready.some((r) => r === null || r === SKIP || scope.refused.has(r.kernel));
    if (unknown || words === null) return null;
    if (await scope.makePipelines(() => ready.map((r) => [scope, job.index, r.kernel]))) return null;
    const buffers = new Map(step.bindings.map(([place]) => [String(place), place]));
    for (const [name, place] of buffers) buffers.set(name, this.#alloc(this.#nbytes(place)));
    const params = words.length ? this.#params(words) : null;
    const works = ready.map((r) => ({ kernel: scope.plan.kernels[r.kernel], commands: this.#commands(r, buffers, params) }));
    const times = await this.#times(works);
    await this.gpu.settle();
    return times && choose(job, works, times);
  }

  free() {
    this.#made.forEach((x) => this.gpu.free(x));
  }

  #alloc(nbytes, usage) {
    const made = this.gpu.alloc(nbytes, "tuning", usage);
    this.#made.push(made);
    return made;
  }

  #params(words) {
    const made = this.#alloc(4 * words.length, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    this.gpu.write(made, 0, new Uint8Array(Uint32Array.from(words, (w) => w >>> 0).buffer));
    return { buffer: made, offset: 0, nbytes: made.nbytes };
  }

  #nbytes([kind, index]) {
    const { plan } = this.scope;
    const size = kind === "c" ? plan.constants[index].nbytes : resolve(plan.slots[index].size, this.values);
    if (size === null) throw new PlanError("the size of a slot is not known");
    return padded(size);
  }

  /** What a run does for an alternative: copies of slots into textures, and the dispatch. */
  #commands(ready, buffers, params) {
    const through = new Map(ready.textures);
    const made = new Map();
    const fills = [];
    const most = this.scope.resolver.target.limits.maxStorageBufferBindingSize;
    const resources = this.step.bindings.map(([place], i) => {
      const buffer = buffers.get(String(place));
      if (through.has(i)) {
        const content = through.get(i);
        const key = keyOf(content);
        if (!made.has(key)) {
          made.set(key, this.#texture(content));
          if (place[0] === "s") fills.push(fillOf(buffer, made.get(key), content));
        }
        return made.get(key);
      }
      const offset = ready.numbers[i];
      const nbytes = ready.sizes[i] || Math.min(buffer.nbytes - offset, most);
      if (!(nbytes > 0 && nbytes <= buffer.nbytes - offset)) throw new PlanError("a dispatch binds what is beyond a tensor");
      return { buffer, offset, nbytes };
    });
    if (params) resources.unshift(params);
    const pipeline = this.scope.pipeline(ready.kernel);
    const group = this.gpu.bind(pipeline, resources, this.scope.resolver.name(this.step));
    return [...fills, { pipeline, group, groups: ready.groups }];
  }

  #texture({ texels, words }) {
    const made = this.gpu.allocTexture(texels, words, "tuning");
    this.#made.push(made);
    return made;
  }

  /**
   * Seconds of each candidate in rounds through the default and all that are not far behind after the first; null where
   * the budget does not last. Each runs once before, unmeasured: drivers finish kernels then.
   */
  async #times(works) {
    let found = [];
    for (let round = 0; round < 2; round += 1) {
      found = [];
      for (const work of works) {
        if (performance.now() >= this.end) return null;
        found.push([await this.#time(work, 1)]);
      }
    }
    const best = Math.min(...found.map(([t]) => t));
    const left = works.map((_, i) => i).filter((i) => i === 0 || found[i][0] <= FAR * best);
    const repeats = Math.max(1, Math.min(MOST_REPEATS, Math.trunc(ENOUGH / Math.max(best, 1e-9))));
    for (let round = 1; round < ROUNDS && performance.now() < this.end; round += 1) {
      for (const i of left) found[i].push(await this.#time(works[i], repeats));
    }
    return found[0].length < LEAST_ROUNDS ? null : found;
  }

  /** Seconds of a candidate's commands. */
  async #time({ kernel, commands }, repeats) {
    this.gpu.counters.measured += 1;
    if (this.tuning.timer) return this.tuning.timer(kernel);
    const every = Array.from({ length: repeats }, () => commands).flat();
    return (await secondsOf(this.gpu, every, this.job.timeout)) / repeats;
  }
}

/** Seconds that commands take, by timestamps, or by the host's clock where there are none. */
async function secondsOf(gpu, commands, timeout) {
  const { device } = gpu;
  const stamps = device.features.has("timestamp-query") ? new Stamps(device) : null;
  const encoder = device.createCommandEncoder();
  stamps?.mark(encoder, "beginningOfPassWriteIndex", 0);
  encode(encoder, commands);
  stamps?.mark(encoder, "endOfPassWriteIndex", 1);
  stamps?.resolve(encoder);
  const start = performance.now();
  gpu.guard("a measurement", () => device.queue.submit([encoder.finish()]));
  return gpu.within(timeout, async () => {
    if (stamps) return stamps.seconds();
    await device.queue.onSubmittedWorkDone();
    gpu.alive();
    return (performance.now() - start) / 1000;
  });
}

/** Consecutive dispatches share one compute pass. */
function encode(encoder, commands) {
  let pass = null;
  for (const command of commands) {
    if (command.texture) {
      pass?.end();
      pass = null;
      fill(encoder, command);
      continue;
    }
    pass ??= encoder.beginComputePass();
    pass.setPipeline(command.pipeline.handle);
    pass.setBindGroup(0, command.group);
    pass.dispatchWorkgroups(...command.groups);
  }
  pass?.end();
}

/** Two timestamps of a submit. */
class Stamps {
  constructor(device) {
    this.queries = device.createQuerySet({ type: "timestamp", count: 2 });
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    this.resolved = device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
    this.readable = device.createBuffer({ size: 16, usage: COPY_DST | MAP_READ });
  }

  /** An empty pass that writes one of them. */
  mark(encoder, when, index) {
    encoder.beginComputePass({ timestampWrites: { querySet: this.queries, [when]: index } }).end();
  }

  resolve(encoder) {
    encoder.resolveQuerySet(this.queries, 0, 2, this.resolved, 0);
    encoder.copyBufferToBuffer(this.resolved, 0, this.readable, 0, 16);
  }

  /** The time between them. May be called once. */
  async seconds() {
    await this.readable.mapAsync(GPUMapMode.READ);
    const [begin, end] = new BigUint64Array(this.readable.getMappedRange());
    const seconds = Number(end - begin) / 1e9;
    [this.readable, this.resolved, this.queries].forEach((x) => x.destroy());
    return Math.max(0, seconds);
  }
}

function fillOf(source, texture, { offset, texels }) {
  if (offset + 16 * texels > source.nbytes) throw new PlanError("a texture holds what is beyond a tensor");
  return { source, sourceOffset: offset, texture, texels };
}

function median(times) {
  const sorted = [...times].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The fastest, unless the default is about as fast: other work on the machine is no reason for another. */
function choose({ key: [kernels, bucket] }, works, times) {
  const medians = times.map(median);
  const best = medians.indexOf(Math.min(...medians));
  const faster = medians[best] < WORTH * medians[0] && Math.min(...times[best]) < WORTH * Math.min(...times[0]);
  const chosen = kernels[faster ? best : 0];
  const us = medians.map((t) => Math.round(1e9 * t) / 1000);
  return { kernels, names: works.map((w) => w.kernel.name.slice(0, 100)), bucket, chosen, us };
}
