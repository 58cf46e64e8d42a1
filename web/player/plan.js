/**
 * A plan's JSON, checked: the twin of webrt/validate.py, with the same rules and texts. Both sides are tested on
 * tests/unit/bad_plans.json.
 */

import { DEFAULT_LIMITS, DTYPES, PlanError, lacks, nbytesOf, padded } from "./common.js";
import { LIMIT, checkProgram } from "./dims.js";
import { isControl, isWellFormed, operands, within } from "./subplans.js";

const VERSION = 2;
const MAX_GROUPS = 65535;
const MAX_RANK = 64;
const MAX_ELEMENTS = 1 << 20;
const MAX_WGSL = 1 << 20;
const MAX_KERNELS = 20_000;
const MAX_TABLE = 1_000_000;
const MAX_PARAMS = 1 << 28;
const MAX_BLOCK = 16384;
const MAX_PROTO = 1 << 26;
const MAX_DEPTH = 32;
const MAX_NESTING = 8;
const MAX_TUNINGS = 64;
const ALIGN = 256;

const BINDING = new RegExp("@group\\(0\\) @binding\\((\\d+)\\) var(?:<storage, (read|read_write)>|"
  + " \\w+: (texture_2d<(?:f32|u32)>|texture_storage_2d<rgba32(?:float|uint), read>);)", "g");
const SAMPLER = /@group\(0\) @binding\((\d+)\) var nearest_texel: sampler;/g;
const PARAMS = "struct Params {";
const ACCESS = {
  read: "r", read_write: "w", "texture_2d<f32>": "f", "texture_2d<u32>": "u",
  "texture_storage_2d<rgba32float, read>": "F", "texture_storage_2d<rgba32uint, read>": "U",
};

// Records of a plan: required keys, then optional ones with their defaults.
const RECORDS = {
  plan: ["version dims inputs outputs values kernels slots constants steps checks placement",
    { params_size: 0, work: [], target: {}, meta: {}, tuning: [] }],
  value: ["name dtype shape", { place: null, elements: 0, constant: null, contents: null }],
  kernel: ["name wgsl hash", { requires: {} }],
  slot: ["size label", { after: 0 }],
  constant: ["name dtype shape nbytes offset", {}],
  dispatch: ["kind alternatives bindings params params_offset", { node: -1, textures: [], when: [] }],
  copy: ["kind source source_offset target target_offset size", { node: -1 }],
  host: ["kind proto opsets inputs outputs", { outer: [], node: -1 }],
  read: ["kind reads", { node: -1 }],
  branch: ["kind condition outputs bodies", { node: -1 }],
  loop: ["kind bodies trips condition number state elements again outputs lines", { node: -1 }],
  subplan: ["dims inputs outputs values slots steps", { params_size: 0, checks: [] }],
  placement: ["node op provider how", { reason: "", bytes: 0 }],
  work: ["tensors ops", { flop: [] }],
};

const damaged = (why) => new PlanError(`the plan is damaged (${why}); compile the model again`);
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const isInt = Number.isSafeInteger;
const isText = (x) => typeof x === "string";
const isPair = (x) => Array.isArray(x) && x.length === 2 && x.every(isInt);
const isIndex = (x, table) => isInt(x) && x >= 0 && x < table.length;
const isTexts = (x) => Array.isArray(x) && x.every(isText);
const isInts = (x) => isObject(x) && Object.values(x).every(isInt);

function record(kind, x) {
  const [required, optional] = RECORDS[kind];
  const keys = required.split(" ");
  if (!isObject(x)) throw damaged(`a ${kind} is no record`);
  const missing = keys.find((k) => !Object.hasOwn(x, k));
  const extra = Object.keys(x).find((k) => !keys.includes(k) && !Object.hasOwn(optional, k));
  if (missing !== undefined || extra !== undefined) throw damaged(`a ${kind}: ${missing ?? extra}`);
  return { ...optional, ...x };
}

function records(kind, list) {
  if (!Array.isArray(list)) throw damaged(`${kind}s are no list`);
  return list.map((x) => record(kind, x));
}

