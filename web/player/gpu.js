/** A WebGPU device: errors by name, counters, and commands that are recorded until a submit is due. */

import {
  DeviceError, DeviceLost, KernelError, NoAdapter, OutOfMemory, TargetError, WebrtError, padded, roundUp,
} from "./common.js";

const RAISED = [
  "maxStorageBuffersPerShaderStage", "maxUniformBufferBindingSize", "maxStorageBufferBindingSize", "maxBufferSize",
  "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupsPerDimension",
];
const FEATURES = ["subgroups", "shader-f16", "timestamp-query"];

let shared = null;

/** A device with all that the adapter offers of the limits and features that plans ask for. Raises NoAdapter. */
export async function openDevice() {
  if (!globalThis.navigator?.gpu) {
    throw new NoAdapter("this browser has no WebGPU here; use a current Chrome, Edge, Firefox or Safari, over https");
  }
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new NoAdapter("the browser found no WebGPU adapter; switch on hardware acceleration");
  const limits = RAISED.filter((name) => adapter.limits[name] !== undefined);
  try {
    return await adapter.requestDevice({
      requiredFeatures: FEATURES.filter((f) => adapter.features.has(f)),
      requiredLimits: Object.fromEntries(limits.map((name) => [name, adapter.limits[name]])),
    });
  } catch (e) {
    throw new NoAdapter(`the adapter gives no device (${e.message}); load the page again`);
  }
}

/** The device that sessions share unless one is given; it goes when the last of them is released. */
export async function shareDevice() {
  shared ??= { device: openDevice(), users: 0 };
  const mine = shared;
  const forget = () => { if (shared === mine) shared = null; };
  mine.users += 1;
  try {
    const device = await mine.device;
    device.lost.then(forget);
    const leave = () => {
      mine.users -= 1;
      if (mine.users === 0) {
        forget();
        device.destroy();
      }
    };
    return { device, leave };
  } catch (e) {
    forget();
    throw e;
  }
}

const pipelinesOf = new WeakMap();

/** A GPUDevice with counters, errors by name, and commands that are recorded until a submit is due. */
export class Gpu {
  counters = {
    buffers: 0, bytes: 0, created: 0, pipelines: 0, bindGroups: 0, submits: 0, dispatches: 0, copies: 0,
    written: 0, read: 0,
  };
  #checks = [];
  #encoder = null;
  #pass = null;
  #pipeline = null;
  #staging = null;
  #ids = 0;
  #lost = "";

  constructor(device) {
    this.device = device;
    const { vendor = "", architecture = "" } = device.adapterInfo ?? {};
    const { features, limits } = device;
    this.target = { name: `${vendor} ${architecture}`.trim() || "WebGPU", features, limits };
    device.lost.then((info) => { this.#lost = info.message || "it was destroyed"; });
  }

  alive() {
    if (!this.#lost) return;
    throw new DeviceLost(`the device '${this.target.name}' is lost (${this.#lost}); make a new session`);
  }

  /** What was thrown as a WebrtError; the browser's own errors become DeviceLost or DeviceError. */
  async named(e) {
    if (e instanceof WebrtError) return e;
    await Promise.race([this.device.lost, new Promise((done) => setTimeout(done))]);
    try {
      this.alive();
    } catch (lost) {
      return lost;
    }
    return e instanceof DOMException ? new DeviceError(`the device '${this.target.name}' refused it: ${e.message}`) : e;
  }

  /** Runs `make` under error scopes; `settle` raises what they catch. Scopes are a stack, so `make` must not wait. */
  guard(what, make) {
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    try {
      return make();
    } finally {
      const caught = [this.device.popErrorScope(), this.device.popErrorScope()];
      this.#checks.push(Promise.all(caught).then(([invalid, memory]) => {
        const device = `the device '${this.target.name}'`;
        if (memory) return new OutOfMemory(`${what}: ${device} has no memory left; use smaller inputs`);
        return invalid && new DeviceError(`${what}: ${device} refused it: ${invalid.message}`);
      }, () => null));
    }
  }

