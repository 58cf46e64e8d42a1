/**
 * Which alternative of a dispatch was measured to be the fastest on an adapter: the twin of webrt/runtime/tuning.py. Both
 * are tested on tests/unit/bad_tunings.json.
 */

import { InputError, PlanError } from "./common.js";

const VERSION = 1;
const MAX_ENTRIES = 20_000;
const MAX_KERNELS = 64;
const MAX_BUCKET = 256;
const MAX_TEXT = 400;
const MAX_MICROSECONDS = 1e9;
const MATTERING = [
  "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupStorageSize", "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage", "maxTextureDimension2D",
];
const ADAPTER = ["vendor", "architecture", "device", "description", "backend"];

/** Seconds that a session measures, where nothing else is said. */
export const BUDGET = 2;

const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const hasKeys = (x, keys) => isObject(x) && Object.keys(x).length === keys.length && keys.every((k) => Object.hasOwn(x, k));
const isText = (x) => typeof x === "string" && [...x].length <= MAX_TEXT;
const isInt = Number.isSafeInteger;
const isList = (x, most) => Array.isArray(x) && x.length <= most;
const isPower = (x) => isInt(x) && x >= 0 && x <= 2 ** 32 && (x === 0 || Number.isInteger(Math.log2(x)));
const isTime = (x) => typeof x === "number" && x >= 0 && x <= MAX_MICROSECONDS;

function need(holds, what) {
  if (!holds) throw new PlanError(`the tuning is damaged: ${what}`);
}

/** What the adapter of a device says of itself. */
export function adapterOf({ adapterInfo }) {
  const said = ADAPTER.map((k) => [k, String(adapterInfo?.[k] ?? "").slice(0, MAX_TEXT)]);
  return { ...Object.fromEntries(said), backend: "browser" };
}

/** Numbers as unsigned words, rounded up to powers of two. */
export const bucketOf = (numbers) => numbers.map((n) => n >>> 0).map((n) => (n ? 2 ** (32 - Math.clz32(n - 1)) : 0));

const keyOf = (kernels, bucket) => JSON.stringify([kernels, bucket]);

/** Entries for one adapter with these limits: { kernels, names, bucket, chosen, us }, by kernels and bucket. */
export class Table {
  entries = new Map();

  constructor(adapter, limits) {
    Object.assign(this, { adapter, limits });
  }

  /** The table of a GPUDevice's adapter, without entries. */
  static of(device) {
    return new Table(adapterOf(device), Object.fromEntries(MATTERING.map((k) => [k, device.limits[k]])));
  }

  /** A table of its JSON, parsed. Raises PlanError for what breaks a rule, the first that is broken. */
  static parse(given) {
    need(hasKeys(given, ["version", "adapter", "limits", "entries"]), "its keys");
    const { version, adapter, limits, entries } = given;
    need(version === VERSION, `its version is not ${VERSION}`);
    need(hasKeys(adapter, ADAPTER), "its adapter's keys");
    need(Object.values(adapter).every(isText), "its adapter's texts");
    need(hasKeys(limits, MATTERING), "its limits' keys");
    need(Object.values(limits).every((x) => isInt(x) && x >= 0), "its limits are no sizes");
    need(isList(entries, MAX_ENTRIES), "its entries are no list, or too many");
    const table = new Table(adapter, limits);
    entries.forEach((e, i) => table.put(checked(e, `entry ${i}`)));
    return table;
  }

  /** A table of its text. Raises PlanError for what is none. */
  static loads(text) {
    let given;
    try {
      given = JSON.parse(text);
    } catch {
      throw new PlanError("the tuning is damaged: it is no JSON");
    }
    return Table.parse(given);
  }

  has(kernels, bucket) {
    return this.entries.has(keyOf(kernels, bucket));
  }

  /** The hash of the kernel to take, or null. */
  chosen(kernels, bucket) {
    return this.entries.get(keyOf(kernels, bucket))?.chosen ?? null;
  }

  /** The kernels of these hashes that may be chosen at some sizes. */
  mentions(hashes) {
    const known = [...this.entries.values()].filter((e) => e.kernels.every((k) => hashes.has(k)));
    return new Set(known.map((e) => e.chosen));
  }

  put(entry) {
    this.entries.set(keyOf(entry.kernels, entry.bucket), entry);
  }

