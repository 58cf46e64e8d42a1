/** Everything that takes time: Pyodide, compiling, running. main.js asks by name, one call at a time. */

import { DTYPES, PlacementError, WebrtError, loadPlan } from "./player.js";
import { describe as describeDevice, open as openDevice } from "./player/pyodide.js";
import { startPython } from "./python.js";
import { describe, freeSizes, makeFeeds } from "./tensors.js";

const report = (stage, done, total) => postMessage({ progress: [stage, done, total] });
const CORE = "Loading Pyodide";
const PACKAGES = "Loading packages";
const plainFetch = self.fetch.bind(self);
let python = null;
let reader = null;
let current = null;

/** What the site holds: site.json. Raises WebrtError where the page was not made by `webrt site`. */
async function readSite() {
  const answer = await fetch("site.json");
  if (!answer.ok) throw new WebrtError("this folder holds no Pyodide: make it with `webrt site FOLDER`, and open that");
  return answer.json();
}

/** From here on `fetch` reports the bytes of the site's files of Pyodide. Its modules are imported, not fetched. */
function countDownloads(files) {
  const stageOf = new Map();
  const total = { [CORE]: 0, [PACKAGES]: 0 };
  const done = { [CORE]: 0, [PACKAGES]: 0 };
  for (const { path, bytes } of files.filter((f) => !f.path.endsWith(".mjs"))) {
    const stage = path.endsWith(".whl") ? PACKAGES : CORE;
    stageOf.set(new URL(path, location.href).href, stage);
    total[stage] += bytes;
  }
  self.fetch = async (resource, options) => {
    const answer = await plainFetch(resource, options);
    const stage = stageOf.get(new URL(resource.url ?? resource, location.href).href);
    if (!stage || !answer.body) return answer;
    const counter = new TransformStream({
      transform(chunk, controller) {
        done[stage] += chunk.length;
        report(stage, done[stage], total[stage]);
        controller.enqueue(chunk);
      },
    });
    return new Response(answer.body.pipeThrough(counter), answer);
  };
}

/** Pyodide with webrt and app.py in it, loaded once: { app }. */
function withPython() {
  python ??= loadPython().catch((error) => {
    python = null;
    throw error;
  });
  return python;
}

async function loadPython() {
  const begun = [CORE, PACKAGES];
  begun.forEach((stage) => report(stage, 0, 1));
  const site = await readSite();
  countDownloads(site.pyodide.files);
  const sources = ["app.py", "ocr.py"].map(async (name) => [name, await (await fetch(name)).text()]);
  const { pyodide } = await startPython(site.pyodide);
  begun.forEach((stage) => report(stage, 1, 1));
  report("Starting Python", 0, 1);
  for (const [name, text] of await Promise.all(sources)) pyodide.FS.writeFile(`/home/pyodide/${name}`, text);
  const app = pyodide.pyimport("app");
  report("Starting Python", 1, 1);
  return { app };
}

/** Which adapter runs kernels: { text, found, software }. */
async function adapter() {
  const found = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!found) return { text: navigator.gpu ? "No WebGPU adapter: the CPU runs everything" : "No WebGPU here: the CPU runs everything", found: false };
  const { vendor, architecture, description } = found.info;
  return { text: `WebGPU: ${description || [vendor, architecture].filter(Boolean).join(" ") || "unnamed adapter"}`, found: true };
}

/** A `.webrt` without Python. Its run takes and gives { name: { dtype, dims, data } }. */
async function openPlan(file) {
  const session = await loadPlan(file, { onProgress: reportPlan, autoRecover: true });
  return {
    inputs: session.inputs, placement: session.placement, note: "A plan: no Python is needed.",
    get device() { return session.gpu.device; },
    run: (feeds) => session.run(feeds), close: () => session.release(),
  };
}

function reportPlan(stage, done, total) {
  report({ download: "Uploading constants", pipelines: "Making pipelines" }[stage] ?? stage, done, total);
}

/** A model with Python; or a plan with host steps, whose nodes Python runs. */
async function openWithPython(bytes, { isPlan = false } = {}) {
  const { app } = await withPython();
  const opened = await app.open_model(bytes, report);
  const description = () => JSON.parse(opened.description());
  const { inputs, webgpu } = description();
  const where = webgpu ? "Compiled here, under Pyodide." : "No WebGPU adapter: the CPU provider runs it, under Pyodide.";
  return {
    opened, inputs, note: isPlan ? "A plan with nodes for the CPU: Pyodide runs these." : where,
    plan: isPlan ? null : () => opened.plan_bytes(),
    get placement() { return description().placement; },
    get device() { return opened.devices; },
    run: async (feeds) => ofWire(await opened.run(toWire(feeds))),
    close: () => { opened.close(); opened.destroy(); },
  };
}

const toWire = (feeds) => Object.entries(feeds).map(([name, { dtype, dims, data }]) => [name, dtype, dims, data]);

/** Tensors as app.py gives them: [[name, dtype, dims, bytes]] → { name: { dtype, dims, data } }. */
function ofWire(tensors) {
  return Object.fromEntries(tensors.map(([name, dtype, dims, data]) => {
    const array = DTYPES.get(dtype)?.array;
    return [name, { dtype, dims, data: array && data instanceof Uint8Array ? new array(data.slice().buffer) : data }];
  }));
}

