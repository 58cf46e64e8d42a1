/** What tests/web/driver.py calls in the page: player.js over plain JSON, bytes as base64. */

import * as player from "/web/player.js";
import { Source, readPlan } from "/web/player/source.js";
import { Table } from "/web/player/tuning.js";

const objects = new Map();

function keep(object) {
  objects.set(objects.size + 1, object);
  return objects.size;
}

const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

function encode(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
}

function pack(value) {
  const { dtype, dims, data } = value;
  if (value instanceof player.GpuTensor) return { tensor: keep(value), dtype, dims };
  if (!ArrayBuffer.isView(data)) return { dtype, dims, list: data };
  return { dtype, dims, array: data.constructor.name, base64: encode(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) };
}

/** `tensor`: one that a run handed out; `list`: JSON as it is; `bigints`: texts; `base64`: bytes of `dtype`. */
function unpack({ tensor, list, bigints, base64, dtype, dims, bare }) {
  if (tensor) return objects.get(tensor);
  let data = list ?? bigints?.map(BigInt) ?? null;
  if (base64 !== undefined) data = new (player.DTYPES.get(dtype).array)(decode(base64).buffer);
  return bare ? data : { data, dims: dims ?? undefined, dtype };
}

const mapped = (record, f) => Object.fromEntries(Object.entries(record).map(([k, v]) => [k, f(v)]));

async function host(steps, inputs) {
  const made = JSON.parse(await globalThis.webrtHost(JSON.stringify({ steps, inputs: mapped(inputs, pack) })));
  if (made.error) throw new Error(made.error);
  return mapped(made.outputs, unpack);
}

const calls = {
  /** `seconds`: what tuning measures of each kernel, by its name. */
  async load({ plan, url, withHost, device, tuning, tuningBudget, seconds, quiet }) {
    const lines = [];
    const warned = [];
    const options = { onProgress: (...line) => lines.push(line), tuning, tuningBudget };
    if (seconds) options.tuningTimer = ({ name }) => seconds[name];
    if (device) options.device = objects.get(device);
    if (withHost) options.host = host;
    if (quiet) options.warn = (text) => warned.push(text);
    const session = await player.loadPlan(url ?? decode(plan), options);
    const { inputs, outputs } = session;
    return { session: keep(session), inputs, outputs, progress: lines.at(-1) ?? null, warned };
  },
  async run({ session, feeds, options }) {
    return mapped(await objects.get(session).run(mapped(feeds, unpack), options), pack);
  },
  tuningOf: ({ session }) => JSON.parse(JSON.stringify(objects.get(session).tuning?.table ?? null)),
  parseTuning: ({ text }) => Table.loads(text) && null,
  /** Puts a text into the browser's storage in the place of every tuning that is there; null deletes them. */
  async storeTuning({ text }) {
    const settled = (request) => new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    const db = await settled(indexedDB.open("webrt"));
    const store = db.transaction("tuning", "readwrite").objectStore("tuning");
    const keys = await settled(store.getAllKeys());
    await Promise.all(keys.map((key) => settled(text === null ? store.delete(key) : store.put(text, key))));
    db.close();
    return keys.length;
  },
  counters: ({ session }) => objects.get(session).counters,
  release({ session }) {
    objects.get(session).release();
    return objects.get(session).counters;
  },
  startProfiling: ({ session }) => objects.get(session).startProfiling(),
  endProfiling: ({ session }) => objects.get(session).endProfiling(),
  /** A device without timestamp queries. */
  async plainDevice() {
    return keep(await (await navigator.gpu.requestAdapter()).requestDevice());
  },
  dispose: ({ tensor }) => objects.get(tensor).dispose(),
  device: async () => keep(await player.openDevice()),
  destroy: ({ device }) => objects.get(device).destroy(),
  /** What becomes of loading a file with one bit flipped at each of `places`: { error's name, or "loaded": how often }. */
  async flips({ plan, places }) {
    const counts = {};
    for (const at of places) {
      const bytes = decode(plan);
      bytes[at] ^= 1 << at % 8;
      const name = await player.loadPlan(bytes).then((s) => { s.release(); return "loaded"; }, (e) => e.name);
      counts[name] = (counts[name] ?? 0) + 1;
    }
    return counts;
  },
  parse: ({ text }) => player.parsePlan(text) && null,
  /** What the player says of files: "" where it would run them, else the error's name and text. */
  verdicts: ({ files }) => Promise.all(files.map(async (file) => {
    try {
      return (await readPlan(await Source.open(decode(file)))) && "";
    } catch (e) {
      return `${e.name}: ${e.message}`;
    }
  })),
  evaluate: ({ program, known }) => player.evaluate(program, new Map(known)),
  checkKernels: ({ kernels, device }) => player.checkKernels(kernels, device && objects.get(device)),
};

/** { value } or { error: { name, message } }. */
globalThis.webrtCall = async (name, text) => {
  try {
    return { value: (await calls[name](JSON.parse(text))) ?? null };
  } catch (e) {
    return { error: { name: e.name, message: e.message, stack: e.stack ?? "" } };
  }
};
