/** Inputs whose elements were fixed when the plan was compiled: the twin of webrt/known.py. */

import { crc32 } from "./checksum.js";
import { InputError } from "./common.js";

const MOST_TOLD = 8;
const MOST_BYTES = 4096;
const EXACT = /^(u?int(8|16|32|64)|bool)$/;
const WIDTHS = { uint4: 4, int4: 4, float4e2m1: 4, uint2: 2, int2: 2 };

/** Whether an input was fixed; a run need not be fed it then. */
export const isKnown = (plan, name) => Object.hasOwn(plan.meta?.known ?? {}, name);

/** What a session says of an input in addition: { fixed: true }, or nothing. */
export const fixedOf = (plan, name) => (isKnown(plan, name) ? { fixed: true } : {});

/** Raises InputError where the elements of a feed are not those that the input was fixed to; `data` null: Python's. */
export function refuseOther(plan, { name, dtype, shape }, data) {
  if (data === null || !isKnown(plan, name)) return;
  const { text, bits } = plan.meta.known[name];
  if (bitsOf(dtype, data) === bits) return;
  const shown = EXACT.test(dtype) && shape?.length < 2 && data.length <= MOST_TOLD ? textOf(dtype, data, shape.length) : "";
  throw new InputError(`'${name}' was fixed${text && ` to ${text}`} when the plan was compiled; ${shown || "another value"} `
    + `was given: compile it again without --known ${name}, or feed ${text || "the same"}`);
}

function textOf(dtype, data, rank) {
  const texts = Array.from(data, (x) => String(dtype === "bool" ? x !== 0 : x));
  return rank ? `[${texts.join(", ")}]` : texts[0];
}

function bitsOf(dtype, data) {
  const mask = dtype in WIDTHS ? (1 << WIDTHS[dtype]) - 1 : 255;
  const bytes = Array.isArray(data)
    ? new TextEncoder().encode(JSON.stringify(data))
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength).map((b) => b & mask);
  if (bytes.length > MOST_BYTES) return `crc32:${crc32(bytes).toString(16).padStart(8, "0")}`;
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
