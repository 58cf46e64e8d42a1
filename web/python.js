/**
 * Pyodide with webrt in it, from a folder of `webrt site`. What needs no Python begins at once, while Python loads: the
 * device opens; the plan is fetched and checked, its pipelines are made and its constants uploaded.
 *
 *   const { pyodide, plan } = await startPython({ plan: "model.webrt", packages: ["webrt", "numpy"] });
 *   pyodide.globals.set("plan", plan);
 *   await pyodide.runPythonAsync("import webrt; session = await webrt.InferenceSession.create(plan.to_bytes())");
 *
 * The package `webrt` runs plans; `webrt-compiler`, with onnx and numpy, compiles models and runs nodes on the CPU.
 */

import { WebrtError } from "./player/common.js";

/**
 * { pyodide, plan }: `plan` are the bytes of the file of that name, null without one. `index` is Pyodide's folder,
 * `onProgress(stage, done, total)` hears of the plan's loading, as in `loadPlan`.
 *
 * Raises WebrtError for a plan that cannot be fetched. What else is wrong with it, or with the device, is told by
 * `InferenceSession.create`.
 */
export async function startPython({ index = "pyodide/", packages = ["webrt"], plan = null, onProgress = null } = {}) {
  const indexURL = new URL(index, globalThis.location.href).href;
  const core = import(`${indexURL}pyodide.mjs`); // what is large is asked for first
  const early = new Early(plan, onProgress);
  const { loadPyodide } = await core;
  const pyodide = await loadPyodide({ indexURL, packages });
  pyodide.registerJsModule("webrt_player", await early.module());
  return { pyodide, plan: await early.bytes };
}

/** The device and a plan's session before Python is there; Python takes them over, the first time that it asks. */
class Early {
  #player = import("./player/pyodide.js");
  #opened = this.#player.then((player) => player.open());
  #loaded;
  #host = null;
  #told = [];
  #warn = (text) => this.#told.push(text); // until Python says where to

  constructor(plan, onProgress) {
    this.bytes = plan === null ? Promise.resolve(null) : fetched(plan);
    this.#loaded = this.#load(onProgress);
    for (const begun of [this.#opened, this.bytes, this.#loaded]) begun.catch(() => null); // told to who asks for it
  }

  /** What webrt/runtime/browser.py takes for player/pyodide.js. */
  async module() {
    return { ...await this.#player, open: () => this.#open(), load: (...given) => this.#take(...given) };
  }

  async #load(onProgress) {
    const bytes = await this.bytes;
    if (bytes === null) return null;
    const [player, opened] = [await this.#player, await this.#opened];
    const host = (...given) => this.#host(...given);
    return { bytes, opened, ...await player.load(bytes, opened, host, onProgress, "", (text) => this.#warn(text)) };
  }

  async #open() {
    const opened = this.#opened ?? (await this.#player).open();
    this.#opened = null;
    return opened;
  }

  /** As player/pyodide.js's load: the session that began early where it is of this very file and device. */
  async #take(file, opened, host, onProgress, known, warn) {
    const begun = this.#loaded;
    this.#loaded = null;
    const early = await begun?.catch(() => null); // what failed is tried again, and told then
    if (early && !known && early.opened === opened && isSame(early.bytes, file)) {
      [this.#host, this.#warn] = [host, warn];
      this.#told.forEach((text) => warn(text));
      return early;
    }
    early?.session.release();
    return (await this.#player).load(file, opened, host, onProgress, known, warn);
  }
}

function isSame(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false; // `every` takes ten times as long
  return true;
}

async function fetched(url) {
  const answer = await fetch(url).catch((e) => { throw new WebrtError(`${url} cannot be fetched (${e.message})`); });
  if (!answer.ok) throw new WebrtError(`${url}: HTTP ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}