/** The plan in its JSON text, checked. Raises PlanError with the texts of webrt/validate.py. */
export function parsePlan(text) {
  let d;
  try {
    d = JSON.parse(text);
  } catch (e) {
    throw damaged(e.message);
  }
  if (!isObject(d) || !Object.hasOwn(d, "version")) throw damaged("version");
  if (!isInt(d.version) || d.version < 1) throw damaged(`version ${d.version}`);
  if (d.version > VERSION) {
    throw new PlanError(`the plan is of version ${d.version}, made by a newer webrt; this one reads versions 1 to `
      + `${VERSION}: update webrt, or compile the model again`);
  }
  d = record("plan", d);
  if (!Array.isArray(d.tuning)) throw damaged("tuning is no list");
  const plan = {
    ...tables(d, 0), kernels: records("kernel", d.kernels), constants: records("constant", d.constants),
    placement: records("placement", d.placement), work: records("work", d.work),
  };
  validate(plan);
  return plan;
}

const KINDS = ["dispatch", "copy", "host", "read", "branch", "loop"];

/** What a plan and a sub-plan at `depth` both have. */
function tables(d, depth) {
  if (depth > 2 * MAX_NESTING) throw damaged("steps within steps without end");
  if (!isObject(d.values) || !Array.isArray(d.steps) || !Array.isArray(d.checks)) throw damaged("a table is missing");
  const values = Object.entries(d.values).map(([name, v]) => [name, record("value", v)]);
  const made = {
    ...d, values: new Map(values), inputs: records("value", d.inputs), outputs: records("value", d.outputs),
    slots: records("slot", d.slots), steps: d.steps.map((s) => stepOf(s, depth)),
  };
  if (!made.checks.every((c) => Array.isArray(c) && c.length === 2)) throw damaged("a check is no pair");
  const isRef = (x) => isInt(x) || Array.isArray(x) && x.length === 1;
  if (!made.slots.every((s) => isRef(s.size) && isRef(s.after))) throw damaged("a slot's size is no size");
  return made;
}

function stepOf(given, depth) {
  const step = record(KINDS.includes(given?.kind) ? given.kind : "dispatch", given);
  if (!KINDS.includes(step.kind)) throw damaged("a step of an unknown kind");
  if (!isControl(step)) return step;
  if (!Array.isArray(step.bodies)) throw damaged("bodies are no list");
  return { ...step, bodies: step.bodies.map((b) => tables(record("subplan", b), depth + 1)) };
}

function need(holds, where, what) {
  if (!holds) throw new PlanError(`${where}: ${what}; compile the model again`);
}

function validate(plan) {
  checkProgram(plan.dims);
  need(plan.kernels.length <= MAX_KERNELS, "kernels", "more entries than allowed");
  plan.kernels.forEach((k, i) => checkKernel(k, `kernel ${i}`));
  checkConstants(plan.constants);
  checkExtras(plan, rulesFor(plan));
  checkSteps(plan, "", 0);
}

/** What references within a plan's tables have to be. */
function rulesFor(plan) {
  const is = {
    ref: (x) => isInt(x) || Array.isArray(x) && x.length === 1 && isIndex(x[0], plan.dims),
    sizes: (x, most) => Array.isArray(x) && x.length <= most && x.every(is.ref),
    multiple: (x, of) => is.ref(x) && (typeof x !== "number" || x >= 0 && x % of === 0),
    within: (x, low, high) => is.ref(x) && (typeof x !== "number" || x >= low && x <= high),
    place: (p) => Array.isArray(p) && p.length === 2 && (p[0] === "s" || p[0] === "c")
      && isIndex(p[1], p[0] === "s" ? plan.slots : plan.constants),
  };
  return is;
}

/** The tables and steps of a plan, or of a sub-plan at `depth`; `inside` says of which step. */
function checkSteps(plan, inside, depth) {
  checkProgram(plan.dims);
  for (const key of ["inputs", "outputs", "slots", "constants", "steps", "checks", "placement"]) {
    need(plan[key].length <= MAX_TABLE, inside + key, "more entries than allowed");
  }
  need(plan.values.size <= MAX_TABLE, `${inside}values`, "more entries than allowed");
  const size = plan.params_size;
  need(isInt(size) && size >= 0 && size <= MAX_PARAMS, `${inside}params_size`, "not a size, or larger than allowed");
  const is = rulesFor(plan);
  plan.checks.forEach(([ref, message], i) => {
    need(is.ref(ref) && isText(message), `${inside}check ${i}`, "not a size and a message");
  });
  plan.slots.forEach((s, i) => checkSlot(s, is, `${inside}slot ${i}`));
  checkValues(plan, is, inside);
  const made = new Set(plan.inputs.map((v) => v.name));
  const variables = new Set(plan.dims.filter(([op]) => op === "var").map(([, name]) => name));
  plan.steps.forEach((step, i) => {
    const where = `${inside}step ${i}`;
    const node = step.node === -1 || isIndex(step.node, plan.placement);
    need(node, where, "its node is not in the placement");
    if (step.kind === "dispatch") checkDispatch(plan, step, is, where);
    else if (step.kind === "copy") checkCopy(step, is, where);
    else if (step.kind === "read") checkRead(step, variables, is, where);
    else if (isControl(step)) {
      checkControl(plan, step, made, where);
      need(depth < MAX_NESTING, where, "steps are nested deeper than allowed");
      step.bodies.forEach((b, k) => checkSteps(within(plan, b), `${where}, body ${k}, `, depth + 1));
    } else checkHost(plan, step, made, where);
  });
  for (const v of plan.outputs) need(hasSource(v, made), `${inside}output '${v.name}'`, "nothing makes it");
}

