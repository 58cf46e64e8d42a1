/**
 * Branches and loops of a run: only what decides is read back; tensors move on the device, between slots. The twin of
 * webrt/runtime/flow.py, inner.py and stacked.py, with the same texts. A value on its way is { dims, bytes, value }: bytes is a range on the
 * device or null, value a host value or null.
 */

import { InputError, PlanError, ShapeError, listed, nbytesOf, roundUp } from "./common.js";
import { declared } from "./dims.js";
import { ofIntegers, typed } from "./feeds.js";
import { captured } from "./subplans.js";

/** Commands that are recorded before they are submitted, and waited for, without need. */
const MAX_RECORDED = 4096;

/** Runs one body of a branch. */
export async function runBranch(around, index) {
  const step = around.plan.steps[index];
  const taken = await scalar(around, step.condition) ? 0 : 1;
  const inner = new Inner(around, index, taken, new Set());
  const given = captured(step, step.bodies[taken]).map((v) => [v.name, held(around, around.plan.values.get(v.name))]);
  await inner.start(new Map(given));
  await inner.steps.run();
  const made = inner.steps.plan.outputs.map((v, k) => (step.outputs[k] ? held(inner.steps, v) : null));
  await finish(around, inner, step.outputs, made);
}

/** Runs the body of a loop as often as it says. */
export async function runLoop(around, index) {
  const step = around.plan.steps[index];
  const moved = new Set([...step.state, ...step.elements].map(([, b]) => b)).add(step.number);
  const inner = new Inner(around, index, 0, moved);
  const value = (name) => held(around, around.plan.values.get(name));
  const sequences = step.elements.map(([a, name, backward]) => ({ name, held: value(a), backward }));
  const limit = await limitOf(around, step, sequences, inner.where);
  let alive = !step.condition || await scalar(around, step.condition);
  const { outputs } = inner.steps.plan;
  const first = Number(step.again);
  const carried = outputs.slice(first, first + step.state.length);
  const lines = outputs.slice(first + step.state.length).map((info, k) => (
    new Line(around, inner, k, step.outputs[step.state.length + k], info, step.lines[k])
  )).filter((line) => line.name);
  const given = captured(step, step.bodies[0]).map((v) => [v.name, value(v.name)]);
  let state = step.state.map(([a, b]) => [b, value(a)]);
  const exact = step.again ? null : limit;
  let done = 0;
  for (; alive && (limit === null || done < limit); done += 1) {
    around.check();
    const now = new Map([...state, ...entries(step, inner, sequences, done, limit)]);
    if (done === 0) await inner.start(new Map([...given, ...now]));
    else await inner.goOn(now);
    await inner.steps.run();
    for (const line of lines) line.put(done, exact);
    alive = !step.again || await scalarOf(inner.steps, outputs[0]);
    state = step.state.map(([, b], k) => [b, held(inner.steps, carried[k])]);
    await around.gpu.rest(MAX_RECORDED, around.timeout);
  }
  if (done === 0) {
    await inner.sizeUp(new Map([...given, ...state, ...entries(step, inner, sequences, 0, limit)]));
    inner.steps.sizes.settle();
  }
  const names = [...step.outputs.slice(0, state.length), ...lines.map((line) => line.name)];
  await finish(around, inner, names, [...state.map(([, h]) => h), ...lines.map((line) => line.held(done))]);
  for (const line of lines) line.settle(done);
}

/** The bound of a loop's iterations, or null. */
async function limitOf(around, step, sequences, where) {
  const lengths = [...new Set(sequences.map(({ held: { dims } }) => dims[0]))];
  if (lengths.length > 1) {
    throw new InputError(`${where}: the scanned inputs have ${listed(lengths.sort((a, b) => a - b))} elements, `
      + "not equally many");
  }
  const limits = step.trips ? [...lengths, await scalar(around, step.trips)] : lengths;
  return limits.length ? Math.max(0, Math.min(...limits)) : null;
}

/** The scanned sequences' entries of an iteration, and its number. */
function entries(step, inner, sequences, done, limit) {
  const out = sequences.map(({ name, held: whole, backward }) => {
    const dims = whole.dims.slice(1);
    const at = backward ? (limit ?? 0) - 1 - done : done;
    const nbytes = nbytesOf(inner.inputs.get(name).dtype, dims);
    if (!whole.bytes) throw new PlanError(`${inner.where}: the scanned value is not on the device`);
    const { buffer, offset } = whole.bytes;
    return [name, { dims, bytes: { buffer, offset: offset + Math.max(at, 0) * nbytes, nbytes }, value: null }];
  });
  if (step.number) out.push([step.number, { dims: [], bytes: null, value: ofIntegers("int64", [], [done]) }]);
  return out;
}

