/**
 * Compiles a stranger's model where it can do nothing else: in a worker of a sandboxed frame without network, storage or
 * GPU. What comes back is checked. docs/security.md says what each part stops.
 *
 *   const { plan, placement } = await compileInSandbox(bytes, { site: "site.json" });
 *   const session = await loadPlan(plan);
 */

import { whyNoModel } from "./model-bytes.js";
import {
  InputError, ModelError, PlacementError, SandboxError, ShapeError, TargetError, UnsupportedType,
} from "./player/common.js";
import { Source, readPlan } from "./player/source.js";

const FRAME = new URL("compile-frame.html", import.meta.url);
const WORKER = new URL("compile-worker.js", import.meta.url);
const START_SECONDS = 300;
const PAGE = 65536;
const MAX_TEXT = 20_000;
const MAX_MESSAGES = 10_000;
const MAX_REPORT = 64 << 20;
const WRONG_FORM = "the sandbox sent a message of the wrong form";
const KINDS = ["ready", "progress", "done", "error"];
const CLASSES = { InputError, ModelError, PlacementError, ShapeError, TargetError, UnsupportedType };
const OF_MODELS = ["InvalidModel", "UnsupportedOp", "NotConstant", "ExternalDataError"];

/**
 * The plan of an ONNX model: { plan, onnx, placement, bytes }, `plan` a .webrt file that satisfies the player's rules,
 * `onnx` the optimised model (null where `options.optimized` is not set), `placement` as in `Session.placement`, `bytes`
 * the plan's size.
 *
 * `model`: bytes or a Blob. `site`: the address of a `webrt site`'s site.json. `externalData`: bytes by location.
 * `options`: level, providers, target, free_dims, strict, disabled, optimized, as in webrt.compiler.options, and `known`:
 * elements of inputs that the plan is made for, by name, a number or (nested) arrays of the input's type. Limits:
 * `timeout` in seconds from when the model is handed over, `memory` of the WebAssembly heap and `output` in bytes.
 * `onProgress(stage, done, total)`. `signal`: an AbortSignal.
 *
 * Raises ModelError and its kin as `webrt.compile_model` does, at once for what is no ONNX model, and SandboxError where the compilation ran out of time or
 * memory, or did what it may not.
 */
export async function compileInSandbox(model, {
  site = "site.json", externalData = {}, options = {}, timeout = 300, memory = 2 ** 31, output = 2 ** 31,
  onProgress = () => {}, signal,
} = {}) {
  const request = JSON.stringify(options, exact);
  const bytes = await bytesOf(model);
  const wrong = whyNoModel(bytes);
  if (wrong) throw modelError("InvalidModel", `the model ${wrong}`);
  const box = new Box({ memory, output, signal });
  try {
    await box.start(site, onProgress);
    const message = { model: bytes, request, externalData };
    return await checked(await box.compile(message, timeout, onProgress));
  } finally {
    box.close();
  }
}

/** JSON has no numbers that would arrive as others. */
function exact(_, value) {
  const number = typeof value === "bigint" ? Number(value) : value;
  if (Number.isInteger(number) && !Number.isSafeInteger(number)) throw new InputError(`${value} is too large to be exact`);
  return number;
}

async function bytesOf(model) {
  if (model instanceof Blob) return new Uint8Array(await model.arrayBuffer());
  if (model instanceof ArrayBuffer) return new Uint8Array(model.slice(0));
  if (ArrayBuffer.isView(model)) return new Uint8Array(model.buffer, model.byteOffset, model.byteLength).slice();
  throw new InputError("a model is given as bytes or a Blob");
}

/** A frame with its worker, for one compilation. */
class Box {
  #frame = document.createElement("iframe");
  #channel = new MessageChannel();
  #limits;
  #messages = 0;
  #hear = null;
  #refuse = null;

  constructor(limits) {
    this.#limits = limits;
  }