function checkExtras(plan, is) {
  plan.placement.forEach((p, i) => {
    const line = isTexts([p.node, p.op, p.provider, p.how, p.reason]);
    need(line && (p.bytes === null || isInt(p.bytes) && p.bytes >= 0), `placement ${i}`, "not a line of the report");
  });
  need([0, plan.steps.length].includes(plan.work.length), "work", "not an entry for each step");
  const isTensor = (t) => Array.isArray(t) && t.length === 2 && DTYPES.has(t[0]) && is.sizes(t[1], MAX_RANK);
  plan.work.forEach((w, i) => {
    const products = Array.isArray(w.flop) && w.flop.every((factors) => is.sizes(factors, MAX_RANK));
    const tensors = Array.isArray(w.tensors) && w.tensors.every(isTensor);
    need(products && tensors && isTexts(w.ops), `work ${i}`, "not tensors, operators and products");
  });
  need(depth(plan.meta) <= MAX_DEPTH, "meta", "nested deeper than allowed");
  need(isObject(plan.meta), "meta", "no record");
  const fixed = Object.hasOwn(plan.meta, "known") ? plan.meta.known : {};
  const free = new Set(plan.inputs.filter((v) => v.place === null && !v.elements).map((v) => v.name));
  need(isObject(fixed) && Object.keys(fixed).every((n) => free.has(n)), "known inputs", "not inputs that nothing reads");
  for (const [name, entry] of Object.entries(fixed)) {
    need(isObject(entry) && isTexts([entry.text, entry.bits]), `known input '${name}'`, "no text and bits");
  }
  const clamped = Object.hasOwn(plan.meta, "clamped") ? plan.meta.clamped : [];
  need(isTexts(clamped), "clamped inputs", "no list of names");
  need(plan.tuning.length <= MAX_TUNINGS, "tuning", "more entries than allowed");
  need(depth(plan.tuning) <= MAX_DEPTH, "tuning", "nested deeper than allowed");
  plan.tuning.forEach((t, i) => {
    need(isObject(t) && isObject(t.adapter), `tuning ${i}`, "not a table of an adapter");
  });
  const known = ["name", "kind", "vendor", "architecture", "limits", "features", "subgroup_sizes"];
  const { target } = plan;
  need(isObject(target) && Object.keys(target).every((k) => known.includes(k)), "target", "not a target description");
  const { limits = {}, features = [], subgroup_sizes: sizes = [0, 0] } = target;
  need(isInts(limits) && isTexts(features) && isPair(sizes), "target", "not a target description");
}

function depth(x, level = 0) {
  if (level > MAX_DEPTH || typeof x !== "object" || x === null) return level;
  return Object.values(x).reduce((most, y) => Math.max(most, depth(y, level + 1)), level + 1);
}

function checkKernel(kernel, where) {
  need(isTexts([kernel.name, kernel.wgsl, kernel.hash]), where, "its name, text and hash are not texts");
  need(kernel.wgsl.length <= MAX_WGSL, where, "its text is longer than allowed");
  need(!kernel.wgsl.includes("\0"), where, "its text has a zero byte");
  const r = kernel.requires;
  const texts = ["features", "kinds", "architectures"];
  const known = isObject(r) && Object.keys(r).every((k) => [...texts, "limits", "subgroup_size"].includes(k));
  const limits = isInts(r?.limits ?? {}) && Object.keys(r?.limits ?? {}).every((k) => Object.hasOwn(DEFAULT_LIMITS, k));
  const fits = known && limits && texts.every((k) => isTexts(r[k] ?? [])) && isInt(r.subgroup_size ?? 0);
  need(fits, where, "its requirements are malformed");
  kernel.layout = kernelLayout(kernel.wgsl);
}

