/** A plan or a sub-plan on a device: what stays from run to run. The twin of webrt/runtime/scope.py. */

import { pipelineOf } from "./kernels.js";
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
    this.resolver = new Resolver(plan, session.gpu.target);
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
  async frame(key, values) {
    if (!this.#frames.has(key)) {
      const frame = this.resolver.frame(values);
      await this.#makePipelines(frame.steps.map((ready, i) => [this, i, ready?.kernel]));
      if (this.#frames.size >= MAX_FRAMES) this.#frames.delete(this.#frames.keys().next().value);
      this.#frames.set(key, frame);
    }
    return this.#frames.get(key);
  }

  /** The pipeline of a dispatch's kernel and its bind group over these resources, which is kept; `step` is its name. */
  group(index, kernel, resources, step) {
    const pipeline = this.#pipelines.get(kernel);
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
  makePipelines(onProgress) {
    const steps = (scope) => scope.plan.steps.map((_, i) => [scope, i, scope.resolver.choices.first(i)]);
    return this.#makePipelines(this.every().flatMap(steps), onProgress);
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

  /** The pipelines of [scope, step, kernel or none], as far as there is none yet. */
  async #makePipelines(kernels, onProgress = () => {}) {
    const missing = new Map();
    for (const [scope, i, kernel] of kernels) {
      if (kernel === undefined || this.#pipelines.has(kernel) || missing.has(kernel)) continue;
      const where = scope.resolver.where(scope.plan.steps[i]);
      missing.set(kernel, pipelineOf(this.session.gpu, this.plan.kernels[kernel], where));
    }
    let done = 0;
    await Promise.all([...missing].map(async ([kernel, made]) => {
      this.#pipelines.set(kernel, await made);
      done += 1;
      onProgress("pipelines", done, missing.size);
    }));
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
