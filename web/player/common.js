/** Errors, element types and limits: the twins of webrt/errors.py, dtypes.py and target.py. */

/** The root of all errors; the same tree, names and texts as webrt/errors.py. */
export class WebrtError extends Error {
  constructor(what, { node = "", op = "", opset = null, inputs = "" } = {}) {
    const where = [];
    if (op) where.push(op + (opset === null ? "" : ` (opset ${opset})`));
    if (node) where.push(`node '${node}'`);
    if (inputs) where.push(`inputs ${inputs}`);
    super(where.length ? `${where.join(", ")}: ${what}` : what);
    Object.assign(this, { what, node, op, opset, inputs });
    this.name = new.target.name;
  }
}
export class PlanError extends WebrtError {}
export class PlacementError extends WebrtError {}
export class TargetError extends WebrtError {}
export class KernelError extends WebrtError {}
export class InputError extends WebrtError {}
export class ModelError extends WebrtError {}
export class UnsupportedType extends ModelError {}
export class ShapeError extends ModelError {}
export class SandboxError extends WebrtError {}
export class DeviceError extends WebrtError {}
export class NoAdapter extends DeviceError {}
export class DeviceLost extends DeviceError {}
export class OutOfMemory extends DeviceError {}
/** The caller, or a time, ended a run; a run that an AbortSignal ends throws the signal's own reason. */
export class RunTerminated extends WebrtError {}

/** Element types: bits in a buffer, the JavaScript array (null: never in an array of numbers), whether devices hold them. */
export const DTYPES = new Map(Object.entries({
  float32: [32, Float32Array, true], uint8: [8, Uint8Array, true], int8: [8, Int8Array, true],
  uint16: [16, Uint16Array, true], int16: [16, Int16Array, true], int32: [32, Int32Array, true],
  int64: [64, BigInt64Array, true], string: [0, Array, false], bool: [8, Uint8Array, true],
  float16: [16, Uint16Array, true], float64: [64, Float64Array, false], uint32: [32, Uint32Array, true],
  uint64: [64, BigUint64Array, true], bfloat16: [16, Uint16Array, true],
  complex64: [64, null, false], complex128: [128, null, false], float8e4m3fn: [8, Uint8Array, true],
  float8e4m3fnuz: [8, Uint8Array, true], float8e5m2: [8, Uint8Array, true], float8e5m2fnuz: [8, Uint8Array, true],
  uint4: [8, Uint8Array, true], int4: [8, Uint8Array, true], float4e2m1: [8, Uint8Array, true],
  float8e8m0: [8, Uint8Array, true], uint2: [8, Uint8Array, true], int2: [8, Uint8Array, true],
}).map(([name, [bits, array, onDevice]]) => [name, { bits, array, onDevice }]));

/** Types whose arrays hold the elements' bits; those of 2 and 4 bits in the low bits of a byte each. */
export const AS_BITS = new Set([
  "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
  "float8e8m0", "uint2", "int2",
]);

export const product = (dims) => dims.reduce((a, b) => a * b, 1);
/** Bytes of a tensor, without padding. */
export const nbytesOf = (dtype, dims) => Math.ceil((product(dims) * DTYPES.get(dtype).bits) / 8);
export const listed = (xs) => `[${[...xs].join(", ")}]`;
export const roundUp = (n, to) => Math.ceil(n / to) * to;
/** The size of a buffer for so many bytes: a multiple of 16, at least 16. */
export const padded = (n) => Math.max(16, roundUp(n, 16));

/** What every WebGPU device guarantees. */
export const DEFAULT_LIMITS = {
  maxStorageBuffersPerShaderStage: 8, maxUniformBuffersPerShaderStage: 12, maxUniformBufferBindingSize: 65536,
  maxStorageBufferBindingSize: 134217728, maxBufferSize: 268435456, maxComputeWorkgroupStorageSize: 16384,
  maxComputeInvocationsPerWorkgroup: 256, maxComputeWorkgroupSizeX: 256, maxComputeWorkgroupSizeY: 256,
  maxComputeWorkgroupSizeZ: 64, maxComputeWorkgroupsPerDimension: 65535, maxTextureDimension2D: 8192,
  maxSampledTexturesPerShaderStage: 16, maxStorageTexturesPerShaderStage: 4, minUniformBufferOffsetAlignment: 256,
  minStorageBufferOffsetAlignment: 256,
};

/** WebGPU's names of features. */
export const WEBGPU_FEATURES = new Set([
  "core-features-and-limits", "depth-clip-control", "depth32float-stencil8", "texture-compression-bc",
  "texture-compression-bc-sliced-3d", "texture-compression-etc2", "texture-compression-astc",
  "texture-compression-astc-sliced-3d", "timestamp-query", "indirect-first-instance", "shader-f16",
  "rg11b10ufloat-renderable", "bgra8unorm-storage", "float32-filterable", "float32-blendable", "clip-distances",
  "dual-source-blending", "subgroups", "texture-formats-tier1", "texture-formats-tier2", "primitive-index",
  "texture-component-swizzle",
]);

/** Why a target (the twin of webrt/target.py's) does not meet a kernel's requirements; "" where it does. */
export function lacks(target, requires) {
  const feature = (requires.features ?? []).find((f) => !target.features.has(f));
  if (feature !== undefined) return `feature '${feature}' is needed, the target '${target.name}' lacks it`;
  const short = Object.entries(requires.limits ?? {}).find(([name, least]) => target.limits[name] < least);
  if (short) return `${short[0]} of ${short[1]} is needed, the target '${target.name}' has ${target.limits[short[0]]}`;
  for (const [key, have] of [["kinds", target.kind], ["architectures", target.architecture]]) {
    if (!requires[key] || requires[key].includes(have)) continue;
    return `${key} ${requires[key].join(", ")} are served, the target '${target.name}' is '${have}'`;
  }
  const [size, sizes] = [requires.subgroup_size, target.subgroup_sizes];
  if (!size || sizes.every((s) => s === size)) return "";
  return `subgroups of ${size} are needed, those of the target '${target.name}' are ${listed(sizes)}`;
}
