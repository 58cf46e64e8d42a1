/** What a caller gives to a run and gets back: the twin of webrt/runtime/feeds.py and tensor.py. */

import { AS_BITS, DTYPES, InputError, UnsupportedType, listed, nbytesOf, product } from "./common.js";
import { declared } from "./dims.js";
import { isKnown } from "./known.js";

const tag = (x) => Object.prototype.toString.call(x).slice(8, -1);
const isCount = (d) => Number.isSafeInteger(d) && d >= 0;

/** Raises InputError where a feed is missing or extra; it names the expected ones. */
export function checkNames(plan, feeds) {
  const names = plan.inputs.map((i) => i.name);
  const expected = plan.inputs.map((i) => declared(plan, i)).join("; ") || "none";
  const quoted = (list) => list.map((n) => `'${n}'`).join(", ");
  if (typeof feeds !== "object" || feeds === null) throw new InputError(`feeds are { name: tensor }, for ${expected}`);
  const missing = names.filter((n) => !Object.hasOwn(feeds, n) && !isKnown(plan, n));
  if (missing.length) throw new InputError(`no value for ${quoted(missing)}; the inputs are ${expected}`);
  const extra = Object.keys(feeds).filter((n) => !names.includes(n));
  if (extra.length) throw new InputError(`${quoted(extra)} is no input; the inputs are ${expected}`);
}

export function chooseOutputs(plan, names) {
  if (names === undefined || names === null) return plan.outputs;
  const have = new Map(plan.outputs.map((o) => [o.name, o]));
  const unknown = names.find((n) => !have.has(n));
  if (unknown !== undefined) {
    throw new InputError(`there is no output '${unknown}'; the outputs are ${[...have.keys()].join(", ")}`);
  }
  return names.map((n) => have.get(n));
}

/** Whether each output stays on the device: `location` is "cpu" or "gpu", for all or by name. */
export function chooseLocations(plan, outputs, location) {
  if (typeof location !== "string") chooseOutputs(plan, Object.keys(location));
  return outputs.map((info) => {
    const where = typeof location === "string" ? location : (Object.hasOwn(location, info.name) ? location[info.name] : "cpu");
    if (where !== "cpu" && where !== "gpu") throw new InputError(`location is "cpu" or "gpu", not '${where}'`);
    if (where === "gpu" && !DTYPES.get(info.dtype)?.onDevice) {
      throw new UnsupportedType(`output '${info.name}' is ${info.dtype || "no tensor"}, which devices do not hold`);
    }
    return where === "gpu";
  });
}

/**
 * A feed as { dtype, dims, data }: from a typed array or a list (of a known shape or rank 1), or { data, dims }.
 * Where `opaque`, a value that never meets a device may come without data: the host provider has it.
 */
export function hostValue(info, feed, opaque, refuse) {
  const bare = ArrayBuffer.isView(feed) || Array.isArray(feed);
  const { data, dims, dtype = undefined } = bare ? { data: feed } : { ...feed, dtype: feed?.dtype ?? feed?.type };
  if (dtype !== undefined && dtype !== info.dtype) throw refuse(`it is ${dtype}`);
  if (data === undefined || data === null) {
    if (opaque && info.place === null && !info.elements) return { dtype: info.dtype, dims: dims ?? null, data: null };
    throw refuse("it has no data");
  }
  if (!info.dtype) throw refuse("it is a tensor");
  const array = elementsOf(data, info.dtype, refuse);
  const shape = dims === undefined ? shapeOf(info, array.length, refuse) : [...dims];
  if (!shape.every(isCount)) throw refuse(`its dims are ${listed(shape)}`);
  if (product(shape) !== array.length) throw refuse(`${listed(shape)} is not the shape of ${array.length} elements`);
  return { dtype: info.dtype, dims: shape, data: array };
}

function shapeOf(info, length, refuse) {
  if (info.shape?.every((d) => typeof d === "number") && product(info.shape) === length) return info.shape;
  if (info.shape?.length === 1) return [length];
  throw refuse(`${length} elements without dims: give { data, dims }`);
}

/** Elements as the type's array; exact, or refused. */
function elementsOf(data, dtype, refuse) {
  const { array } = DTYPES.get(dtype);
  if (array === null) throw refuse("JavaScript has no array of this type");
  const kind = tag(data);
  if (array === Array) {
    if (kind === "Array" && data.every((s) => typeof s === "string")) return data;
    throw refuse("a list of strings is expected");
  }
  if (kind === array.name) return data;
  if (kind === "Float16Array" && dtype === "float16") return new Uint16Array(data.buffer, data.byteOffset, data.length);
  if (kind !== "Array") throw refuse(`a ${kind} was given, a ${array.name} is expected`);
  return ofList(data, dtype, array, refuse);
}

function ofList(list, dtype, array, refuse) {
  const wrong = (i) => refuse(`element ${i} of the list, ${String(list[i])}, is no ${dtype}`);
  if (array === BigInt64Array || array === BigUint64Array) {
    const fits = (x) => (typeof x === "bigint" || Number.isSafeInteger(x)) && array.of(BigInt(x))[0] === BigInt(x);
    const bad = list.findIndex((x) => !fits(x));
    if (bad >= 0) throw wrong(bad);
    return array.from(list, BigInt);
  }
  if (AS_BITS.has(dtype)) throw refuse(`its bits are expected, as a ${array.name}`);
  const floats = array === Float32Array || array === Float64Array;
  const limit = dtype === "bool" ? (x) => x === true || x === false || x === 0 || x === 1 : (x) => array.of(x)[0] === x;
  const bad = list.findIndex((x) => (floats ? typeof x !== "number" : !limit(x)));
  if (bad >= 0) throw wrong(bad);
  return array.from(list, Number);
}

/** The typed array that a buffer's bytes are. */
export function typed(dtype, buffer) {
  const { array } = DTYPES.get(dtype);
  return array === null || array === Array ? new Uint8Array(buffer) : new array(buffer);
}

/** A tensor of integers. */
export function ofIntegers(dtype, dims, values) {
  const { array } = DTYPES.get(dtype);
  const wide = array === BigInt64Array || array === BigUint64Array;
  return { dtype, dims, data: array.from(values, wide ? BigInt : Number) };
}

/** The bytes of a typed array, without a copy. */
export const bytesOf = (data) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** A value that shares no memory with the host's own; what is opaque stays as it is. */
export const copyOf = (value) => ({ ...value, data: value.data?.slice ? value.data.slice() : value.data });

/** A tensor in device memory; `dispose()` frees it. It may be fed to any session of its device. */
export class GpuTensor {
  #gpu;
  #buffer;

  constructor(gpu, buffer, dtype, dims) {
    this.#gpu = gpu;
    this.#buffer = buffer;
    this.device = gpu.device;
    this.dtype = dtype;
    this.dims = dims;
  }

  get buffer() {
    return this.#buffer.handle;
  }

  get nbytes() {
    return nbytesOf(this.dtype, this.dims);
  }

  /** Whether its device is gone. */
  get lost() {
    return this.#gpu.lost;
  }

  /** The elements, read back. */
  async read() {
    this.#gpu.alive();
    const [bytes] = await this.#gpu.read([{ buffer: this.#buffer, offset: 0, nbytes: this.nbytes }]);
    return typed(this.dtype, bytes);
  }

  dispose() {
    this.#gpu.free(this.#buffer);
  }
}

/** Whether a feed is { buffer, dtype, dims } in device memory. */
export const isOnGpu = (feed) => tag(feed?.buffer) === "GPUBuffer";