  /** Raises the first error that a scope caught since the last call. */
  async settle() {
    const caught = await Promise.all(this.#checks.splice(0));
    const error = caught.find((e) => e instanceof OutOfMemory) ?? caught.find((e) => e);
    if (error) throw error;
  }

  alloc(size, label, usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST) {
    const nbytes = padded(size);
    const { maxBufferSize } = this.target.limits;
    if (nbytes > maxBufferSize) {
      throw new TargetError(`${label} needs a buffer of ${nbytes} bytes; `
        + `the device '${this.target.name}' has maxBufferSize ${maxBufferSize}`);
    }
    const make = () => this.device.createBuffer({ label, size: nbytes, usage });
    const handle = this.guard(`${label}, ${nbytes} bytes`, make);
    this.counters.buffers += 1;
    this.counters.created += 1;
    this.counters.bytes += nbytes;
    this.#ids += 1;
    return { handle, nbytes, label, id: this.#ids };
  }

  free(buffer) {
    if (!buffer?.handle) return;
    buffer.handle.destroy();
    buffer.handle = null;
    this.counters.buffers -= 1;
    this.counters.bytes -= buffer.nbytes;
  }

  /** Writes bytes, then zeros up to a multiple of 16. What was recorded runs before. */
  write(buffer, offset, bytes) {
    this.submit();
    const { queue } = this.device;
    const main = bytes.length - (bytes.length % 16);
    if (main) queue.writeBuffer(buffer.handle, offset, bytes, 0, main); // sizes and offsets are multiples of 4
    if (main < bytes.length) {
      const tail = new Uint8Array(16);
      tail.set(bytes.subarray(main));
      queue.writeBuffer(buffer.handle, offset + main, tail);
    }
    this.counters.written += bytes.length;
  }

  bind(pipeline, ranges) {
    const entries = ranges.map((r, i) => ({
      binding: i + pipeline.first, resource: { buffer: r.buffer.handle, offset: r.offset, size: r.nbytes },
    }));
    this.counters.bindGroups += 1;
    return this.guard("a bind group", () => this.device.createBindGroup({ layout: pipeline.layout, entries }));
  }

  record(command) {
    this.#encoder ??= this.device.createCommandEncoder();
    if (!command.pipeline) {
      this.#endPass();
      const { source, sourceOffset, target, targetOffset, nbytes } = command;
      this.#encoder.copyBufferToBuffer(source.handle, sourceOffset, target.handle, targetOffset, nbytes);
      this.counters.copies += 1;
      return;
    }
    this.#pass ??= this.#encoder.beginComputePass();
    if (command.pipeline !== this.#pipeline) this.#pass.setPipeline(command.pipeline.handle);
    this.#pipeline = command.pipeline;
    this.#pass.setBindGroup(0, command.group);
    this.#pass.dispatchWorkgroups(...command.groups);
    this.counters.dispatches += 1;
  }

  submit() {
    if (!this.#encoder) return;
    this.#endPass();
    this.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = null;
    this.counters.submits += 1;
  }

  /** Forgets what was recorded and not submitted. */
  drop() {
    this.#encoder = this.#pass = this.#pipeline = null;
  }

  /** Submits what was recorded; the bytes of each range { buffer, offset, nbytes } as an ArrayBuffer of its own. */
  async read(ranges) {
    const total = ranges.reduce((sum, r) => sum + roundUp(r.nbytes, 8), 0); // a mapping starts at a multiple of 8
    if (!total) {
      this.submit();
      return ranges.map(() => new ArrayBuffer(0));
    }
    const staging = this.#stagingOf(total);
    let at = 0;
    for (const r of ranges) {
      if (!r.nbytes) continue;
      this.#encoder ??= this.device.createCommandEncoder();
      this.#endPass();
      this.#encoder.copyBufferToBuffer(r.buffer.handle, r.offset, staging, at, roundUp(r.nbytes, 4));
      at += roundUp(r.nbytes, 8);
    }
    this.submit();
    await staging.mapAsync(GPUMapMode.READ, 0, total);
    const mapped = staging.getMappedRange(0, total);
    at = 0;
    const out = ranges.map((r) => {
      const start = at;
      at += roundUp(r.nbytes, 8);
      return mapped.slice(start, start + r.nbytes);
    });
    staging.unmap();
    this.counters.read += ranges.reduce((sum, r) => sum + r.nbytes, 0);
    return out;
  }

  /** A pipeline with an explicit layout; equal texts share one per device. Raises KernelError. */
  pipeline(kernel, where) {
    if (!pipelinesOf.has(this.device)) pipelinesOf.set(this.device, new Map());
    const made = pipelinesOf.get(this.device);
    const code = dialect(kernel);
    if (!made.has(code)) {
      this.counters.pipelines += 1;
      made.set(code, this.#makePipeline(kernel, code));
      made.get(code).catch(() => made.delete(code));
    }
    return made.get(code).catch((e) => { throw e instanceof KernelText ? new KernelError(e.message, where) : e; });
  }

  async #makePipeline({ name, layout: { words, access } }, code) {
    const storage = { r: "read-only-storage", w: "storage" };
    const types = [...(words ? ["uniform"] : []), ...[...access].map((a) => storage[a])];
    const first = words ? 0 : 1;
    const entries = types.map((type, i) => ({
      binding: i + first, visibility: GPUShaderStage.COMPUTE, buffer: { type },
    }));
    this.device.pushErrorScope("validation"); // the pipeline's rejection says the same
    const module = this.device.createShaderModule({ label: name, code });
    const layout = this.device.createBindGroupLayout({ entries });
    const whole = this.device.createPipelineLayout({ bindGroupLayouts: [layout] });
    const made = this.device.createComputePipelineAsync({
      label: name, layout: whole, compute: { module, entryPoint: "main" },
    });
    this.device.popErrorScope().catch(() => null);
    try {
      return { handle: await made, layout, first };
    } catch (e) {
      this.alive();
      throw new KernelText(name, code, e.message, (await module.getCompilationInfo()).messages);
    }
  }

  #stagingOf(nbytes) {
    if (this.#staging && this.#staging.nbytes < nbytes) {
      this.free(this.#staging);
      this.#staging = null;
    }
    const { maxBufferSize } = this.target.limits;
    const size = Math.max(4096, nbytes, Math.min(Math.ceil(nbytes * 1.5), maxBufferSize - 16));
    this.#staging ??= this.alloc(size, "read-back", GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
    return this.#staging.handle;
  }

  #endPass() {
    this.#pass?.end();
    this.#pass = this.#pipeline = null;
  }

  close() {
    this.drop();
    this.free(this.#staging);
    this.#staging = null;
  }
}

/** Tint wants `enable subgroups;`, which naga refuses, so plans carry no such line. */
function dialect(kernel) {
  const features = kernel.requires?.features ?? [];
  const enables = [["shader-f16", "enable f16;\n"], ["subgroups", "enable subgroups;\n"]];
  return enables.filter(([f]) => features.includes(f)).map(([, line]) => line).join("") + kernel.wgsl;
}

/** A refusal of WGSL before it is known for which node. */
class KernelText extends Error {
  constructor(name, code, text, messages) {
    const errors = messages.filter((m) => m.type === "error");
    const said = errors.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`).join("\n") || text;
    super(`the device refused the kernel '${name}':\n${said}\n${excerpt(code, errors[0]?.lineNum ?? 1)}`);
  }
}

function excerpt(code, line, around = 4) {
  const lines = code.split("\n").map((text, i) => `${i + 1 === line ? ">" : " "}${String(i + 1).padStart(4)} ${text}`);
  return lines.slice(Math.max(0, line - 1 - around), line + around).join("\n");
}

/** Compiles kernels { name, wgsl, requires }; returns { name, messages: ["line:column text"], missing: [features] }. */
export async function checkKernels(kernels, device) {
  const on = device ?? await openDevice();
  return Promise.all(kernels.map(async (kernel) => {
    const missing = (kernel.requires?.features ?? []).filter((f) => !on.features.has(f));
    if (missing.length) return { name: kernel.name, messages: [], missing };
    on.pushErrorScope("validation"); // the messages say the same
    const module = on.createShaderModule({ label: kernel.name, code: dialect(kernel) });
    on.popErrorScope();
    const { messages } = await module.getCompilationInfo();
    const errors = messages.filter((m) => m.type === "error");
    return { name: kernel.name, messages: errors.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`), missing };
  }));
}