/** A body's steps, which may be run several times. `moved` are the inputs that are copied each time. */
class Inner {
  kept = new Map();

  constructor(around, index, body, moved) {
    this.around = around;
    this.where = around.scope.resolver.name(around.plan.steps[index]);
    this.moved = moved;
    this.steps = around.within(index, body);
    this.inputs = new Map(this.steps.plan.inputs.map((v) => [v.name, v]));
  }

  /** Binds sizes anew and brings values to their inputs; what was given before and is not given now stays. */
  async start(given) {
    given.forEach((h, name) => this.kept.set(name, h));
    await this.sizeUp(this.kept);
    await this.steps.settle();
    this.#place(given);
  }

  /** As `start`, for the next iteration: where its sizes are those of the last one, nothing is bound. */
  async goOn(given) {
    const same = ([name, h]) => String(this.kept.get(name).dims) === String(h.dims) && !this.inputs.get(name).elements;
    if (this.steps.scope.steady && [...given].every(same)) given.forEach((h, name) => this.#move(name, h));
    else await this.start(given);
  }

  /** Binds sizes anew. */
  async sizeUp(given) {
    this.steps.renew(this.around);
    for (const [name, h] of given) await this.#bind(this.inputs.get(name), h);
  }

  refusal(info) {
    const plan = this.inputs.has(info.name) ? this.steps.plan : this.around.plan;
    return (what) => new ShapeError(`${this.where}: '${info.name}': ${what}; expected is ${declared(plan, info)}`);
  }

  async #bind(info, { dims, bytes, value }) {
    const { steps } = this;
    const host = value === null && (info.place === null || info.elements)
      ? await readBack(steps, info, { dims, bytes }) : value;
    if (host !== null) {
      steps.host.set(info.name, host);
      steps.bind(info, host, this.refusal(info));
    } else if (dims) {
      steps.sizes.bind(info, dims, this.refusal(info));
    }
  }

  /** Brings values to the slots of their inputs. Where slots have to grow, states wait elsewhere meanwhile. */
  #place(given) {
    const { steps, moved } = this;
    const { memory, gpu } = steps;
    for (const [name, { bytes }] of given) {
      const slot = steps.scope.lendable.get(name);
      const need = slot === undefined ? null : steps.frame.slots[slot];
      if (need === null || moved.has(name)) continue;
      memory.standIn(slot, bytes && !bytes.offset && bytes.buffer.nbytes >= need ? bytes.buffer : null);
    }
    const aside = [];
    const wait = (h) => {
      if (!h.bytes?.nbytes) return h;
      const buffer = gpu.alloc(h.bytes.nbytes, "a state while slots grow");
      aside.push(buffer);
      const bytes = { buffer, offset: 0, nbytes: h.bytes.nbytes };
      copy(steps, h.bytes, bytes);
      return { ...h, bytes };
    };
    const fits = memory.fits(steps.frame.slots);
    const values = [...given].map(([name, h]) => [name, fits ? h : wait(h)]);
    memory.ensure(steps.frame.slots);
    for (const [name, h] of values) this.#move(name, h);
    if (!aside.length) return;
    gpu.submit();
    aside.forEach((buffer) => gpu.free(buffer));
  }

  #move(name, { bytes, value }) {
    const { steps } = this;
    const info = this.inputs.get(name);
    if (info.place === null || steps.memory.isLent(info.place[1])) return;
    if (bytes) copy(steps, bytes, steps.memory.range(info.place));
    else if (value) steps.upload(info, value);
  }
}

/** An output of a loop that its iterations make entry by entry, along a new first axis. */
class Line {
  #dims = [];
  #nbytes = 0;
  #direct = null;
  #buffer = null;

  constructor(around, inner, number, name, info, backward) {
    Object.assign(this, { around, inner, number, name, info, backward });
    this.out = around.plan.values.get(name);
  }

