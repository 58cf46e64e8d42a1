/** What the page shows, from plain data. Texts of models only ever become text nodes. */

const $ = (id) => document.getElementById(id);
const stages = new Map();
let working = false;

/** A new element with text and attributes. */
function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  return element;
}

/** A cell with a model's name, which may break after its separators. */
function nameCell(name) {
  const cell = make("td", "", { class: "name" });
  cell.append(...name.split(/(?<=[./_:])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part])));
  return cell;
}

function row(...cells) {
  const line = make("tr");
  line.append(...cells.map((cell) => (cell instanceof Node ? cell : make("td", String(cell)))));
  return line;
}

const shapeText = (dims) => (dims ? `[${dims.join(", ")}]` : "unknown rank");

export function showAdapter({ text, found }) {
  $("adapter").textContent = text;
  $("adapter").className = `chip ${found ? "good" : "bad"}`;
}

/** Starts a new list of stages and hides what is there of the last work. */
export function startWork() {
  working = true;
  $("model-ran").textContent = "";
  stages.clear();
  $("stages").replaceChildren();
  $("work").hidden = false;
  $("problem").hidden = true;
  $("result").hidden = true;
}

/** As showProgress, of compileInSandbox: the compiler's own stages are one. */
export function showCompiling(stage, done, total) {
  const known = ["Loading Pyodide", "Starting Python"].includes(stage);
  showProgress(known ? stage : "Compiling in a sandbox", done, total);
}

/** Shows that `done` of `total` of a stage is done; bytes are shown as MB. */
export function showProgress(stage, done, total) {
  if (!working) return;
  if (!stages.has(stage)) {
    const item = make("li");
    const id = `stage-${stages.size}`;
    item.append(make("label", stage, { for: id }), make("progress", "", { id, max: 1 }), make("span", "", { class: "amount" }));
    $("stages").append(item);
    stages.set(stage, { item, started: performance.now() });
  }
  const { item, started } = stages.get(stage);
  const [, bar, amount] = item.children;
  if (done >= total) {
    bar.value = 1;
    amount.textContent = `${((performance.now() - started) / 1e3).toFixed(1)} s`;
  } else if (done > 0) {
    bar.value = done / total;
    amount.textContent = total > 1e5 ? `${(done / 1e6).toFixed(1)} / ${(total / 1e6).toFixed(1)} MB` : `${done} of ${total}`;
  } else {
    bar.removeAttribute("value");
    amount.textContent = "…";
  }
}

/** The work has failed: stages that are not done stand still, and downloads that go on are not shown. */
function stopWork() {
  working = false;
  for (const { item } of stages.values()) {
    const [, bar, amount] = item.children;
    if (bar.position === 1) continue;
    bar.value = Math.max(bar.position, 0);
    amount.textContent = "stopped";
    item.className = "stopped";
  }
  $("work").hidden = stages.size === 0;
}

const GIVE_KNOWN = "Give the values below: the model is compiled for them, as with webrt compile --known NAME=VALUE.";
const HELP = {
  NoAdapter: "A .webrt plan needs WebGPU. Open the .onnx instead: the CPU provider then runs it here.",
  PlanError: "Make the .webrt again: webrt compile model.onnx",
  InvalidModel: "Check the file with onnx.checker, or export the model again.",
  ExternalDataError: "Models with external data cannot be opened in the page; compile them with `webrt compile`.",
  InputError: "Choose other sizes or values above.",
  OutOfMemory: "Choose smaller sizes, or close other tabs that use the GPU.",
  DeviceLost: "Reload the page.",
};

/**
 * Says what went wrong with the work, and what to do. `kind` is the error's class; `asked` inputs whose elements the model
 * has to be compiled for, with those that were given last (undefined: none yet): each gets a field.
 */
export function showProblem(kind, message, asked = {}) {
  stopWork();
  $("problem-title").textContent = kind && kind !== "Error" ? kind : "That did not work";
  $("problem-text").textContent = message;
  $("problem-text").classList.toggle("code", message.includes("\n"));
  const fields = Object.entries(asked).map(([name, value]) => knownField(name, value));
  $("problem-help").textContent = fields.length ? GIVE_KNOWN : HELP[kind] ?? "";
  $("known-values").replaceChildren(make("legend", "Known values"), ...fields);
  $("known").hidden = fields.length === 0;
  $("trust").hidden = kind !== "NotConstant";
  $("problem").hidden = false;
  $("problem").scrollIntoView({ block: "nearest" });
}

