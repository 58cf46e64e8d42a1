/** A plan or a sub-plan on a device: what stays from run to run. The twin of webrt/runtime/scope.py. */

import { KernelError } from "./common.js";
import { pipelineOf } from "./kernels.js";
import { tune } from "./measure.js";
import { Memory } from "./memory.js";
import { Resolver, placesOf } from "./resolve.js";
import { copied, deciding, isControl, within } from "./subplans.js";

const MAX_FRAMES = 8;

export class Scope {
  evaluated = new Map();
  #pipelines;
  #groups = new Map();
  #frames = new Map();

  /** `numbers` are the indices of the steps among all of the plan; `inner` the scopes of bodies, by step. */
  constructor(session, plan, around = null, first = 0) {
    this.session = session;
    this.plan = plan;
    this.root = around?.root ?? this;
    this.refused = around?.refused ?? new Map();
    this.resolver = new Resolver(plan, session.gpu.target, this.refused, session.tuning);
    this.memory = new Memory(plan, session.gpu, this.resolver, around?.memory ?? null);
    this.#pipelines = around ? around.#pipelines : new Map();
    this.lendable = lendable(plan);
    this.numbers = [];
    this.inner = new Map();
    this.next = first;
    plan.steps.forEach((step, i) => {
      this.numbers.push(this.next);
      this.next += 1;
      if (!isControl(step)) return;
      this.inner.set(i, step.bodies.map((body) => {
        const scope = new Scope(session, within(plan, body), this, this.next);
        this.next = scope.next;
        return scope;
      }));
    });
  }

  /** This scope and those within it. */
  every() {
    return [this, ...[...this.inner.values()].flat().flatMap((s) => s.every())];
  }

  /** Whether the steps bind no sizes, read nothing back and draw nothing. */
  get steady() {
    return this.resolver.segments.every((s) => s.kind === "device") && !this.resolver.draws;
  }