async function openFile(file, isPlan) {
  if (!isPlan) return openWithPython(new Uint8Array(await file.arrayBuffer()));
  try {
    return await openPlan(file);
  } catch (error) {
    if (!(error instanceof PlacementError)) throw error;
    return openWithPython(new Uint8Array(await file.arrayBuffer()), { isPlan: true });
  }
}

/**
 * Runs a model twice, so that the second time is what every later run takes. Returns [outputs, times, recovered]: whether
 * the device was lost, and another one took its place.
 */
async function runTwice(model, feeds) {
  const times = [];
  const { device } = model;
  let outputs;
  for (const [i, what] of ["First run", "Next run"].entries()) {
    report("Running", i, 2);
    const start = performance.now();
    outputs = await model.run(feeds);
    times.push([what, performance.now() - start]);
  }
  report("Running", 2, 2);
  return [outputs, times, model.device !== device];
}

async function result(model, outputs, times, recovered) {
  const described = Object.entries(outputs).map(([name, tensor]) => describe(name, tensor));
  const { found, text } = await adapter();
  const device = found ? text.replace(/^WebGPU: /, "") : "the CPU";
  return { outputs: described, placement: model.placement, times, device, recovered };
}

async function timed(what, action) {
  const start = performance.now();
  const value = await action();
  return [value, [what, performance.now() - start]];
}

const calls = {
  adapter,

  /** The device's Target as JSON, null where there is none. */
  async target() {
    if (!(await adapter()).found) return null;
    const opened = await openDevice();
    opened.device.destroy();
    return describeDevice(opened);
  },

  /** Opens a model or a plan; `compiled`: the file is a plan that was made of a model in a sandbox. */
  async open({ file, name, compiled = false }) {
    current?.close();
    current = null;
    let [model, time] = await timed("Load", () => openFile(file, compiled || name.endsWith(".webrt")));
    if (compiled) {
      const note = `Compiled in a sandbox: a plan of ${(file.size / 1e6).toFixed(2)} MB.`;
      model = Object.assign(model, { note, plan: async () => new Uint8Array(await file.arrayBuffer()) });
    }
    current = Object.assign(model, { name, loadTime: time });
    return { name, note: model.note, inputs: model.inputs, sizes: freeSizes(model.inputs), canSave: Boolean(model.plan) };
  },

  async run({ sizes, fill, seed }) {
    const [outputs, times, recovered] = await runTwice(current, makeFeeds(current.inputs.filter((i) => !i.fixed), sizes, fill, seed));
    return result(current, outputs, [current.loadTime, ...times], recovered);
  },

  async save() {
    return { bytes: await current.plan(), name: current.name.replace(/\.onnx$/, "") + ".webrt" };
  },

  /** Reads one line of text in an ImageBitmap. */
  async read({ image }) {
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.fillStyle = "white";
    context.fillRect(0, 0, image.width, image.height);
    context.drawImage(image, 0, 0);
    const { data, width, height } = context.getImageData(0, 0, image.width, image.height);
    const bytes = reader ? null : demoModel(); // arrives while Python starts
    bytes?.catch(() => null);
    const [{ app }, pythonTime] = await timed("Python", withPython);
    const [model, loadTime] = await timed("Compile and load", () => openReader(bytes));
    const [, dtype, dims, input] = app.network_input(data, height, width);
    const [outputs, times, recovered] = await runTwice(model, { [model.inputs[0].name]: { dtype, dims, data: input } });
    const [text, confidence] = app.text_of(model.opened, toWire(outputs)[0]);
    return { ...await result(model, outputs, [pythonTime, loadTime, ...times], recovered), text, confidence };
  },
};

/** The demo's model, opened once. */
async function openReader(bytes) {
  reader ??= await openWithPython(await bytes);
  return reader;
}

async function demoModel() {
  const { demo } = await readSite();
  if (!demo) throw new WebrtError("this site was made without the demo's model: run `webrt site` without --no-demo");
  const bytes = new Uint8Array(demo.bytes);
  let done = 0;
  const answer = await fetch(demo.path);
  if (!answer.ok) throw new WebrtError(`the demo's model cannot be fetched (HTTP ${answer.status}); make the site again`);
  for await (const chunk of answer.body) {
    bytes.set(chunk, done);
    done += chunk.length;
    report("Downloading the model", done, demo.bytes);
  }
  return bytes;
}

/** An error as plain data. Python's are told by their own class and words, without the traceback. */
function told(error) {
  const words = String(error?.message ?? error).trim();
  if (error?.name !== "PythonError") return { kind: error?.name ?? "Error", message: words };
  const mark = `${error.type}: `;
  const at = words.lastIndexOf(mark);
  return { kind: error.type, message: at < 0 ? words : words.slice(at + mark.length) };
}

let turn = Promise.resolve();
onmessage = ({ data: { id, what, args } }) => {
  turn = turn.then(async () => {
    try {
      postMessage({ id, result: await calls[what](args) });
    } catch (error) {
      postMessage({ id, error: told(error) });
    }
  });
};