/** An error's words with the file's name: in place of "the model" at their start, else before them. */
export function ofFile(message, name) {
  if (message.includes(name)) return message;
  return message.startsWith("the model ") ? name + message.slice("the model".length) : `${name}: ${message}`;
}

/** A field for the elements of an input, as JSON. */
function knownField(name, value) {
  const label = make("label", name);
  const field = make("input", "", { required: "", placeholder: "16000 or [1, 2]", "data-known": name });
  field.value = value === undefined ? "" : JSON.stringify(value);
  field.oninput = () => field.setCustomValidity(isJson(field.value) ? "" : "A number, or numbers as in [1, 2]");
  label.append(field);
  return label;
}

function isJson(text) {
  try {
    return JSON.parse(text) !== null;
  } catch {
    return false;
  }
}

/** The elements in the fields, by input. */
export function knownValues() {
  const fields = [...$("known-values").querySelectorAll("input")];
  return Object.fromEntries(fields.map((f) => [f.dataset.known, JSON.parse(f.value)]));
}

/** Shows an opened model: its inputs, with a field for each free size; `known` are elements that it was compiled for. */
export function showModel({ name, note, inputs, sizes, canSave }, known = {}) {
  $("model-name").textContent = name;
  $("model-note").textContent = note;
  $("inputs").replaceChildren(...inputs.map((i) => row(nameCell(i.name), i.dtype || "no tensor", `${shapeText(i.shape)}${fixedText(i, known)}`)));
  const fields = Object.entries(sizes).map(([size, value]) => {
    const label = make("label", size);
    label.append(make("input", "", { type: "number", min: 0, max: 65536, required: "", value, "data-size": size }));
    return label;
  });
  $("dims").replaceChildren(make("legend", "Free sizes"), ...fields);
  $("dims").hidden = fields.length === 0;
  $("save").hidden = !canSave;
  $("feeds").hidden = false;
}

function fixedText({ name, fixed }, known) {
  if (!fixed) return "";
  return Object.hasOwn(known, name) ? `, fixed to ${JSON.stringify(known[name])}` : ", fixed";
}

/** The sizes in the fields, by name. */
export const chosenSizes = () => Object.fromEntries([...$("dims").querySelectorAll("input")].map((f) => [f.dataset.size, f.valueAsNumber]));

const timeText = (ms) => (ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`);

/** A run in a sentence or two: how long the last of its runs took, where, and who ran the nodes. */
export const summaryOf = ({ times, device, placement, recovered }) => (
  `${recovered ? "The device was lost; another one took over. " : ""}`
  + `${timeText(times.at(-1)[1])} on ${device}. ${placementText(placement)}.`);

/** Shows a run: { outputs, placement, times }. */
export function showResult({ outputs, placement, times }) {
  $("outputs").replaceChildren(...outputs.map((o) => row(
    nameCell(o.name), o.dtype, shapeText(o.dims), o.min, o.max, make("td", o.first, { class: "values" }))));
  showPlacement(placement);
  $("times").replaceChildren(...times.map(([what, ms]) => {
    const pair = make("div");
    pair.append(make("dt", what), make("dd", timeText(ms)));
    return pair;
  }));
  $("result").hidden = false;
}

const hosted = (placement) => placement.filter((p) => p.provider === "cpu").length;

function placementText(placement) {
  const host = hosted(placement);
  const free = placement.filter((p) => p.provider !== "cpu" && ["alias", "folded"].includes(p.how)).length;
  const device = placement.length - host - free;
  const nodes = `${placement.length} ${placement.length === 1 ? "node" : "nodes"}`;
  return `${nodes}: ${device} on WebGPU, ${host} on the CPU, ${free} ${free === 1 ? "needs" : "need"} no work`;
}

function showPlacement(placement) {
  const kinds = new Map();
  for (const p of placement) {
    const key = JSON.stringify([p.op, p.provider, p.how, p.provider === "cpu" ? p.reason : ""]);
    kinds.set(key, (kinds.get(key) ?? 0) + 1);
  }
  const host = hosted(placement);
  $("placement-summary").textContent = placementText(placement);
  const rows = [...kinds].map(([key, count]) => ({ count, kind: JSON.parse(key) }));
  rows.sort((a, b) => (b.kind[1] === "cpu") - (a.kind[1] === "cpu") || b.count - a.count);
  $("placement").replaceChildren(...rows.map(({ count, kind: [op, provider, how, reason] }) => row(
    nameCell(op), count,
    make("td", provider === "cpu" ? "CPU" : "WebGPU", { class: provider === "cpu" ? "cpu" : "" }), how, reason)));
  $("placement-details").open = host > 0;
}
