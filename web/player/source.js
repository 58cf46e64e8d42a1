/** The bytes of a .webrt file, from memory or while they arrive. */

import { crc32, isSealed } from "./checksum.js";
import { PlanError, roundUp } from "./common.js";
import { parsePlan } from "./plan.js";

const MAX_HEADER = 100_000_000;
const isText = (x) => typeof x === "string";

/** Bytes in order, from memory or while they arrive; `size` is the whole length where it is known, else null. */
export class Source {
  #next;
  #rest = new Uint8Array(0);
  position = 0;

  constructor(next, size = null, cancel = () => {}) {
    this.#next = next;
    this.size = size;
    this.cancel = cancel;
  }

  /** Of bytes, a Blob, a Response, a ReadableStream or a URL. Raises PlanError where there is nothing to read. */
  static async open(source, fetcher) {
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
      const bytes = ArrayBuffer.isView(source)
        ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength) : new Uint8Array(source);
      const parts = [bytes];
      return new Source(async () => parts.pop() ?? null, bytes.length);
    }
    if (isText(source) || source instanceof URL) return Source.open(await download(source, fetcher), fetcher);
    if (source instanceof Blob) return Source.#ofStream(source.stream(), source.size);
    if (source instanceof Response) {
      if (!source.ok) throw new PlanError(`${source.url || "the plan"}: HTTP ${source.status} ${source.statusText}`);
      const length = source.headers.get("content-encoding") ? null : source.headers.get("content-length");
      return Source.#ofStream(source.body, length === null ? null : Number(length));
    }
    if (source instanceof ReadableStream) return Source.#ofStream(source, null);
    throw new PlanError("a plan is given as bytes, a Blob, a Response, a stream or a URL");
  }

  static #ofStream(stream, size) {
    const reader = stream.getReader();
    const next = async () => {
      try {
        return (await reader.read()).value ?? null;
      } catch (e) {
        throw new PlanError(`the download of the plan broke off (${e.message}); load it again`);
      }
    };
    return new Source(next, size, () => reader.cancel().catch(() => {}));
  }

  /** The next bytes, at most `most` of them. */
  async pull(most) {
    while (!this.#rest.length) {
      const chunk = await this.#next();
      if (chunk === null) throw new PlanError(`the .webrt file is cut short: it ends at byte ${this.position}`);
      this.#rest = chunk;
    }
    const part = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(part.length);
    this.position += part.length;
    return part;
  }

  /** Hands the next `n` bytes to `use`, part by part. */
  async each(n, use) {
    for (let left = n; left > 0;) {
      const part = await this.pull(left);
      use(part);
      left -= part.length;
    }
  }

  async take(n) {
    const out = new Uint8Array(n);
    let at = 0;
    await this.each(n, (part) => { out.set(part, at); at += part.length; });
    return out;
  }
}

/** Where a plan came from, to read it and to read it again. Bytes are kept beyond `loaded` only where `keep` is true. */
export class Origin {
  #file;
  #fetcher;
  #keep;

  constructor(file, fetcher, keep) {
    this.#file = file;
    this.#fetcher = fetcher;
    this.#keep = keep || isText(file) || file instanceof URL || file instanceof Blob;
    this.opened = Source.open(file, fetcher);
  }

  /** The plan is loaded. */
  loaded() {
    if (!this.#keep) this.#file = null;
  }

  /** Whether the file that was given can be read again. */
  get canRepeat() {
    const isStream = this.#file instanceof ReadableStream || this.#file instanceof Response;
    return this.#file !== null && !isStream;
  }

  /** The source once more, from `file` where that is given. Raises PlanError where there is none. */
  async again(file = this.#file) {
    if (file === null) {
      throw new PlanError("the bytes of the plan were not kept; give them again, recover({ file }), or load with autoRecover");
    }
    if (file instanceof ReadableStream || file instanceof Response && file.bodyUsed) {
      throw new PlanError("a stream cannot be read again; give the plan's URL or bytes: recover({ file })");
    }
    return Source.open(file, this.#fetcher);
  }
}

async function download(url, fetcher) {
  try {
    return await fetcher(url);
  } catch (e) {
    throw new PlanError(`${url} cannot be fetched (${e.message})`);
  }
}

/** Reads a file up to its data, and checks the plan. */
export async function readPlan(source) {
  const first = await source.take(8);
  const length = Number(new DataView(first.buffer).getBigUint64(0, true));
  if (length > MAX_HEADER) throw new PlanError("not a .webrt file: its header is longer than allowed");
  if (source.size !== null && source.size < 8 + length) {
    throw new PlanError("the .webrt file is cut short: its header ends early");
  }
  const header = await source.take(length);
  const sealed = isSealed(first, header);
  let plan;
  try {
    plan = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(header)).__metadata__.webrt;
  } catch {
    plan = null;
  }
  if (!isText(plan)) throw new PlanError("not a .webrt file: it has no webrt plan in its header");
  const parsed = parsePlan(plan);
  if (!sealed && parsed.version > 1) {
    throw new PlanError("the .webrt file is damaged: its header has no checksum; copy or compile it again");
  }
  for (const c of parsed.constants) {
    const end = source.position + c.offset + c.nbytes;
    if (source.size !== null && end > source.size) {
      const where = `constant '${c.name}' ends at ${end}, the file at ${source.size}`;
      throw new PlanError(`the .webrt file is cut short: ${where}`);
    }
  }
  const end = source.position + blocksEnd(parsed.constants) + 4 * parsed.constants.length;
  if (parsed.version > 1 && source.size !== null && source.size !== end) {
    const how = end > source.size ? "cut short" : "damaged";
    throw new PlanError(`the .webrt file is ${how}: it ends at ${source.size}, not ${end}`);
  }
  return { ...parsed, digest: crc32(header) };
}

/** Where the last constant's block ends in the data, and the table of checksums begins. */
export const blocksEnd = (constants) => roundUp(Math.max(0, ...constants.slice(-1).map((c) => c.offset + c.nbytes)), 16);
