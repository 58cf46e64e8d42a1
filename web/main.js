/** The page: what its controls do. All work is done in worker.js, so that the page never blocks. */

import { compileInSandbox } from "./sandbox.js";
import * as view from "./view.js";

const $ = (id) => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });
const waiting = new Map();
let calls = 0;
let picture = null;
let refused = null;

worker.onmessage = ({ data }) => {
  if (data.progress) return view.showProgress(...data.progress);
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  return data.error ? reject(data.error) : resolve(data.result);
};
worker.onerror = (event) => {
  const error = { kind: "Error", message: event.message || "worker.js cannot be loaded; reload the page" };
  waiting.forEach(({ reject }) => reject(error));
  waiting.clear();
};

/** Asks the worker to do something; rejects with { kind, message }. */
function call(what, args = {}) {
  calls += 1;
  return new Promise((resolve, reject) => {
    waiting.set(calls, { resolve, reject });
    worker.postMessage({ id: calls, what, args });
  });
}

/** Does a piece of work with the controls off, and shows what goes wrong. */
async function work(action) {
  view.startWork();
  const controls = [...document.querySelectorAll("button, input, select")].filter((c) => !c.disabled);
  controls.forEach((c) => { c.disabled = true; });
  document.body.ariaBusy = "true";
  try {
    await action();
  } catch (error) {
    view.showProblem(error.kind ?? error.name, error.message, error.asked);
  } finally {
    controls.forEach((c) => { c.disabled = false; });
    document.body.ariaBusy = "false";
  }
}

const readPicture = () => work(async () => {
  $("text").textContent = "";
  $("text-note").textContent = "";
  const image = await createImageBitmap(picture ?? await (await fetch("hello.png")).blob()).catch(() => {
    throw new Error("This file is no picture that the browser can show.");
  });
  const result = await call("read", { image });
  view.showResult(result);
  const sure = Math.round(result.confidence * 100);
  $("text").textContent = result.text || "(no text found)";
  $("text-note").textContent = `${sure} % sure. ${view.summaryOf(result)}`;
  $("text-note").scrollIntoView({ block: "nearest" });
});

/** Work on a file, whose name its errors tell. */
const workOn = ({ name }, action) => work(async () => {
  try {
    await action();
  } catch (error) {
    throw { kind: error.kind ?? error.name, message: view.ofFile(error.message, name), asked: error.asked };
  }
});

const openModel = (file, known = {}) => workOn(file, async () => {
  $("feeds").hidden = true;
  const compiled = !file.name.endsWith(".webrt");
  const plan = compiled ? new Blob([await confined(file, known)]) : file;
  await show({ file: plan, name: file.name, compiled }, known);
});

/** The plan of a model that nobody has to trust, for the worker's device and the `known` elements of inputs. */
async function confined(file, known) {
  const target = await call("target");
  const options = { ...(target ? { target: JSON.parse(target) } : { providers: ["cpu"] }), known };
  try {
    return (await compileInSandbox(file, { options, onProgress: view.showCompiling })).plan;
  } catch (error) {
    refused = { file, known };
    const roots = (error.name === "NotConstant" && error.roots) || [];
    error.asked = Object.fromEntries([...Object.keys(known), ...roots.filter(Boolean)].map((name) => [name, known[name]]));
    throw error;
  }
}

const openKnown = () => openModel(refused.file, { ...refused.known, ...view.knownValues() });

/** A model whose inputs decide its kernels has to be compiled at each run, beside its device: that is the user's to decide. */
const openTrusted = () => workOn(refused.file, () => show({ file: refused.file, name: refused.file.name }));

async function show(args, known = {}) {
  view.showModel(await call("open", args), known);
  $("run").scrollIntoView({ block: "nearest" });
}

const runModel = () => work(async () => {
  const args = { sizes: view.chosenSizes(), fill: $("fill").value, seed: $("seed").valueAsNumber };
  const result = await call("run", args);
  view.showResult(result);
  $("model-ran").textContent = view.summaryOf(result);
  $("model-ran").scrollIntoView({ block: "nearest" });
});

const savePlan = () => work(async () => {
  const { bytes, name } = await call("save");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
});

$("read").onclick = readPicture;
$("picture-file").onchange = ({ target }) => {
  [picture = null] = target.files;
  if (!picture) return;
  URL.revokeObjectURL($("picture").src);
  $("picture").src = URL.createObjectURL(picture);
};
$("model-file").onchange = ({ target }) => {
  if (target.files.length) openModel(target.files[0]);
  target.value = "";
};
$("feeds").onsubmit = (event) => {
  event.preventDefault();
  runModel();
};
$("known").onsubmit = (event) => {
  event.preventDefault();
  openKnown();
};
$("save").onclick = savePlan;
$("trust").onclick = openTrusted;

for (const [type, over] of [["dragenter", true], ["dragover", true], ["dragleave", false], ["drop", false]]) {
  addEventListener(type, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", over);
  });
}
addEventListener("drop", ({ dataTransfer }) => {
  const [file] = dataTransfer.files;
  if (file && document.body.ariaBusy !== "true") openModel(file);
});

call("adapter").then(view.showAdapter, (error) => view.showAdapter({ text: error.message, found: false }));
