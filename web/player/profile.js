/**
 * Times runs step by step: the twin of webrt/runtime/profile.py. Spans are { step, kind, begin, end }, in milliseconds of
 * performance.now(); step -1 is a command that brings an input or an output to its place, kinds are the twin's.
 */

import { resolve } from "./dims.js";
import { nameOf } from "./resolve.js";

const MOST = 2048; // commands per query set
const TIMESTAMPS = "timestamp queries";
const CPU_CLOCK = "CPU clock: every step is submitted and waited for alone";

/** The timer of a Gpu. Where the device has timestamp queries, a browser rounds them (Chrome to 0.1 ms). */
export class Profile {
  #device;
  #run = null;
  #steps = []; // { step, kind } of the commands since the last submit
  #sets = [];
  #waiting = [];

  /** `runs` are those that were timed before, on another device. */
  constructor(device, runs = []) {
    this.#device = device;
    this.runs = runs;
    this.alone = !device.features.has("timestamp-query");
  }

  begin() {
    this.#run = { begin: performance.now(), clock: this.alone ? CPU_CLOCK : TIMESTAMPS, spans: [], submits: [] };
  }

  /** What the pass of the next command has to write; undefined where the CPU's clock times it. */
  pass(command) {
    if (this.alone) return undefined;
    return { timestampWrites: this.#next(command) };
  }

  /** Encodes what `copy` does between two empty passes. */
  around(encoder, command, copy) {
    if (this.alone) return copy();
    const { querySet, beginningOfPassWriteIndex, endOfPassWriteIndex } = this.#next(command);
    encoder.beginComputePass({ timestampWrites: { querySet, beginningOfPassWriteIndex } }).end();
    copy();
    encoder.beginComputePass({ timestampWrites: { querySet, endOfPassWriteIndex } }).end();
    return undefined;
  }

  /** The last commands of a submit. */
  resolve(encoder) {
    for (let start = 0; start < this.#steps.length; start += MOST) {
      const steps = this.#steps.slice(start, start + MOST);
      const size = 16 * steps.length;
      const resolved = this.#buffer(size, GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC);
      const buffer = this.#buffer(size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
      encoder.resolveQuerySet(this.#sets[start / MOST], 0, 2 * steps.length, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, buffer, 0, size);
      this.#waiting.push({ steps, buffer, used: [resolved, this.#sets[start / MOST]], first: start === 0 });
    }
    this.#steps = [];
    this.#sets = [];
  }

  /** Runs what was recorded, a command of `step`, and waits for it. */
  async wait(gpu, command) {
    const begin = performance.now();
    gpu.submit();
    await this.#device.queue.onSubmittedWorkDone();
    this.#run.spans.push({ ...labelOf(command), begin, end: performance.now() });
  }

  /** What `work` gives, which the host does for a segment of host steps. */
  async host(steps, work) {
    const begin = performance.now();
    const made = await work();
    this.#run.spans.push({ step: steps[0], kind: "host", begin, end: performance.now() });
    return made;
  }

  /** Ends a run: `values` are its sizes, `kernelOf` gives the kernel of a dispatch. */
  async end(values, kernelOf) {
    const run = this.#run;
    let shift = null;
    for (const { steps, buffer, used, first } of this.#waiting.splice(0)) {
      await buffer.mapAsync(GPUMapMode.READ);
      const ticks = new BigUint64Array(buffer.getMappedRange().slice(0));
      [buffer, ...used].forEach((x) => x.destroy());
      const zero = ticks.reduce((least, t) => (t < least ? t : least), ticks[0]);
      const ms = Array.from(ticks, (t) => Number(t - zero) / 1e6);
      if (first || shift === null) shift = { zero, at: performance.now() - Math.max(...ms) };
      const at = shift.at + Number(zero - shift.zero) / 1e6;
      const spans = steps.map((label, i) => (
        { ...label, begin: at + ms[2 * i], end: at + Math.max(ms[2 * i], ms[2 * i + 1]) }));
      run.spans.push(...spans);
      run.submits.push([Math.min(...spans.map((s) => s.begin)), Math.max(...spans.map((s) => s.end))]);
    }
    const dispatches = new Set(run.spans.filter((s) => s.step >= 0 && s.kind === "dispatch").map((s) => s.step));
    const kernels = [...dispatches].map((step) => [step, kernelOf(step)]).filter(([, kernel]) => kernel !== null);
    this.runs.push({ ...run, end: performance.now(), values: [...values], kernels: Object.fromEntries(kernels) });
  }

  #next(command) {
    const at = this.#steps.length % MOST;
    if (!at) this.#sets.push(this.#device.createQuerySet({ type: "timestamp", count: 2 * MOST }));
    this.#steps.push(labelOf(command));
    return { querySet: this.#sets.at(-1), beginningOfPassWriteIndex: 2 * at, endOfPassWriteIndex: 2 * at + 1 };
  }

  #buffer(size, usage) {
    return this.#device.createBuffer({ label: "a profile's timestamps", size, usage });
  }
}

const labelOf = ({ step = -1, pipeline, texture }) => (
  { step, kind: pipeline ? "dispatch" : texture ? "fill" : "copy" });

/** Runs as a trace in Chrome's format (chrome://tracing, ui.perfetto.dev): an object for JSON. */
export function traceOf(plan, runs, adapter) {
  const zero = Math.min(...runs.map((r) => r.begin));
  const named = (name, tid, text) => ({ name, ph: "M", pid: 1, tid, args: { name: text } });
  const slice = (name, cat, tid, begin, end, args) => (
    { name, cat, ph: "X", ts: 1000 * (begin - zero), dur: 1000 * (end - begin), pid: 1, tid, args });
  const threads = ["runs", "device", "CPU provider"].map((text, i) => named("thread_name", i + 1, text));
  const traceEvents = [named("process_name", 0, `webrt on ${adapter}`), ...threads];
  runs.forEach((run, number) => {
    traceEvents.push(slice(`run ${number}`, "run", 1, run.begin, run.end, { clock: run.clock }));
    for (const [begin, end] of run.submits) traceEvents.push(slice("submit", "submit", 2, begin, end, { run: number }));
    for (const { step, kind, begin, end } of run.spans) {
      const args = { run: number, ...describe(plan, step, run) };
      const label = `${kind === "fill" ? "texture for " : ""}${args.op} ${args.node}`.trim();
      traceEvents.push(slice(label, kind, kind === "host" ? 3 : 2, begin, end, args));
    }
  });
  const clocks = [...new Set(runs.map((r) => r.clock))];
  return { traceEvents, displayTimeUnit: "ms", otherData: { adapter, clocks } };
}

function describe(plan, index, { kernels, values }) {
  const step = plan.steps[index];
  if (!step) return { step: index, kind: "copy", node: "", op: "copy of an input or an output" };
  const { node = "", op = nameOf(plan, step) } = plan.placement[step.node] ?? {};
  const { tensors = [], ops = [] } = plan.work[index] ?? {};
  const size = (ref) => resolve(ref, values) ?? "?";
  return {
    step: index, kind: step.kind, node, op: ops.join(" + ") || op,
    kernel: plan.kernels[kernels[index]]?.name ?? "",
    tensors: tensors.map(([type, shape]) => `${type}[${shape.map(size).join(", ")}]`),
  };
}