/** What a kernel's text declares: the twin of webrt/kernel_layout.py. */
function kernelLayout(wgsl) {
  const found = [...wgsl.matchAll(BINDING)];
  need(found.every((m, i) => m[1] === String(i + 1)), "kernel", "its storage bindings are not numbered from 1");
  const samplers = [...wgsl.matchAll(SAMPLER)].map((m) => m[1]);
  const last = samplers.every((n, i) => i === 0 && n === String(found.length + 1));
  need(last, "kernel", "its sampler is not numbered after its storage bindings");
  const start = wgsl.indexOf(PARAMS);
  const end = start < 0 ? -1 : wgsl.indexOf("}", start + PARAMS.length);
  const words = end < 0 ? 0 : wgsl.slice(start, end).split(":").length - 1;
  const declared = wgsl.includes("@group(0) @binding(0) var<uniform> p: Params;");
  need(declared === words > 0, "kernel", "its parameter block is not declared as one");
  return { words, access: found.map((m) => ACCESS[m[2] ?? m[3]]).join(""), sampler: samplers.length > 0 };
}

function checkSlot(slot, is, where) {
  need(is.ref(slot.size) && isText(slot.label), where, "not a size and a label");
  const fits = typeof slot.size !== "number" || slot.size >= 16 && slot.size % 16 === 0;
  need(fits, where, "its size is not a multiple of 16, at least 16");
  need(is.multiple(slot.after, 16), where, "what follows its input is not a multiple of 16");
  const follows = typeof slot.size !== "number" || typeof slot.after !== "number" || slot.after <= slot.size;
  need(follows, where, "what follows its input is larger than it");
}

function checkConstants(constants) {
  let end = 0;
  constants.forEach((c, i) => {
    const where = `constant ${i}`;
    need(isText(c.name) && DTYPES.has(c.dtype), where, "its name or type is not known");
    const shape = Array.isArray(c.shape) && c.shape.length <= MAX_RANK && c.shape.every((d) => isInt(d) && d >= 0);
    need(shape, where, "its shape is malformed");
    need(isInt(c.nbytes) && c.nbytes === nbytesOf(c.dtype, c.shape), where, "its bytes do not fit its shape");
    need(isInt(c.offset) && c.offset % 16 === 0, where, "its offset is not a multiple of 16");
    need(c.offset >= end, where, "it overlaps the one before");
    end = c.offset + c.nbytes;
  });
  need(end < LIMIT, "constants", "more bytes than allowed");
}

function checkValues(plan, is, inside) {
  for (const kind of ["input", "output"]) {
    const infos = plan[`${kind}s`];
    infos.forEach((v, i) => checkValue(plan, v, is, `${inside}${kind} ${i}`));
    need(new Set(infos.map((v) => v.name)).size === infos.length, `${inside}${kind}s`, "a name occurs twice");
  }
  for (const [name, v] of plan.values) {
    checkValue(plan, v, is, `${inside}value '${name}'`);
    need(v.name === name, `${inside}value '${name}'`, "it has another name");
  }
}

function checkValue(plan, v, is, where) {
  need(isText(v.name) && (v.dtype === "" || DTYPES.has(v.dtype)), where, "its name or type is not known");
  need(v.shape === null || is.sizes(v.shape, MAX_RANK), where, "its shape is malformed");
  need(v.contents === null || is.sizes(v.contents, MAX_ELEMENTS), where, "its contents are malformed");
  const elements = isInt(v.elements) && v.elements >= 0 && v.elements <= MAX_ELEMENTS;
  need(elements, where, "its number of elements is out of range");
  need(v.place === null || is.place(v.place), where, "a place is out of range");
  need(v.place === null || DTYPES.get(v.dtype)?.onDevice, where, "its type is never on a device");
  need(v.constant === null || isIndex(v.constant, plan.constants), where, "its constant is out of range");
}