  /** Copies what iteration `done`, of `exact` ones where that is known, has made. */
  put(done, exact) {
    const { steps } = this.inner;
    const { bytes: source, dims } = held(steps, this.info);
    if (done === 0) {
      this.#dims = dims;
      this.#nbytes = source.nbytes;
      this.#direct = this.#place(exact);
    } else if (String(dims) !== String(this.#dims)) {
      throw new ShapeError(`${this.inner.where}: the entries of '${this.name}' have shape ${listed(this.#dims)}, `
        + `then ${listed(dims)}`);
    }
    if (!this.#nbytes) return;
    if (this.#direct) copy(steps, source, this.#entry(this.#direct, this.backward ? exact - 1 - done : done));
    else copy(steps, source, this.#entry(this.#grown(done), done));
  }

  /** The output as the plan around takes it: in place already, or still to be copied by `settle`. */
  held(done) {
    const { values } = this.inner.steps.sizes;
    if (done === 0) this.#dims = this.info.shape.map((d) => (typeof d === "number" ? d : values[d[0]] ?? 0));
    return { dims: [done, ...this.#dims], bytes: null, value: null };
  }

  /** Copies what waits elsewhere, once the output has its size. */
  settle(done) {
    if (this.#direct || !this.#buffer) return;
    const target = this.around.range(this.out);
    const whole = { buffer: this.#buffer, offset: 0, nbytes: done * this.#nbytes };
    if (!this.backward) {
      copy(this.inner.steps, whole, target);
      return;
    }
    for (let k = 0; k < done; k += 1) {
      copy(this.inner.steps, this.#entry(whole, k), this.#entry(target, done - 1 - k));
    }
  }

  /** The output's own place, where its size is known before the loop ends. */
  #place(exact) {
    const { around, out } = this;
    if (exact === null || out.place === null || around.frame.slots[out.place[1]] === null) return null;
    const target = around.range(out);
    return target.nbytes === exact * this.#nbytes ? target : null;
  }

  #grown(done) {
    const { steps } = this.inner;
    const [buffer, old] = steps.memory.accumulator(this.number, (done + 1) * this.#nbytes);
    const nbytes = done * this.#nbytes;
    if (old) {
      copy(steps, { buffer: old, offset: 0, nbytes }, { buffer, offset: 0, nbytes });
      steps.gpu.submit();
      steps.gpu.free(old);
    }
    this.#buffer = buffer;
    return { buffer, offset: 0, nbytes: buffer.nbytes };
  }

  #entry({ buffer, offset }, k) {
    return { buffer, offset: offset + k * this.#nbytes, nbytes: this.#nbytes };
  }
}

/** Binds the sizes of a step's outputs and copies these to their places. */
async function finish(around, inner, names, made) {
  const results = names.map((n, i) => [n && around.plan.values.get(n), made[i]]).filter(([info, h]) => info && h);
  for (const [info, { dims }] of results) around.sizes.bind(info, dims ?? [], inner.refusal(info));
  await around.settle();
  around.memory.ensure(around.frame.slots);
  for (const [info, { bytes, value }] of results) {
    if (bytes) copy(inner.steps, bytes, around.range(info));
    else if (value) around.upload(info, value);
  }
}

/** A value of these steps, on the device where it is there. */
function held(steps, info) {
  if (info.place !== null) return { dims: steps.sizes.shape(info), bytes: steps.range(info), value: null };
  if (info.constant !== null && steps.memory.has(info.constant)) {
    const { nbytes } = steps.plan.constants[info.constant];
    return { dims: steps.sizes.shape(info), bytes: { ...steps.memory.range(["c", info.constant]), nbytes }, value: null };
  }
  if (!steps.known(info)) throw new PlanError(`nothing gives the value '${info.name}'`);
  const value = steps.host.get(info.name);
  return { dims: value.dims, bytes: null, value };
}

const scalar = (steps, name) => scalarOf(steps, steps.plan.values.get(name));

/** The only element of a value, read back where the host does not have it. */
async function scalarOf(steps, info) {
  const known = steps.known(info) && steps.host.get(info.name).data !== null;
  const { data } = known ? steps.host.get(info.name) : await readBack(steps, info, held(steps, info));
  if (data.length === 1) return Number(data[0]);
  throw new ShapeError(`'${info.name}' decides what is run, and has ${data.length} elements; it must have one`);
}

async function readBack(steps, info, { dims, bytes }) {
  if (!bytes) throw new PlanError(`nothing gives the value '${info.name}'`);
  const [data] = await steps.read([bytes]);
  return { dtype: info.dtype, dims, data: typed(info.dtype, data) };
}

/** Whole words, unless they are there already. */
function copy(steps, source, target) {
  const nbytes = roundUp(source.nbytes, 4);
  if (!nbytes || (source.buffer === target.buffer && source.offset === target.offset)) return;
  if (nbytes > target.nbytes && nbytes > target.buffer.nbytes - target.offset) {
    throw new PlanError(`${nbytes} bytes do not fit '${target.buffer.label}'`);
  }
  steps.gpu.record({
    source: source.buffer, sourceOffset: source.offset, target: target.buffer, targetOffset: target.offset, nbytes,
    step: steps.at,
  });
}