  /** Shows the frame and hands it Pyodide; resolves when the worker can compile. */
  async start(site, onProgress) {
    const files = await filesOf(site, onProgress);
    onProgress("Starting Python", 0, 1);
    const code = await (await fetched(WORKER)).text();
    await this.#shown();
    const port = this.#channel.port2;
    const start = { code, files, port, pages: Math.floor(this.#limits.memory / PAGE) };
    const ready = this.#next(["ready"], START_SECONDS, "starting Pyodide", onProgress);
    this.#frame.contentWindow.postMessage(start, "*", [port, ...Object.values(files)]);
    await ready;
    onProgress("Starting Python", 1, 1);
  }

  /** The worker's last message. */
  compile(message, timeout, onProgress) {
    const answer = this.#next(["done"], timeout, "compiling", onProgress);
    this.#channel.port1.postMessage(message, [message.model.buffer]);
    return answer;
  }

  /** Ends the worker with its frame, whatever it does. */
  close() {
    removeEventListener("message", this.#hear);
    this.#channel.port1.close();
    this.#frame.remove();
  }

  #shown() {
    return new Promise((resolve, reject) => {
      this.#frame.sandbox = "allow-scripts";
      this.#frame.hidden = true;
      this.#frame.src = FRAME;
      const missing = new SandboxError("the sandbox's frame cannot be loaded");
      const late = setTimeout(() => reject(missing), START_SECONDS * 1e3);
      this.#hear = ({ source, data }) => {
        if (source !== this.#frame.contentWindow) return;
        clearTimeout(late);
        if (data === "ready") resolve();
        else this.#refuse(`the sandbox's worker failed: ${clean(data)}`);
      };
      addEventListener("message", this.#hear);
      document.body.append(this.#frame);
    });
  }

  /** Resolves with a message of one of `kinds`; progress is passed on meanwhile. */
  #next(kinds, seconds, what, onProgress) {
    const { signal } = this.#limits;
    return new Promise((resolve, reject) => {
      const refuse = (why) => reject(new SandboxError(why));
      this.#refuse = refuse;
      const late = () => refuse(`out of time: ${what} took longer than ${seconds} s`);
      const timer = setTimeout(late, seconds * 1e3);
      signal?.throwIfAborted();
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      this.#channel.port1.onmessage = ({ data }) => {
        const wrong = this.#wrong(data);
        if (wrong) refuse(wrong);
        else if (data.kind === "progress") return onProgress(clean(data.stage), data.done, data.total);
        else if (data.kind === "error") reject(errorOf(data.told, this.#limits));
        else if (kinds.includes(data.kind)) resolve(data);
        else refuse(`the sandbox sent '${data.kind}', which nobody asked for`);
        return clearTimeout(timer);
      };
      this.#channel.port1.onmessageerror = () => refuse("the sandbox sent something that is no message");
    });
  }

  /** Why a message cannot be the worker's own; "" where it can. */
  #wrong(data) {
    this.#messages += 1;
    if (this.#messages > MAX_MESSAGES) return "too much output: more messages than allowed";
    if (!KINDS.includes(data?.kind)) return "the sandbox sent something that is no message";
    if (data.kind === "progress") {
      const { stage, done, total } = data;
      const right = typeof stage === "string" && Number.isFinite(done) && Number.isFinite(total);
      return right ? "" : WRONG_FORM;
    }
    if (data.kind === "ready") return "";
    const files = data.kind === "error" || (data.plan instanceof Uint8Array && data.onnx instanceof Uint8Array);
    if (!files || typeof data.told !== "string") return WRONG_FORM;
    const size = data.told.length + (data.plan?.length ?? 0) + (data.onnx?.length ?? 0);
    return size > this.#limits.output || data.told.length > MAX_REPORT ? `too much output: ${size} bytes` : "";
  }
}

/** The site's files of Pyodide: { name: ArrayBuffer }. */
async function filesOf(site, onProgress) {
  const manifest = await (await fetched(site)).json();
  const base = new URL(site, document.baseURI);
  const { files } = manifest.pyodide;
  const total = files.reduce((sum, f) => sum + f.bytes, 0);
  let done = 0;
  return Object.fromEntries(await Promise.all(files.map(async ({ path }) => {
    const data = await (await fetched(new URL(path, base))).arrayBuffer();
    done += data.byteLength;
    onProgress("Loading Pyodide", Math.min(done, total), total);
    return [path.split("/").at(-1), data];
  })));
}

async function fetched(url) {
  const answer = await fetch(url).catch((e) => { throw new SandboxError(`${url} cannot be fetched (${e.message})`); });
  if (!answer.ok) throw new SandboxError(`${url}: HTTP ${answer.status}; make the site again with \`webrt site FOLDER\``);
  return answer;
}

/** The result, once the plan satisfies the player's rules. */
async function checked({ plan, onnx, told }) {
  try {
    await readPlan(await Source.open(plan));
  } catch (e) {
    throw new SandboxError(`the sandbox returned a plan that breaks the rules: ${e.message}`);
  }
  const placement = parsed(told)?.placement;
  const line = (p) => ["node", "op", "provider", "how", "reason"].every((k) => typeof p?.[k] === "string");
  if (!Array.isArray(placement) || !placement.every(line)) {
    throw new SandboxError("the sandbox returned a damaged placement report");
  }
  return { plan, onnx: onnx.length ? onnx : null, placement, bytes: plan.length };
}

/** The compiler's error as the class that it is there; all else is a SandboxError. */
function errorOf(told, { memory }) {
  const message = parsed(told);
  if (message === null) return new SandboxError(WRONG_FORM);
  const { kind, what = "", node = "", op = "", opset = null, inputs = "", class: name, roots = [] } = message;
  if (kind === "memory") {
    const most = (memory / 1e9).toFixed(2);
    return new SandboxError(`out of memory: compiling needs more than ${most} GB; raise the limit`);
  }
  if (kind !== "webrt") return new SandboxError(`the compiler failed: ${clean(what)}`);
  const [n, o, i] = [node, op, inputs].map(clean);
  const where = { node: n, op: o, inputs: i, opset: Number.isInteger(opset) ? opset : null };
  const Kind = Object.hasOwn(CLASSES, name) ? CLASSES[name] : SandboxError;
  const error = OF_MODELS.includes(name) ? modelError(name, clean(what), where) : new Kind(clean(what), where);
  if (Array.isArray(roots)) error.roots = roots.map(clean);
  return error;
}

/** A ModelError by the name of its kind. */
const modelError = (name, what, where = {}) => Object.assign(new ModelError(what, where), { name });

/** The object in a JSON text, null where there is none. */
function parsed(text) {
  try {
    const data = JSON.parse(text);
    return typeof data === "object" ? data : null;
  } catch {
    return null;
  }
}

/** A stranger's text: bounded, no control characters. */
function clean(text) {
  return String(text).slice(0, MAX_TEXT).replace(/[\p{Cc}\p{Cf}]/gu, (c) => (c === "\n" ? c : "\ufffd"));
}
