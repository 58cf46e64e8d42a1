/** A plan's numbers for one device and one set of sizes: the twin of webrt/runtime/resolve.py. */

import { Choices } from "./choose.js";
import { DEFAULT_LIMITS, InputError, PlanError, TargetError, WEBGPU_FEATURES, padded } from "./common.js";
import { resolve } from "./dims.js";
import { segmentsOf } from "./segments.js";
import { scheduleOf } from "./textures.js";

/** The variable that each run binds to a random word: the seed of operators that have none. */
export const DRAWN = "in:[0]";

export const SKIP = { groups: [], numbers: [] };

/** A step's node for people. */
export function nameOf(plan, step) {
  const placed = plan.placement[step.node];
  return placed ? `${placed.op} '${placed.node}'` : `a ${step.kind} step`;
}

/** The places that a device step touches. */
export function placesOf(step) {
  if (step.kind === "dispatch") return step.bindings.map(([place]) => place);
  if (step.kind === "read") return step.reads.map(([place]) => place);
  return step.kind === "copy" ? [step.source, step.target] : [];
}

/** The device's target, or what a plan for less than WebGPU guarantees says: it runs as on so small a device. */
function lowered(plan, target) {
  const limits = Object.entries(DEFAULT_LIMITS).map(([name, least]) => {
    const have = target.limits[name] ?? least;
    const wanted = plan.target.limits?.[name] ?? least;
    return [name, !name.startsWith("min") && wanted < least ? Math.min(wanted, have) : have];
  });
  return { ...target, limits: Object.fromEntries(limits) };
}

/** A plan on a target: the kernel of each dispatch, segments of steps, all numbers at given sizes. */
export class Resolver {
  /**
   * `refused` are the kernels that the device's compiler refused, with what it said; `tuning` says which alternatives are
   * the fastest.
   */
  constructor(plan, target, refused, tuning) {
    this.plan = plan;
    this.target = lowered(plan, target);
    this.#checkTarget(target);
    this.choices = new Choices(plan, this.target, (s) => this.name(s), refused, tuning);
    const dispatches = plan.steps.filter((s) => s.kind === "dispatch");
    const whole = dispatches.flatMap((s) => s.bindings).filter(([[kind], , , size]) => kind === "s" && !size);
    this.bound = new Set(whole.map(([[, index]]) => index)); // slots that kernels bind whole
    dispatches.forEach((s) => this.#checkConstants(s));
    plan.slots.forEach((s, i) => typeof s.size === "number" && this.#slot(s, i, []));
    this.segments = segmentsOf(plan);
    this.draws = plan.dims.some(([op, name]) => op === "var" && name === DRAWN);
  }

  /** Where an error belongs: the node and operator of a step. */
  where(step) {
    const placed = this.plan.placement[step.node];
    return placed ? { node: placed.node, op: placed.op } : {};
  }

  name(step) {
    return nameOf(this.plan, step);
  }

  frame(values) {
    const params = new Uint32Array(Math.ceil(this.plan.params_size / 4));
    return {
      slots: this.plan.slots.map((s, i) => this.#slot(s, i, values)),
      steps: this.plan.steps.map((s, i) => this.#step(s, i, values, params)),
      params, commands: new Map(), schedules: new Map(),
    };
  }

  /** The textures of a device segment; kept in the frame. */
  schedule(frame, number, segment) {
    if (!frame.schedules.has(number)) {
      const ready = segment.steps.map((i) => [i, frame.steps[i]]).filter(([, r]) => r !== null && r !== SKIP);
      frame.schedules.set(number, scheduleOf(ready.map(([i, { textures = [] }]) => {
        const step = this.plan.steps[i];
        const copy = step.kind === "copy";
        const writes = copy ? [step.target] : step.bindings.filter(([, a]) => a === "w").map(([place]) => place);
        return { step: i, reads: textures.filter(([, c]) => c.place[0] === "s"), writes, breaks: copy };
      })));
    }
    return frame.schedules.get(number);
  }

  #checkConstants(step) {
    const limit = this.target.limits.maxStorageBufferBindingSize;
    for (const [[kind, index], , , size] of step.bindings) {
      const bytes = size || (kind === "c" ? padded(this.plan.constants[index].nbytes) : 0);
      if (typeof bytes === "number" && bytes > limit) {
        throw new TargetError(`${this.name(step)} binds ${bytes} bytes of a tensor; `
          + `the device '${this.target.name}' has maxStorageBufferBindingSize ${limit}`);
      }
    }
  }

  #checkTarget(target) {
    const { plan } = this;
    const device = plan.steps.filter((s) => s.kind !== "host");
    const unknown = device.length ? (plan.target.features ?? []).find((f) => !WEBGPU_FEATURES.has(f)) : undefined;
    if (unknown !== undefined) {
      const { name = "webgpu" } = plan.target;
      throw new TargetError(`the target '${name}' has the feature '${unknown}', which WebGPU lacks; make the plan again`);
    }
    const wanted = device.length ? Object.entries(plan.target.limits ?? {}) : [];
    for (const [name, need] of wanted) {
      const have = target.limits[name] ?? need;
      if (name.startsWith("min") ? have > need : have < need) {
        throw new TargetError(`the plan was made for ${name} ${need}; the device '${target.name}' has ${have}`);
      }
    }
    const limit = target.limits.maxStorageBuffersPerShaderStage;
    const wide = device.find((s) => (s.bindings?.length ?? 0) > limit);
    if (wide) {
      throw new TargetError(`${this.name(wide)} binds ${wide.bindings.length} storage buffers; `
        + `the device '${target.name}' has maxStorageBuffersPerShaderStage ${limit}`);
    }
  }

  #slot(slot, index, values) {
    const size = resolve(slot.size, values);
    if (size === null) return null;
    for (const limit of ["maxBufferSize", ...(this.bound.has(index) ? ["maxStorageBufferBindingSize"] : [])]) {
      if (size > this.target.limits[limit]) {
        throw new TargetError(`${this.#user(index)}: the tensor '${slot.label}' needs ${size} bytes at these sizes; `
          + `the device '${this.target.name}' has ${limit} ${this.target.limits[limit]}`);
      }
    }
    return padded(size);
  }

  /** The first step that touches a slot. */
  #user(slot) {
    const touches = (step) => placesOf(step).some(([kind, index]) => kind === "s" && index === slot);
    const user = this.plan.steps.find(touches);
    return user ? this.name(user) : "the plan";
  }