  /** Takes what is in the other one and not in this. Raises PlanError where it is for another adapter. */
  add(other) {
    for (const what of ["adapter", "limits"]) {
      const same = Object.keys(this[what]).every((k) => this[what][k] === other[what][k]);
      if (!same) {
        throw new PlanError(`the tuning is for another ${what}: ${words(other[what])}; this one is ${words(this[what])}`);
      }
    }
    this.entries = new Map([...other.entries, ...this.entries]);
  }

  toJSON() {
    return { version: VERSION, adapter: this.adapter, limits: this.limits, entries: [...this.entries.values()] };
  }
}

const words = (named) => Object.values(named).filter((v) => v !== "").join(", ");

function checked(e, where) {
  need(hasKeys(e, ["kernels", "names", "bucket", "chosen", "us"]), `${where}: its keys`);
  const { kernels, names, bucket, chosen, us } = e;
  const alike = (list) => isList(list, MAX_KERNELS) && list.length === kernels.length;
  need(isList(kernels, MAX_KERNELS) && kernels.length >= 2, `${where}: its kernels are no list of 2 to ${MAX_KERNELS}`);
  need(kernels.every(isText) && new Set(kernels).size === kernels.length, `${where}: its kernels are no different texts`);
  need(alike(names) && names.every(isText), `${where}: its names`);
  need(isList(bucket, MAX_BUCKET) && bucket.every(isPower), `${where}: its bucket has no powers of two`);
  need(isText(chosen) && kernels.includes(chosen), `${where}: its choice is none of its kernels`);
  need(alike(us) && us.every(isTime), `${where}: its times`);
  return { kernels, names, bucket, chosen, us };
}

/**
 * A session's table. While `budget` (seconds left) is above 0, what the table lacks is measured, and remembered in the
 * browser's storage.
 */
export class Tuning {
  /** Of `loadPlan`'s options, for a GPUDevice and the tables that a plan carries; null where there is nothing to know. */
  static async open(device, { tuning = null, tuningBudget = null, tuningTimer = null, warn }, tables) {
    if (![null, true, false].includes(tuning) && !isObject(tuning)) throw new InputError("tuning is true, or a table");
    const made = new Tuning(device, tuningTimer, warn);
    if (tuning === true || tuningBudget) {
      made.budget = tuningBudget ?? BUDGET;
      if (!(made.budget > 0 && made.budget < Infinity)) throw new InputError("tuningBudget is a number of seconds above 0");
      await made.#recall();
    }
    if (isObject(tuning)) made.#include(() => Table.parse(tuning), "the tuning that was given");
    const mine = tables.filter(({ adapter }) => ADAPTER.every((k) => adapter[k] === made.table.adapter[k]));
    mine.forEach((t) => made.#include(() => Table.parse(t), "the tuning in the plan"));
    return made.budget > 0 || made.table.entries.size ? made : null;
  }

  budget = 0;

  /** `timer` takes the place of the device's clock, in tests; `warn(text)` is told what is ignored. */
  constructor(device, timer, warn) {
    this.table = Table.of(device);
    this.timer = timer;
    this.warn = warn;
  }

  /** Adds a table; one that is damaged or for another adapter is left out with a warning. */
  #include(read, what) {
    try {
      this.table.add(read());
    } catch (e) {
      if (!(e instanceof PlanError)) throw e;
      const then = this.budget > 0 ? "it is measured anew" : "defaults are taken";
      this.warn(`${what} is ignored: ${e.what}; ${then}`);
    }
  }

  get #name() {
    return JSON.stringify([this.table.adapter, this.table.limits]);
  }

  async #recall() {
    const text = await stored("readonly", (store) => store.get(this.#name)).catch(this.#unkept);
    if (text === undefined || text === null) return;
    this.#include(() => Table.loads(typeof text === "string" ? text : ""), "the tuning in the browser's storage");
  }

  /** Puts the table into the browser's storage. Where that is not allowed, that is a warning. */
  async keep() {
    await stored("readwrite", (store) => store.put(JSON.stringify(this.table), this.#name)).catch(this.#unkept);
  }

  #unkept = (e) => {
    this.warn(`the browser's storage keeps no tuning (${e?.message ?? e}); each page measures anew`);
    return null;
  };
}

/** What a request on the store of tunings gives. */
async function stored(mode, ask) {
  const asked = indexedDB.open("webrt", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("tuning");
  const db = await settled(asked);
  try {
    return await settled(ask(db.transaction("tuning", mode).objectStore("tuning")));
  } finally {
    db.close();
  }
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another page holds it"));
  });
}
