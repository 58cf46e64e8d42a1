/** Checksums of a .webrt file: the twin of webrt/checksum.py. */

import { PlanError } from "./common.js";

const PREFIX = new TextEncoder().encode('{"__metadata__":{"format":"webrt","crc32":"');
const BLANK = new TextEncoder().encode("00000000");

// TABLES[k][b]: the CRC-32 of byte b and k zero bytes after it ("slicing by 8").
const TABLES = [new Uint32Array(256)];
for (let b = 0; b < 256; b += 1) {
  let c = b;
  for (let k = 0; k < 8; k += 1) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  TABLES[0][b] = c;
}
for (let k = 1; k < 8; k += 1) TABLES.push(TABLES[k - 1].map((c) => (c >>> 8) ^ TABLES[0][c & 255]));
const [T0, T1, T2, T3, T4, T5, T6, T7] = TABLES;

/** The CRC-32 of bytes that follow others with the CRC-32 `before`. */
export function crc32(bytes, before = 0) {
  let c = ~before;
  let i = 0;
  for (; i + 8 <= bytes.length; i += 8) {
    c ^= bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24);
    c = T7[c & 255] ^ T6[(c >>> 8) & 255] ^ T5[(c >>> 16) & 255] ^ T4[c >>> 24]
      ^ T3[bytes[i + 4]] ^ T2[bytes[i + 5]] ^ T1[bytes[i + 6]] ^ T0[bytes[i + 7]];
  }
  for (; i < bytes.length; i += 1) c = (c >>> 8) ^ T0[(c ^ bytes[i]) & 255];
  return ~c >>> 0;
}

/** Whether a header carries a checksum; `length` are the 8 bytes before it. Raises PlanError where it is not its own. */
export function isSealed(length, header) {
  const at = PREFIX.length;
  const rest = header.subarray(at + BLANK.length);
  if (!PREFIX.every((b, i) => b === header[i])) return false;
  const sum = crc32(rest, crc32(BLANK, crc32(PREFIX, crc32(length))));
  const digits = sum.toString(16).padStart(8, "0");
  if ([...digits].every((d, i) => d.charCodeAt(0) === header[at + i])) return true;
  throw new PlanError("the .webrt file is damaged: its header has another checksum; copy or compile it again");
}

/** Raises PlanError for the first constant whose block has another checksum than the table (little endian u32). */
export function checkBlocks(constants, sums, table) {
  const view = new DataView(table.buffer, table.byteOffset, table.byteLength);
  const wrong = constants.findIndex((_, i) => view.getUint32(4 * i, true) !== sums[i]);
  if (wrong < 0) return;
  throw new PlanError(`the .webrt file is damaged, or was changed since it was opened: constant '${constants[wrong].name}' `
    + "has another checksum; load it anew");
}
