/**
 * Sizes as programs: the twins of webrt/dim_programs.py and webrt/runtime/sizes.py, with the same texts. Both sides are
 * tested on tests/unit/dim_cases.json.
 */

import { InputError, PlanError, ShapeError, listed } from "./common.js";

export const LIMIT = 2 ** 53;
const MAX_PROGRAM = 200_000;
const MAX_CACHED = 16;
const MAX_TEXT_DEPTH = 6;
/** Beyond all tensors, with room for what is computed of it below LIMIT. */
const FAR = 2 ** 52;
const isText = (x) => typeof x === "string";
const isInt = Number.isSafeInteger;

function whole(x) {
  if (!(x > -LIMIT && x < LIMIT)) throw new ShapeError(`a size overflows: ${x} is beyond 2**53`);
  return x + 0; // -0 becomes 0
}

function divisor(b) {
  if (b === 0) throw new ShapeError("a size is divided by zero");
  return b;
}

function broadcast(a, b) {
  if (a === b || b === 1) return a;
  if (a === 1) return b;
  throw new ShapeError(`sizes ${a} and ${b} do not broadcast`);
}

function scaleF32(a, bits) {
  const scale = new Float32Array(new Uint32Array([bits]).buffer)[0];
  const product = Math.fround(a) * scale; // exact in a double
  if (!(Math.abs(product) < LIMIT)) throw new ShapeError(`a size overflows: ${a} scaled by ${scale}`);
  return Math.floor(Math.fround(product));
}

// For |a|, |b| < 2**53 a quotient that is no integer never rounds to one, so Math.floor(a / b) is exact.
const OPS = new Map(Object.entries({
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b,
  floordiv: (a, b) => Math.floor(a / divisor(b)), ceildiv: (a, b) => Math.ceil(a / divisor(b)),
  mod: (a, b) => { const r = a % divisor(b); return r !== 0 && (r < 0) !== (b < 0) ? r + b : r; },
  min: Math.min, max: Math.max, eq: (a, b) => Number(a === b), lt: (a, b) => Number(a < b),
  select: (c, a, b) => (c !== 0 ? a : b), broadcast, scale_f32: scaleF32,
}));

/**
 * The value of each instruction of a size program, null where a variable is not in the Map `known`; or ShapeError. With
 * `failed` an instruction that cannot be computed is null too, and its error is appended.
 */
export function evaluate(program, known, failed = null) {
  const values = [];
  const attempt = (compute) => {
    try {
      return whole(compute());
    } catch (e) {
      if (!failed || !(e instanceof ShapeError)) throw e;
      failed.push(e);
      return null;
    }
  };
  for (const [op, ...args] of program) {
    if (op === "var") {
      values.push(known.has(args[0]) ? attempt(() => known.get(args[0])) : null);
      continue;
    }
    const operands = args.map((a) => (typeof a === "number" ? a : values[a[0]]));
    values.push(operands.includes(null) ? null : attempt(() => OPS.get(op)(...operands)));
  }
  return values;
}

export const resolve = (ref, values) => (typeof ref === "number" ? ref : values[ref[0]]);

/** A size for people: a number, a variable's name, or the expression (with … for its deeper parts). */
export function sizeText(program, ref, depth = 0) {
  if (typeof ref === "number") return ref;
  const [op, ...args] = program[ref[0]];
  if (op === "var") return args[0];
  if (depth === MAX_TEXT_DEPTH) return "…";
  const signs = { add: " + ", sub: " - ", mul: "*", floordiv: " // ", mod: " % " };
  const operands = args.map((a) => sizeText(program, a, depth + 1));
  if (!(op in signs)) return `${op}(${operands.join(", ")})`;
  return depth ? `(${operands.join(signs[op])})` : operands.join(signs[op]);
}

export function checkProgram(program) {
  const refuse = (k, what) => { throw new PlanError(`size instruction ${k} ${what}`); };
  if (!Array.isArray(program) || program.length > MAX_PROGRAM) {
    throw new PlanError("the size program is not a list, or is longer than allowed");
  }
  program.forEach((instruction, k) => {
    if (!Array.isArray(instruction) || !isText(instruction[0])) refuse(k, "is malformed");
    const [op, ...args] = instruction;
    if (op === "var") return args.length === 1 && isText(args[0]) || refuse(k, "names no variable");
    const isArgument = (a) => isInt(a) || Array.isArray(a) && a.length === 1 && isInt(a[0]) && a[0] >= 0 && a[0] < k;
    const arity = op === "select" ? 3 : 2;
    if (!OPS.has(op) || args.length !== arity || !args.every(isArgument)) refuse(k, `(${op}) is malformed`);
    const bits = isInt(args[1]) && args[1] >= 0 && args[1] < 2 ** 32;
    return op !== "scale_f32" || bits || refuse(k, "(scale_f32) has no bits of a float32");
  });
}

/** The sizes of one run: variables bound from what is fed and made on the host, and what the plan computes of them. */
export class Sizes {
  known = new Map();
  values = [];
  #owners = new Map();
  #claims = [];
  #cache;

  /** `cache` keeps values from run to run, by the key that `settle` returns; of a sub-plan the sizes `around` are known. */
  constructor(plan, cache = new Map(), around = null) {
    this.plan = plan;
    this.#cache = cache;
    if (!around) return;
    this.known = new Map(around.known);
    this.#owners = new Map(around.#owners);
  }

