/**
 * What webrt/runtime/browser.py calls: a run is one crossing of the border, plus one per host segment. Tensors cross as
 * lists [name, dtype, dims, data]: data are bytes, a GPUBuffer, or undefined for a value that Python has by that name.
 */

import { RunTerminated, loadPlan, openDevice } from "../player.js";
import { typed } from "./feeds.js";
import { Gpu } from "./gpu.js";
import { adapterOf } from "./tuning.js";

/** A device for Python: { device, gpu }. */
export async function open() {
  const device = await openDevice();
  return { device, gpu: new Gpu(device) };
}

/** The device's Target as JSON. */
export function describe({ device, gpu }) {
  const limits = {};
  for (const name in device.limits) limits[name] = device.limits[name];
  return JSON.stringify({
    ...gpu.target, limits, features: [...device.features],
  });
}

/** What the adapter says of itself, as JSON. */
export const adapter = ({ device }) => JSON.stringify(adapterOf(device));

/**
 * A session; `host(steps, tensors)` is Python's, or null where no step is the host's. `file` are the plan's bytes;
 * `known` is JSON, { table, budget } of what is known of the fastest kernels, or ""; `warn(text)` is Python's.
 */
export async function load(file, { device }, host, onProgress, known, warn) {
  const seen = new Set();
  const call = async (steps, inputs) => {
    const fetched = Object.entries(inputs).filter(([name]) => !seen.has(name));
    const made = await host(steps, fetched.map(toWire));
    return Object.fromEntries(made.map((tensor) => {
      seen.add(tensor[0]);
      return fromWire(tensor);
    }));
  };
  const progress = (...line) => { if (onProgress) onProgress(...line); };
  // A host is named always: Python keeps the values that never meet a device, even where no step is the host's.
  const { table = null, budget = null } = known ? JSON.parse(known) : {};
  const tuning = { tuning: table, tuningBudget: budget || null };
  const session = await loadPlan(file, { device, host: call, onProgress: progress, warn, ...tuning });
  return { session, seen };
}

/** Runs once: [outputs as tensors, counters]. `stopped()` is asked between submits and host steps. */
export async function run({ session, seen }, tensors, outputs, location, stopped, timeout) {
  const signal = {
    throwIfAborted() {
      if (stopped()) throw new RunTerminated("the run was ended by its caller (RunOptions.terminate)");
    },
  };
  seen.clear();
  for (const [name] of tensors) seen.add(name);
  const made = await session.run(Object.fromEntries(tensors.map(fromWire)), {
    outputs, location, signal, timeout: timeout ?? null,
  });
  return [Object.entries(made).map(toWire), session.counters];
}

/** Times runs from now on, or (`on` is false) no more. */
export function profile({ session }, on) {
  if (on) session.startProfiling();
  else session.endProfiling();
}

/** The runs that were timed since the last call, as JSON. */
export function profiled({ session }) {
  return JSON.stringify(session.gpu.profile.runs.splice(0));
}

/** The bytes of GPUBuffers: [[buffer, offset, nbytes]]. */
export async function read({ gpu }, ranges) {
  const parts = ranges.map(([handle, offset, nbytes]) => ({ buffer: { handle }, offset, nbytes }));
  return (await gpu.read(parts)).map((b) => new Uint8Array(b));
}

export function write({ gpu }, handle, offset, bytes) {
  gpu.alive();
  gpu.write({ handle }, offset, bytes);
}

function fromWire([name, dtype, dims, data]) {
  if (data instanceof GPUBuffer) return [name, { buffer: data, dtype, dims }];
  if (data === null || data === undefined) return [name, { dtype, dims, data: null }];
  return [name, { dtype, dims, data: typed(dtype, aligned(data)) }];
}

function toWire([name, value]) {
  const { dtype, dims, data } = value;
  if (value.dispose) return [name, dtype, dims, value];
  if (!ArrayBuffer.isView(data)) return [name, dtype, dims, undefined];
  return [name, dtype, dims, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)];
}

/** The buffer of exactly these bytes. */
function aligned({ buffer, byteOffset, byteLength }) {
  return byteLength === buffer.byteLength ? buffer : buffer.slice(byteOffset, byteOffset + byteLength);
}