function checkDispatch(plan, step, is, where) {
  need(Array.isArray(step.alternatives) && step.alternatives.length > 0, where, "it has no kernel");
  need(Array.isArray(step.bindings) && Array.isArray(step.params), where, "its bindings or params are no list");
  const access = checkBindings(plan, step, is, where);
  checkTextures(plan, step, access, is, where);
  for (const a of step.alternatives) {
    need(Array.isArray(a) && a.length === 4, where, "an alternative is not a kernel and three group counts");
    need(isIndex(a[0], plan.kernels), where, "its kernel is out of range");
    const counts = a.slice(1).every((n) => is.within(n, 0, MAX_GROUPS));
    need(counts, where, `a group count is not a size up to ${MAX_GROUPS}`);
    const { layout } = plan.kernels[a[0]];
    const words = step.params.length;
    const buffers = layout.access.replace(/[fuFU]/g, "r");
    need(buffers === access, where, `its kernel binds '${buffers}', the step '${access}'`);
    need(layout.words === words, where, `its kernel takes ${layout.words} params, the step has ${words}`);
    checkLoaders(plan, step, layout, where);
  }
  const when = Array.isArray(step.when) && [0, step.alternatives.length].includes(step.when.length);
  need(when && step.when.every(is.ref), where, "its conditions are not a size per alternative");
  const met = step.alternatives.some((a) => !lacks(targetOf(plan), plan.kernels[a[0]].requires));
  need(met, where, "the target meets the requirements of no kernel");
  const words = step.params.length <= MAX_BLOCK && step.params.every((w) => is.within(w, -(2 ** 31), 2 ** 32 - 1));
  need(words, where, "a parameter is not a 32-bit size");
  const at = step.params_offset;
  need(isInt(at) && at >= 0 && at % ALIGN === 0, where, "its params offset is not a multiple of 256");
  const inside = !step.params.length || at + 4 * step.params.length <= plan.params_size;
  need(inside, where, "its params lie outside the block");
}

function checkTextures(plan, step, access, is, where) {
  const pairs = Array.isArray(step.textures) && step.textures.every((t) => Array.isArray(t) && t.length === 2);
  need(pairs, where, "its textures are no list of bindings and texels");
  for (const [binding, texels] of step.textures) {
    const reads = isIndex(binding, access) && access[binding] === "r";
    need(reads, where, "a texture is of no binding that is read");
    const [place, , offset, size] = step.bindings[binding];
    need(is.multiple(texels, 1), where, "a texture has no size");
    const fixed = isInt(texels) && isInt(offset);
    need(place[0] === "s" || fixed, where, "a constant's texture depends on sizes");
    const whole = size || wholeOf(plan, place);
    const inside = typeof whole !== "number" || !fixed || (size ? 0 : offset) + 16 * texels <= whole;
    need(inside, where, "a texture reaches beyond its tensor");
  }
  const own = new Set(step.textures.map(([binding]) => binding));
  need(own.size === step.textures.length, where, "a binding has two textures");
}

function checkLoaders(plan, step, { access }, where) {
  const known = step.textures.map(([binding]) => binding);
  const given = [...access].every((a, i) => "rw".includes(a) || known.includes(i));
  need(given, where, "its kernel reads a texture that the step has not");
  const limits = [["fu", "maxSampledTexturesPerShaderStage"], ["FU", "maxStorageTexturesPerShaderStage"]];
  for (const [letters, limit] of limits) {
    const [count, most] = [[...access].filter((a) => letters.includes(a)).length, targetOf(plan).limits[limit]];
    need(count <= most, where, `its kernel has ${count} textures, the target has ${limit} ${most}`);
  }
}

const wholeOf = (plan, [kind, index]) => (kind === "s" ? plan.slots[index].size : padded(plan.constants[index].nbytes));

function checkBindings(plan, step, is, where) {
  const limit = targetOf(plan).limits.maxStorageBuffersPerShaderStage;
  const count = step.bindings.length;
  need(count <= limit, where, `it binds ${count} storage buffers, the target has ${limit}`);
  const seen = { r: new Set(), w: new Set() };
  for (const b of step.bindings) {
    need(Array.isArray(b) && b.length === 4 && (b[1] === "r" || b[1] === "w"), where, "a binding is malformed");
    const [place, access, offset, size] = b;
    need(is.place(place), where, "a place is out of range");
    need(is.multiple(offset, ALIGN), where, "a binding's offset is not a multiple of 256");
    need(is.multiple(size, 4), where, "a binding's size is not a multiple of 4");
    need(place[0] === "s" || isInt(size), where, "a constant's binding depends on sizes");
    checkExtent(plan, place, offset, size, where);
    need(access === "r" || place[0] === "s", where, "it writes a constant");
    need(access === "r" || !seen.w.has(String(place)), where, "it binds a buffer twice that it writes");
    seen[access].add(String(place));
  }
  need(![...seen.w].some((p) => seen.r.has(p)), where, "it binds a buffer both read-only and written");
  return step.bindings.map((b) => b[1]).join("");
}