  /** Binds the variables of a value's shape; `refuse(text)` makes the error where the shape is not the declared one. */
  bind(info, dims, refuse) {
    if (info.shape === null) return;
    if (dims.length !== info.shape.length) throw refuse(`rank ${dims.length} was given (${listed(dims)})`);
    info.shape.forEach((ref, axis) => {
      const what = `axis ${axis} has size ${dims[axis]} (${listed(dims)} was given)`;
      const name = this.#variable(ref);
      if (name === null) {
        this.#claims.push({ ref, size: dims[axis], what, refuse });
      } else if (!this.known.has(name)) {
        this.known.set(name, dims[axis]);
        this.#owners.set(name, info.name);
      } else if (this.known.get(name) !== dims[axis]) {
        throw refuse(`${what}, but ${name} is ${this.known.get(name)} by '${this.#owners.get(name) ?? "a step before"}'`);
      }
    });
  }

  /** Binds `in:NAME[k]` for a value whose integers are sizes; of bounds of slices (the plan's meta.clamped) no farther than FAR. */
  bindElements(info, elements, refuse) {
    if (elements.length !== info.elements) {
      throw refuse(`${info.elements} elements are expected, ${elements.length} were given`);
    }
    const far = (this.plan.meta.clamped ?? []).includes(info.name) ? FAR : Infinity;
    elements.forEach((value, k) => this.known.set(`in:${info.name}[${k}]`, Math.max(-far, Math.min(value, far))));
  }

  /** Evaluates the program and checks what was claimed of sizes; returns a key: equal keys have equal `values`. */
  settle() {
    const key = JSON.stringify([...this.known]);
    this.values = this.#cache.get(key) ?? this.#evaluate();
    if (this.#cache.size >= MAX_CACHED) this.#cache.clear();
    this.#cache.set(key, this.values);
    this.#claims = this.#claims.filter(({ ref, size, what, refuse }) => {
      const expected = resolve(ref, this.values);
      if (expected !== null && expected !== size) throw refuse(`${what}, ${expected} is expected`);
      return expected === null;
    });
    this.#check(this.values);
    return key;
  }

  #check(values) {
    const failed = this.plan.checks.find(([size]) => resolve(size, values) === 0);
    if (failed) throw new InputError(failed[1] + this.#numbers(...failed, values));
  }

  /** The numbers of what does not hold: those compared, and the elements of inputs that the message names. */
  #numbers(ref, message, values) {
    const compared = this.#comparisons(ref).reduce((a, b) => (b.length > a.length ? b : a), []);
    const parts = compared.length ? [`${compared.map((x) => resolve(x, values)).join(" and ")} here`] : [];
    for (const [k, v] of this.known) if (k.startsWith("in:") && message.includes(k)) parts.push(`${k} = ${v}`);
    return parts.length ? ` (${parts.join("; ")})` : "";
  }

  /** What the comparisons in a condition compare, in their order; numbers that the plan has itself are left out. */
  #comparisons(ref, depth = 0) {
    if (typeof ref === "number" || depth === MAX_TEXT_DEPTH) return [];
    const [op, ...args] = this.plan.dims[ref[0]];
    if (op === "max" || op === "min") return args.flatMap((x) => this.#comparisons(x, depth + 1));
    if (op === "select") return this.#comparisons(args[0], depth + 1).map((c) => c.reverse());
    if (op !== "eq" && op !== "lt") return [];
    const divided = op === "eq" && typeof args[0] !== "number" ? this.plan.dims[args[0][0]] : [];
    return [(divided[0] === "mod" ? divided.slice(1) : args).filter((x) => typeof x !== "number")];
  }

  /** A value's shape; ShapeError while a size of it is not known. */
  shape(info) {
    const dims = info.shape?.map((ref) => resolve(ref, this.values));
    if (!dims?.every((d) => d !== null && d >= 0)) {
      throw new ShapeError(`the shape of '${info.name}' is ${listed(dims ?? [])} here; webrt cannot hold it`);
    }
    return dims;
  }

  #evaluate() {
    const failed = [];
    const values = evaluate(this.plan.dims, this.known, failed);
    if (!failed.length) return values;
    this.#check(values);
    const given = [...this.known].map(([k, v]) => `${k}=${v}`).join(", ");
    throw new InputError(`${this.#firstUser(values)}these sizes do not fit the model (${given}): ${failed[0].what}`);
  }

  /** The first node that needs the first size that cannot be computed: "Tile 'tile': ", or nothing. */
  #firstUser(values) {
    const lost = new Set();
    this.plan.dims.forEach(([op, ...args], k) => {
      const used = args.filter(Array.isArray).map(([j]) => j);
      const computable = op === "var" ? this.known.has(args[0]) : used.every((j) => values[j] !== null);
      if (used.some((j) => lost.has(j)) || !lost.size && values[k] === null && computable) lost.add(k);
    });
    const needs = (step) => refsOf(step).some((ref) => Array.isArray(ref) && lost.has(ref[0]));
    const placed = this.plan.placement?.[this.plan.steps.find(needs)?.node];
    return placed ? `${placed.op} '${placed.node}': ` : "";
  }

  #variable(ref) {
    if (typeof ref === "number") return null;
    const [op, name] = this.plan.dims[ref[0]];
    return op === "var" && !name.startsWith("in:") ? name : null;
  }
}

/** The sizes of a dispatch or a copy. */
function refsOf(step) {
  if (step.kind === "copy") return [step.source_offset, step.target_offset, step.size];
  return step.kind === "dispatch" ? [...step.params, ...step.alternatives.flatMap(([, ...groups]) => groups)] : [];
}

/** A value for people: `x: float32[batch, 3]`. */
export function declared(plan, info) {
  if (info.shape === null) return `${info.name}: ${info.dtype || "no tensor"}`;
  return `${info.name}: ${info.dtype}${listed(info.shape.map((d) => sizeText(plan.dims, d)))}`;
}
