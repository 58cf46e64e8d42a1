/** Kernels as pipelines, and what the browser's compiler says of them. */

import { KernelError } from "./common.js";
import { openDevice } from "./device.js";

// By the letters of webrt/kernel_layout.py.
const ENTRIES = {
  r: { buffer: { type: "read-only-storage" } },
  w: { buffer: { type: "storage" } },
  f: { texture: { sampleType: "unfilterable-float" } },
  u: { texture: { sampleType: "uint" } },
  F: { storageTexture: { access: "read-only", format: "rgba32float" } },
  U: { storageTexture: { access: "read-only", format: "rgba32uint" } },
};

// Pipelines that a device remembers, the latest asked for; sessions hold theirs for as long as they live.
const MOST_KEPT = 1024;
const pipelinesOf = new WeakMap();

/**
 * A pipeline { handle, layout, first, sampler } with an explicit layout, for a Gpu; equal texts and layouts share one per
 * device. `where` is the node and operator for a KernelError, whose `said` is what is wrong in one line.
 */
export async function pipelineOf(gpu, kernel, where) {
  if (!pipelinesOf.has(gpu.device)) pipelinesOf.set(gpu.device, new Map());
  const made = pipelinesOf.get(gpu.device);
  const code = dialect(kernel);
  const { words, access, sampler } = kernel.layout;
  const key = `${words} ${access} ${sampler}\n${code}`;
  let pipeline = made.get(key);
  if (pipeline === undefined) {
    gpu.counters.pipelines += 1;
    pipeline = makePipeline(gpu, kernel, code);
    pipeline.catch(() => made.get(key) === pipeline && made.delete(key));
  }
  keepLatest(made, key, pipeline, MOST_KEPT);
  try {
    return await pipeline;
  } catch (e) {
    throw e instanceof Refused ? Object.assign(new KernelError(e.message, where), { said: e.said }) : e;
  }
}

/** Puts a key last in a Map, which keeps the `most` last. */
export function keepLatest(map, key, value, most) {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value);
}

async function makePipeline(gpu, { name, layout: { words, access, sampler } }, code) {
  const kinds = [...(words ? [{ buffer: { type: "uniform" } }] : []), ...[...access].map((a) => ENTRIES[a])];
  if (sampler) kinds.push({ sampler: { type: "non-filtering" } });
  const first = words ? 0 : 1;
  const entries = kinds.map((kind, i) => ({ binding: i + first, visibility: GPUShaderStage.COMPUTE, ...kind }));
  gpu.device.pushErrorScope("validation"); // the pipeline's rejection says the same
  const module = gpu.device.createShaderModule({ label: name, code });
  const layout = gpu.device.createBindGroupLayout({ entries });
  const whole = gpu.device.createPipelineLayout({ bindGroupLayouts: [layout] });
  const made = gpu.device.createComputePipelineAsync({
    label: name, layout: whole, compute: { module, entryPoint: "main" },
  });
  gpu.device.popErrorScope().catch(() => null);
  try {
    return { handle: await made, layout, first, sampler };
  } catch (e) {
    gpu.alive();
    throw new Refused(name, code, e.message, (await module.getCompilationInfo()).messages);
  }
}

/** Tint wants `enable subgroups;`, which naga refuses, so plans carry no such line. */
function dialect(kernel) {
  const features = kernel.requires?.features ?? [];
  const enables = [["shader-f16", "enable f16;\n"], ["subgroups", "enable subgroups;\n"]];
  return enables.filter(([f]) => features.includes(f)).map(([, line]) => line).join("") + kernel.wgsl;
}

/** A refusal of WGSL before it is known for which node. */
class Refused extends Error {
  constructor(name, code, text, messages) {
    const errors = messages.filter((m) => m.type === "error");
    const said = errors.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`).join("\n") || text;
    super(`the device refused the kernel '${name}':\n${said}\n${excerpt(code, errors[0]?.lineNum ?? 1)}`);
    [this.said] = said.split("\n");
  }
}

function excerpt(code, line, around = 4) {
  const lines = code.split("\n").map((text, i) => `${i + 1 === line ? ">" : " "}${String(i + 1).padStart(4)} ${text}`);
  return lines.slice(Math.max(0, line - 1 - around), line + around).join("\n");
}

/** Compiles kernels { name, wgsl, requires }; returns { name, messages: ["line:column text"], missing: [features] }. */
export async function checkKernels(kernels, device) {
  const on = device ?? await openDevice();
  const said = await Promise.all(kernels.map((kernel) => checkKernel(kernel, on)));
  if (!device) on.destroy();
  return said;
}

async function checkKernel(kernel, on) {
  const missing = (kernel.requires?.features ?? []).filter((f) => !on.features.has(f));
  if (missing.length) return { name: kernel.name, messages: [], missing };
  on.pushErrorScope("validation"); // the messages say the same
  const module = on.createShaderModule({ label: kernel.name, code: dialect(kernel) });
  on.popErrorScope();
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter((m) => m.type === "error");
  return { name: kernel.name, messages: errors.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`), missing };
}
