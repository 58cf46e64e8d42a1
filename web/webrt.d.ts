/** Types of webrt.js, and of player.js, all of which webrt.js exports too. */

/** Arrays of float16 and bfloat16 (Uint16Array) and of the types of 8 bits and less from float8e4m3fn on (Uint8Array, one
 * element a byte, those of 2 and 4 bits in its low bits) hold the elements' bits. */
export type TensorType =
  | "float32" | "float64" | "float16" | "bfloat16" | "bool" | "string"
  | "int8" | "uint8" | "int16" | "uint16" | "int32" | "uint32" | "int64" | "uint64"
  | "float8e4m3fn" | "float8e4m3fnuz" | "float8e5m2" | "float8e5m2fnuz" | "float8e8m0" | "float4e2m1"
  | "int4" | "uint4" | "int2" | "uint2";

export type TensorData =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array | string[];

/** A file of a plan: its URL, bytes, a Blob, a Response or a stream. */
export type Source = string | URL | ArrayBuffer | ArrayBufferView | Blob | Response | ReadableStream<Uint8Array>;

/** What is fed: a typed array or list where the dims are known, else `{ data, dims }`, or a tensor on the GPU. */
export type Feed =
  | TensorData
  | readonly (number | bigint | boolean)[]
  | { data: TensorData | readonly (number | bigint | boolean)[]; dims?: readonly number[]; dtype?: TensorType }
  | { buffer: GPUBuffer; dtype: TensorType; dims: readonly number[] }
  | GpuTensor;

export interface PlainTensor {
  dtype: TensorType;
  dims: number[];
  data: TensorData;
}

export interface LoadOptions {
  /** Stays the caller's; by default all sessions share one of the player's. */
  device?: GPUDevice;
  /** Runs host steps of these indices; `data` may be null for a value that never meets a device. */
  host?: (steps: number[], inputs: Record<string, PlainTensor>) => Promise<Record<string, PlainTensor>>;
  fetch?: (url: string | URL) => Promise<Response>;
  /** A run that meets a lost device gets a new one and is done once more; the plan's bytes are kept for that. */
  autoRecover?: boolean;
  onProgress?: (stage: "download" | "pipelines", done: number, total: number) => void;
  /** Told what is not as a user would expect it: a refused kernel, a tuning that is ignored. By default the console is. */
  warn?: (text: string) => void;
  /**
   * true: kernels that do the same are measured when sizes are new, and the browser remembers the fastest. A table that
   * was measured before: it is used.
   */
  tuning?: boolean | TuningTable;
  /** Seconds that the session measures in all (2). */
  tuningBudget?: number;
  /** Seconds that a kernel takes, in place of the device's clock. */
  tuningTimer?: (kernel: { name: string }) => number;
}

/** What was measured on an adapter: `session.tuning.table` as JSON, or what `webrt tune` writes. */
export interface TuningTable {
  version: 1;
  adapter: Record<"vendor" | "architecture" | "device" | "description" | "backend", string>;
  limits: Record<string, number>;
  entries: { kernels: string[]; names: string[]; bucket: number[]; chosen: string; us: number[] }[];
}

export interface RunControl {
  /** Ends the run between submits and host steps; the session can be used again. */
  signal?: AbortSignal;
  /** Seconds to wait for the device at a time; it is given up after that. */
  timeout?: number;
}

export interface RunOptions extends RunControl {
  outputs?: readonly string[];
  location?: Location | Record<string, Location>;
}

export type KnownValue = number | bigint | boolean | string | KnownValue[];

export interface CompileOptions {
  /** The address of site.json in a folder that `webrt site` made; "site.json" by default. */
  site?: string | URL;
  /** External data by location. */
  externalData?: Record<string, ArrayBuffer | Uint8Array>;
  /** As webrt.CompileOptions; `optimized` asks for the optimised model too. */
  options?: {
    level?: "disabled" | "basic" | "extended" | "all";
    providers?: ("webgpu" | "cpu")[];
    target?: object;
    free_dims?: Record<string, number>;
    strict?: boolean;
    disabled?: string[];
    optimized?: boolean;
    /** Elements of inputs that the plan is made for, of the input's type. */
    known?: Record<string, KnownValue>;
  };
  /** Seconds from when the model is handed over; 300 by default. */
  timeout?: number;
  /** Bytes that the heap may have (2 GiB by default), and that the result may have (2 GiB). */
  memory?: number;
  output?: number;
  signal?: AbortSignal;
  onProgress?: (stage: string, done: number, total: number) => void;
}

export interface Compiled {
  /** A .webrt file that satisfies the player's rules. */
  plan: Uint8Array;
  /** The optimised .onnx; null where it was not asked for. */
  onnx: Uint8Array | null;
  placement: PlacedNode[];
  /** The plan's size. */
  bytes: number;
}

export interface RecoverOptions {
  /** Where the lost one was the caller's. */
  device?: GPUDevice;
  /** Where the plan was given as a stream, or as bytes without `autoRecover`. */
  file?: Source;
}

type Location = "cpu" | "gpu";

export interface ValueDescription {
  name: string;
  dtype: TensorType | "";
  /** Numbers, names and expressions of free sizes; null where the rank is not known. */
  shape: (number | string)[] | null;
}