  /** The numbers of a step, SKIP where it does nothing, null where they are not known yet. */
  #step(step, index, values, params) {
    if (step.kind === "dispatch") return this.#dispatch(step, index, values, params);
    return step.kind === "copy" ? this.#copy(step, values) : SKIP;
  }

  #dispatch(step, index, values, params) {
    const chosen = this.choices.alternative(index, values);
    const ready = chosen && this.ready(step, chosen, values);
    const words = ready === SKIP ? [] : this.words(step, values);
    if (ready && words) words.forEach((w, i) => { params[step.params_offset / 4 + i] = w; }); // modulo 2**32
    return words && ready;
  }

  /** A dispatch with its numbers, where it takes this alternative; null where one is not known. */
  ready(step, [kernel, ...counts], values) {
    const groups = counts.map((g) => resolve(g, values));
    const numbers = step.bindings.map(([, , offset]) => resolve(offset, values));
    const sizes = step.bindings.map(([, , , size]) => resolve(size, values));
    if (groups.includes(0)) return SKIP;
    if ([...groups, ...numbers, ...sizes].includes(null)) return null;
    this.#checkSizes(step, sizes);
    const limit = this.target.limits.maxComputeWorkgroupsPerDimension;
    for (const g of groups) {
      if (g < 0) {
        throw new InputError(`${this.name(step)} would have ${g} workgroups: a size is negative for these inputs`);
      }
      if (g > limit) {
        throw new TargetError(`${this.name(step)} needs ${g} workgroups in a dimension at these sizes; `
          + `the device '${this.target.name}' has maxComputeWorkgroupsPerDimension ${limit}`);
      }
    }
    return { groups, numbers, sizes, kernel, textures: this.choices.contents(step, kernel, values) };
  }

  /** Of bindings whose sizes the run tells. */
  #checkSizes(step, sizes) {
    const limit = this.target.limits.maxStorageBufferBindingSize;
    for (const size of sizes.filter((_, i) => typeof step.bindings[i][3] !== "number")) {
      if (size <= 0 || size % 4) {
        throw new PlanError(`${this.name(step)} binds ${size} bytes of a tensor, which are no whole words`);
      }
      if (size > limit) {
        throw new TargetError(`${this.name(step)} binds ${size} bytes of a tensor at these sizes; `
          + `the device '${this.target.name}' has maxStorageBufferBindingSize ${limit}`);
      }
    }
  }

  /** A dispatch's parameters; null where one is not known. */
  words(step, values) {
    const words = step.params.map((w) => resolve(w, values));
    const beyond = words.find((w) => w !== null && (w < -(2 ** 31) || w >= 2 ** 32));
    if (words.includes(null)) return null;
    if (beyond === undefined) return words;
    throw new TargetError(`${this.name(step)} needs the number ${beyond}; a kernel takes -2147483648 to 4294967295`);
  }

  #copy(step, values) {
    const numbers = [step.source_offset, step.target_offset, step.size].map((n) => resolve(n, values));
    if (numbers[2] === 0) return SKIP;
    if (numbers.includes(null)) return null;
    if (numbers.some((n) => n < 0 || n % 4)) {
      const bytes = numbers.join(", ");
      throw new InputError(`a copy of ${this.name(step)} has bytes (${bytes}), no whole words, for these inputs`);
    }
    return { groups: [], numbers };
  }
}