  /** All numbers of the plan at these sizes, and the pipelines that they need; kept for the last few. */
  async frame(key, values, timeout = null) {
    if (!this.#frames.has(key)) {
      if (await this.tune(values, timeout)) await this.session.loadMissing();
      const frame = this.resolver.frame(values);
      if (await this.makePipelines(() => frame.steps.map((ready, i) => [this, i, ready?.kernel]))) {
        await this.session.loadMissing();
        return this.frame(key, values, timeout);
      }
      if (this.#frames.size >= MAX_FRAMES) this.#frames.delete(this.#frames.keys().next().value);
      this.#frames.set(key, frame);
    }
    return this.#frames.get(key);
  }

  /** The pipeline of a kernel, which `makePipelines` made. */
  pipeline(kernel) {
    return this.#pipelines.get(kernel);
  }

  /** Measures alternatives at these sizes, where there is time for that. Whether other ones may be chosen now. */
  async tune(values, timeout = null) {
    const { tuning } = this.session;
    if (!(tuning?.budget > 0) || !await tune(this, tuning, values, timeout)) return false;
    await tuning.keep();
    return true;
  }

  /** The pipeline of a dispatch's kernel and its bind group over these resources, which is kept; `step` is its name. */
  group(index, kernel, resources, step) {
    const pipeline = this.pipeline(kernel);
    const name = (r) => (r.view ? `t${r.id}` : `${r.buffer.id}:${r.offset}:${r.nbytes}`);
    const key = `${kernel}:${resources.map(name).join()}`;
    let kept = this.#groups.get(index);
    if (kept?.key !== key) {
      kept = { key, group: this.session.gpu.bind(pipeline, resources, step) };
      this.#groups.set(index, kept);
    }
    return { pipeline, group: kept.group };
  }

  /** Makes the first pipelines of all scopes. */
  makeFirst(onProgress) {
    const steps = (scope) => scope.plan.steps.map((_, i) => [scope, i, scope.resolver.choices.first(i)]);
    return this.makePipelines(() => this.every().flatMap(steps), onProgress);
  }

  /** The constants of all scopes: `wanted` in buffers, `contents` in textures, `kept` on the host as well. */
  constants() {
    const scopes = this.every();
    const found = scopes.map((s) => s.resolver.choices.constants());
    const wanted = scopes.flatMap(({ plan: { inputs, outputs, values, steps } }) => {
      const others = steps.filter((s) => s.kind !== "dispatch").flatMap(placesOf);
      const places = [...others, ...[...inputs, ...outputs, ...values.values()].map((v) => v.place)];
      const control = steps.filter(isControl);
      const moved = control.flatMap((s) => [
        ...copied(s).map((n) => values.get(n)), ...s.bodies.flatMap((b) => b.outputs),
      ]);
      return [...places.filter((p) => p?.[0] === "c").map(([, index]) => index), ...moved.map((v) => v.constant)];
    });
    const decide = scopes.flatMap(({ plan: { values, steps } }) => steps.filter(isControl).flatMap((s) => [
      ...deciding(s).map((n) => values.get(n)), ...(s.again ? [s.bodies[0].outputs[0]] : []),
    ]));
    const kept = [...this.plan.outputs, ...decide].map((v) => v.constant).filter((c) => c !== null);
    return {
      wanted: new Set([...found.flatMap((f) => [...f.buffers]), ...wanted.filter((c) => c !== null)]),
      contents: found.flatMap((f) => [...f.contents]), kept: new Set(kept),
    };
  }

  /** Frees slots, after which they are made anew. */
  reset() {
    this.every().forEach((s) => s.memory.reset());
  }

  close() {
    [...this.every()].reverse().forEach((s) => {
      s.memory.close();
      s.#groups.clear();
      s.#frames.clear();
    });
  }

  /**
   * The pipelines of [scope, step, kernel or none], as far as there is none yet. Whether one was refused, and left its
   * place to the next alternative: what follows from the choice of alternatives is another then. Raises KernelError
   * where no alternative is left.
   */
  async makePipelines(wanted, onProgress = () => {}) {
    for (let refused = false; ; refused = true) {
      const missing = new Map();
      for (const [scope, i, kernel] of wanted()) {
        if (kernel === undefined || this.refused.has(kernel) || this.#pipelines.has(kernel)) continue;
        if (!missing.has(kernel)) missing.set(kernel, [scope, scope.plan.steps[i]]);
      }
      const failures = await this.#makeAll(missing, onProgress);
      if (!failures.length) return refused;
      failures.forEach(([kernel, error]) => this.#refuse(kernel, error, ...missing.get(kernel)));
    }
  }

  /** Makes pipelines; [kernel, KernelError] of those that were refused. */
  async #makeAll(missing, onProgress) {
    const failures = [];
    let done = 0;
    await Promise.all([...missing].map(async ([kernel, [scope, step]]) => {
      try {
        this.#pipelines.set(kernel, await pipelineOf(this.session.gpu, this.plan.kernels[kernel], scope.resolver.where(step)));
      } catch (e) {
        if (!(e instanceof KernelError)) throw e;
        failures.push([kernel, e]);
      }
      done += 1;
      onProgress("pipelines", done, missing.size);
    }));
    return failures;
  }

  /** Leaves a kernel to the alternatives of the dispatches that want it, as `step`. Raises the error where one has none. */
  #refuse(kernel, error, scope, step) {
    const { name } = this.plan.kernels[kernel];
    const where = scope.resolver.name(step);
    this.session.warn(`the kernel '${name}' of ${where} is left out: the device refused it: ${error.said}`);
    this.refused.set(kernel, `the kernel '${name}' was refused`);
    for (const other of this.root.every()) {
      const left = other.resolver.choices.refresh();
      if (left === null) continue;
      throw new KernelError(error.what, other.resolver.where(other.plan.steps[left]));
    }
  }
}

/** Inputs whose slot a buffer may stand in for: nothing ever writes there, and no other input has it. */
function lendable(plan) {
  const written = new Set(plan.steps.flatMap((s) => {
    if (s.kind === "dispatch") return s.bindings.filter(([, access]) => access === "w").map(([place]) => String(place));
    if (s.kind === "copy") return [String(s.target)];
    return (s.outputs ?? []).filter((n) => n).map((n) => String(plan.values.get(n).place));
  }));
  const taken = plan.inputs.map((v) => String(v.place));
  const free = plan.inputs.filter(({ place }) => place?.[0] === "s" && !written.has(String(place))
    && taken.filter((p) => p === String(place)).length === 1);
  return new Map(free.map((v) => [v.name, v.place[1]]));
}