export interface PlacedNode {
  node: string;
  op: string;
  provider: string;
  how: string;
  reason: string;
  bytes: number | null;
}

export interface Counters {
  buffers: number;
  bytes: number;
  created: number;
  pipelines: number;
  bindGroups: number;
  submits: number;
  dispatches: number;
  copies: number;
  written: number;
  read: number;
  /** Measurements of tuning. */
  measured: number;
}

export class Session {
  private constructor();
  readonly inputs: ValueDescription[];
  readonly outputs: ValueDescription[];
  readonly placement: PlacedNode[];
  readonly counters: Counters;
  /** What is known of the fastest kernels; null where nothing was asked for. Its table is for JSON.stringify. */
  readonly tuning: { readonly table: { toJSON(): TuningTable } } | null;
  run(feeds: Record<string, Feed>, options?: RunOptions & { location?: "cpu" }): Promise<Record<string, PlainTensor>>;
  run(feeds: Record<string, Feed>, options: RunOptions): Promise<Record<string, PlainTensor | GpuTensor>>;
  /** Times runs step by step from now on. */
  startProfiling(): void;
  /** The runs that were timed, as a Chrome trace for JSON (ui.perfetto.dev); null where none was. */
  endProfiling(): object | null;
  recover(options?: RecoverOptions): Promise<void>;
  release(): void;
}

/** A tensor in device memory; may be fed to any session of its device. */
export class GpuTensor {
  private constructor();
  readonly device: GPUDevice;
  readonly buffer: GPUBuffer;
  readonly dtype: TensorType;
  readonly dims: number[];
  readonly nbytes: number;
  readonly lost: boolean;
  read(): Promise<TensorData>;
  dispose(): void;
}

export interface KernelText {
  name: string;
  wgsl: string;
  requires?: { features?: readonly string[]; limits?: Record<string, number> };
}

/** Element types: their bits in a buffer, their array (null: none), and whether devices hold them. */
export const DTYPES: ReadonlyMap<string, { bits: number; array: Function | null; onDevice: boolean }>;

export function loadPlan(file: Source, options?: LoadOptions): Promise<Session>;
export function compileInSandbox(model: ArrayBuffer | ArrayBufferView | Blob, options?: CompileOptions): Promise<Compiled>;
export function openDevice(): Promise<GPUDevice>;
export function checkKernels(
  kernels: readonly KernelText[],
  device?: GPUDevice,
): Promise<{ name: string; messages: string[]; missing: string[] }[]>;
export function evaluate(program: readonly unknown[], known: ReadonlyMap<string, number>): (number | null)[];
export function parsePlan(json: string): object;

export class WebrtError extends Error {
  readonly what: string;
  readonly node: string;
  readonly op: string;
  readonly opset: number | null;
  readonly inputs: string;
}
export class PlanError extends WebrtError {}
export class PlacementError extends WebrtError {}
export class TargetError extends WebrtError {}
export class KernelError extends WebrtError {}
export class InputError extends WebrtError {}
export class ModelError extends WebrtError {}
export class ShapeError extends ModelError {}
export class UnsupportedType extends ModelError {}
export class SandboxError extends WebrtError {}
export class DeviceError extends WebrtError {}
export class NoAdapter extends DeviceError {}
export class DeviceLost extends DeviceError {}
export class OutOfMemory extends DeviceError {}
/** The caller ended a run; where an AbortSignal did, its reason is thrown instead. */
export class RunTerminated extends WebrtError {}

/** A tensor under onnxruntime-web's names. */
export class Tensor {
  constructor(type: TensorType, data: TensorData | readonly (number | bigint | boolean)[], dims?: readonly number[]);
  readonly type: TensorType;
  /** undefined where the tensor is on the GPU: `await tensor.getData()`. */
  readonly data: TensorData | undefined;
  readonly dims: readonly number[];
  readonly size: number;
  readonly location: "cpu" | "gpu-buffer";
  readonly gpuBuffer: GPUBuffer | undefined;
  getData(): Promise<TensorData>;
  dispose(): void;
}

export interface SessionOptions extends LoadOptions {
  preferredOutputLocation?: "cpu" | "gpu-buffer" | Record<string, "cpu" | "gpu-buffer">;
  /** As in onnxruntime-web: from 3 on no warning is logged (2). */
  logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
}

export interface ValueMetadata {
  name: string;
  type: TensorType | "";
  shape: (number | string)[] | null;
}

/** A session under onnxruntime-web's names. */
export class InferenceSession {
  private constructor();
  static create(source: Source, options?: SessionOptions): Promise<InferenceSession>;
  readonly inputNames: string[];
  readonly outputNames: string[];
  readonly inputMetadata: ValueMetadata[];
  readonly outputMetadata: ValueMetadata[];
  run(
    feeds: Record<string, Tensor | Feed>,
    fetches?: readonly string[],
    options?: RunControl,
  ): Promise<Record<string, Tensor>>;
  recover(options?: RecoverOptions): Promise<void>;
  /** Times runs step by step from now on. */
  startProfiling(): void;
  /** The runs that were timed, as a Chrome trace for JSON (ui.perfetto.dev); null where none was. */
  endProfiling(): object | null;
  release(): Promise<void>;
}