/** As far as it is known before a run. */
function checkExtent(plan, place, offset, size, where) {
  if (typeof size !== "number") return;
  const whole = wholeOf(plan, place);
  let bound = size;
  if (typeof whole === "number" && typeof offset === "number") {
    need(offset < whole && offset + size <= whole, where, "it binds bytes beyond the end of a tensor");
    bound ||= whole - offset;
  }
  const limit = targetOf(plan).limits.maxStorageBufferBindingSize;
  need(bound <= limit, where, `it binds ${bound} bytes of a tensor, the target has ${limit}`);
}

function checkCopy(step, is, where) {
  need(is.place(step.source) && is.place(step.target), where, "a place is out of range");
  need(step.target[0] === "s", where, "it writes a constant");
  need(String(step.source) !== String(step.target), where, "it copies within one buffer");
  const sizes = [step.source_offset, step.target_offset, step.size];
  need(sizes.every((x) => is.multiple(x, 4)), where, "an offset or a size is not a multiple of 4");
}

function checkRead(step, variables, is, where) {
  const pairs = Array.isArray(step.reads) && step.reads.every((r) => Array.isArray(r) && r.length === 2);
  need(pairs, where, "what it reads is no list of places and variables");
  for (const [place, name] of step.reads) {
    need(is.place(place), where, "a place is out of range");
    need(isText(name) && variables.has(name), where, "it reads a variable that no size has");
  }
}

function checkControl(plan, step, made, where) {
  need(isWellFormed(step), where, "its bodies, names or flags are malformed");
  const named = step.outputs.filter((n) => n);
  const read = operands(step);
  for (const n of [...read, ...named]) need(plan.values.has(n), where, `the value '${n}' is not known`);
  for (const n of read) need(hasSource(plan.values.get(n), made), where, `nothing makes the value '${n}' before`);
  need(new Set(named).size === named.length, where, "an output occurs twice");
  need(named.every((n) => plan.values.get(n).place !== null), where, "an output has no place");
  if (step.kind === "loop") {
    need(step.trips || step.condition || step.elements.length || step.again, where, "nothing ends it");
    const inputs = new Map(step.bodies[0].inputs.map((v) => [v.name, v]));
    const roles = [...step.state, ...step.elements].map(([, b]) => b);
    for (const n of [...roles, ...(step.number ? [step.number] : [])]) {
      need(inputs.has(n), where, `its body has no input '${n}'`);
    }
    const own = new Set(roles.filter((n) => n !== step.number));
    need(own.size === roles.length, where, "an input of its body has two meanings");
    need(roles.every((n) => inputs.get(n).place !== null), where, "a state or an element has no place");
  }
  named.forEach((n) => made.add(n));
}

function checkHost(plan, step, made, where) {
  const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
  const proto = isText(step.proto) && step.proto.length <= MAX_PROTO && base64.test(step.proto);
  need(proto, where, "its node is not base64, or longer than allowed");
  need(isInts(step.opsets), where, "its opsets are malformed");
  need([step.inputs, step.outputs, step.outer].every(isTexts), where, "its names are malformed");
  const read = [...step.inputs, ...step.outer].filter((n) => n);
  for (const n of [...read, ...step.outputs]) {
    need(!n || plan.values.has(n), where, `the value '${n}' is not known`);
  }
  for (const n of read) need(hasSource(plan.values.get(n), made), where, `nothing makes the value '${n}' before`);
  step.outputs.forEach((n) => made.add(n));
}

const hasSource = (v, made) => made.has(v.name) || v.place !== null || v.constant !== null || v.contents !== null;

const targetOf = (plan) => ({
  name: plan.target.name ?? "webgpu",
  kind: plan.target.kind ?? "any",
  architecture: plan.target.architecture ?? "",
  subgroup_sizes: plan.target.subgroup_sizes ?? [0, 0],
  features: new Set(plan.target.features),
  limits: { ...DEFAULT_LIMITS, ...plan.target.limits },
});
