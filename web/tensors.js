/** Tensors that the page makes up for a model's inputs, and what it shows of outputs. */

import { DTYPES, InputError, product } from "./player/common.js";

const IMAGE_SIZE = 224;
const OTHER_SIZE = 8;
const SHOWN = 8;
const MOST_ELEMENTS = 2 ** 28;
/** The bits of 1 in small floats; those between 0 and these are numbers from 0 to 1. */
const ONE = { float8e4m3fn: 0x38, float8e4m3fnuz: 0x40, float8e5m2: 0x3c, float8e5m2fnuz: 0x40, float8e8m0: 0x7f, float4e2m1: 2 };
/** How many whole numbers are made up, where not 10. */
const COUNT = { bool: 2, uint2: 4, int2: 4 };

/** The free sizes of `inputs` ([{ name, dtype, shape }], sizes are numbers or names) with sensible values, by name. */
export function freeSizes(inputs) {
  const sizes = {};
  for (const { dtype, shape } of inputs) {
    shape?.forEach((size, axis) => {
      if (typeof size !== "number") sizes[size] ??= usualSize(axis, shape, dtype);
    });
  }
  return sizes;
}

/** A tensor { dtype, dims, data } for each input. `fill` is "random", "zeros" or "ones"; equal seeds give equal values. */
export function makeFeeds(inputs, sizes, fill, seed) {
  const random = generator(seed);
  return Object.fromEntries(inputs.map(({ name, dtype, shape }) => {
    if (!shape || !DTYPES.get(dtype)?.array) {
      throw new InputError(`the page cannot make up the input '${name}' (${dtype || "no tensor"}${shape ? "" : " of unknown rank"})`);
    }
    const dims = shape.map((size) => (typeof size === "number" ? size : sizes[size]));
    const count = product(dims);
    if (!(count <= MOST_ELEMENTS)) throw new InputError(`the input '${name}' would have ${count} elements; choose smaller sizes`);
    return [name, { dtype, dims, data: elements(dtype, count, fill, random) }];
  }));
}

/** What the page shows of an output: least, greatest and first elements, as texts. */
export function describe(name, { dtype, dims, data }) {
  const number = reader(dtype);
  let [min, max, odd] = [Infinity, -Infinity, 0];
  if (number) {
    for (const x of data) {
      const v = number(x);
      if (v < min) min = v;
      if (v > max) max = v;
      if (Number.isNaN(v)) odd += 1;
    }
  }
  const first = Array.from(data?.slice?.(0, SHOWN) ?? [], (x) => (number ? text(number(x)) : String(x)));
  return {
    name, dtype: dtype || "no tensor", dims, first: first.join(", ") + (data?.length > SHOWN ? ", …" : ""),
    min: min <= max ? text(min) : "", max: (min <= max ? text(max) : "") + (odd ? ` (${odd} NaN)` : ""),
  };
}

/** 1 for a batch, a picture's usual size for its height and width (float, 1, 3 or 4 channels), else 8. */
function usualSize(axis, shape, dtype) {
  if (axis === 0) return 1;
  const isPicture = shape.length === 4 && axis >= 2 && [1, 3, 4].includes(shape[1]) && dtype.includes("float");
  return isPicture ? IMAGE_SIZE : OTHER_SIZE;
}

/** Numbers in 0 … 1. Source: mulberry32, Tommy Ettinger, public domain. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

function elements(dtype, count, fill, random) {
  if (dtype === "string") return Array(count).fill("text");
  const one = ONE[dtype] ?? 1;
  const isNumber = dtype.includes("float") && !(dtype in ONE);
  const choices = dtype in ONE ? one + 1 : COUNT[dtype] ?? 10;
  const plain = { zeros: () => 0, ones: () => one }[fill];
  const value = plain ?? (isNumber ? () => random() * 2 - 1 : () => Math.floor(random() * choices));
  const convert = { float16: halfBits, bfloat16: brainBits, int64: BigInt, uint64: BigInt }[dtype] ?? ((x) => x);
  const out = new (DTYPES.get(dtype).array)(count);
  for (let i = 0; i < count; i += 1) out[i] = convert(value());
  return out;
}

function reader(dtype) {
  if (dtype === "float16") return halfValue;
  if (dtype === "bfloat16") return (bits) => new Float32Array(new Uint32Array([bits << 16]).buffer)[0];
  const unused = { int4: 28, int2: 30 }[dtype];
  if (unused) return (bits) => (bits << unused) >> unused;
  return dtype === "string" || dtype in ONE || !DTYPES.get(dtype)?.array ? null : Number;
}

const text = (x) => (Number.isInteger(x) ? String(x) : String(Number(x.toPrecision(5))));
const brainBits = (x) => new Uint32Array(new Float32Array([x]).buffer)[0] >>> 16;

/** The bits of a float16, cut towards zero; for |x| ≤ 1. */
function halfBits(x) {
  const magnitude = Math.abs(x);
  const exponent = Math.max(-14, Math.floor(Math.log2(magnitude || 1)));
  const scaled = Math.floor(magnitude * 2 ** (10 - exponent));
  const bits = magnitude >= 2 ** -14 ? ((exponent + 15) << 10) + scaled - 1024 : Math.floor(magnitude * 2 ** 24);
  return (x < 0 ? 0x8000 : 0) | bits;
}

function halfValue(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}
