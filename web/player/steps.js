/** The steps of a plan or of a sub-plan in one run. The twin of webrt/runtime/steps.py. */

import { DeviceError, PlanError, RunTerminated, ShapeError, nbytesOf } from "./common.js";
import { Sizes, declared, resolve } from "./dims.js";
import { bytesOf, ofIntegers, typed } from "./feeds.js";
import { runBranch, runLoop } from "./flow.js";
import { DRAWN, SKIP } from "./resolve.js";

/** State of one run of a plan's steps. `host` holds what was fed or made there: name → { dtype, dims, data }. */
export class Steps {
  frame = null;

  /**
   * `at` is the step of the outermost plan that a sub-plan belongs to; -1 for the plan itself. `signal` may end the run
   * between submits, steps, host steps and iterations, and so do `timeout` seconds, which one wait for the device may
   * last as well; `end` is the time when these are over.
   */
  constructor(scope, { signal = null, timeout = null, end = null, at = -1 } = {}) {
    Object.assign(this, { scope, signal, timeout, at });
    this.end = end ?? performance.now() + 1000 * (timeout ?? Infinity);
    this.plan = scope.plan;
    this.memory = scope.memory;
    this.session = scope.session;
    this.gpu = scope.session.gpu;
    this.renew();
  }

  /** Forgets sizes and host values; the sizes of the steps `around` are known. */
  renew(around = null) {
    this.sizes = new Sizes(this.plan, this.scope.evaluated, around?.sizes);
    this.host = new Map();
    if (this.scope.resolver.draws) this.sizes.known.set(DRAWN, crypto.getRandomValues(new Uint32Array(1))[0]);
  }

  /** The steps of a body of step `index`. */
  within(index, body) {
    const { signal, timeout, end } = this;
    return new Steps(this.scope.inner.get(index)[body], { signal, timeout, end, at: this.stepOf(index) });
  }

  /** The step of the outermost plan that step `index` belongs to. */
  stepOf(index) {
    return this.at < 0 ? index : this.at;
  }

  /** All steps, in order; what need not be waited for is left recorded. */
  async run() {
    for (const [number, segment] of this.scope.resolver.segments.entries()) {
      this.check();
      if (segment.kind === "host") await this.#runHost(segment);
      else if (segment.kind === "read") await this.#readSizes(segment);
      else if (segment.kind === "branch") await runBranch(this, segment.steps[0]);
      else if (segment.kind === "loop") await runLoop(this, segment.steps[0]);
      else await this.#runDevice(number, segment);
    }
  }

  /** Throws the signal's reason where the caller wants the run to end, RunTerminated where its time is over. */
  check() {
    this.signal?.throwIfAborted();
    if (performance.now() < this.end) return;
    throw new RunTerminated(`the run did not end within its ${this.timeout} s (timeout; session.run_timeout in Python)`);
  }

  read(ranges) {
    this.check();
    return this.gpu.read(ranges, this.timeout);
  }

  bind(info, value, refuse) {
    if (value.dims === null || value.dims === undefined) return;
    this.sizes.bind(info, value.dims, refuse);
    if (info.elements) this.sizes.bindElements(info, Array.from(value.data, Number), refuse);
  }

  async settle() {
    const key = this.sizes.settle();
    this.frame = await this.scope.frame(key, this.sizes.values, this.timeout);
  }

  upload(info, value) {
    if (info.place === null || !value) return;
    const { buffer, offset } = this.memory.range(info.place);
    this.gpu.write(buffer, offset, bytesOf(value.data));
  }

  async #runDevice(number, segment) {
    this.memory.writeParams(this.frame.params);
    const textures = this.scope.resolver.schedule(this.frame, number, segment);
    this.memory.pool.ensure(textures.sizes);
    let made = this.frame.commands.get(number);
    if (made?.generation !== this.memory.generation) {
      const list = segment.steps.flatMap((i) => this.#commands(i, textures));
      made = { generation: this.memory.generation, list };
      this.frame.commands.set(number, made);
    }
    const { profile } = this.gpu;
    for (const command of made.list) {
      this.gpu.record(command);
      if (profile?.alone) await profile.wait(this.gpu, command);
    }
  }

  /** What a step needs copied into textures, and the step itself; nothing where it does nothing. */
  #commands(index, textures) {
    const ready = this.frame.steps[index];
    if (ready === null) throw new PlanError("a step's size depends on a value that only comes later");
    if (ready === SKIP) return [];
    const fills = (textures.fills.get(index) ?? []).map(([{ place, offset, texels }, id]) => {
      const source = this.memory.binding(place, offset, 16 * texels);
      const texture = this.memory.pool.get(id);
      return { source: source.buffer, sourceOffset: source.offset, texture, texels, step: this.stepOf(index) };
    });
    return [...fills, this.#command(index, ready, textures)];
  }

  #command(index, ready, textures) {
    const step = this.plan.steps[index];
    if (step.kind === "copy") {
      const source = this.memory.range(step.source, ready.numbers[0]);
      const target = this.memory.range(step.target, ready.numbers[1]);
      return {
        source: source.buffer, sourceOffset: source.offset, target: target.buffer, targetOffset: target.offset,
        nbytes: ready.numbers[2], step: this.stepOf(index), name: this.scope.resolver.name(step),
      };
    }
    const through = new Map(ready.textures);
    const resources = step.bindings.map(([place], i) => {
      if (!through.has(i)) return this.memory.binding(place, ready.numbers[i], ready.sizes[i]);
      if (place[0] === "c") return this.memory.texture(through.get(i));
      return this.memory.pool.get(textures.reads.get(`${index}:${i}`));
    });
    if (step.params.length) resources.unshift(this.memory.paramsRange(step));
    const name = this.scope.resolver.name(step);
    return { ...this.scope.group(index, ready.kernel, resources, name), groups: ready.groups, step: this.stepOf(index), name };
  }

  async #runHost(segment) {
    const steps = segment.steps.map((i) => this.plan.steps[i]);
    const operands = this.#operandsOf(steps);
    await this.#readOperands(operands);
    const given = operands.filter((n) => this.host.has(n)).map((n) => [n, this.host.get(n)]);
    const run = () => this.session.host(segment.steps.map((i) => this.scope.numbers[i]), Object.fromEntries(given));
    const results = await (this.gpu.profile?.host(segment.steps.map((i) => this.stepOf(i)), run) ?? run());
    for (const step of steps) this.#takeResults(step, results);
    await this.settle();
    this.memory.ensure(this.frame.slots);
    for (const name of steps.flatMap((s) => s.outputs).filter((n) => n)) {
      this.upload(this.plan.values.get(name), this.host.get(name));
    }
  }

  /** Submits what was recorded and binds the sizes that it computed. */
  async #readSizes(segment) {
    const reads = segment.steps.flatMap((i) => this.plan.steps[i].reads);
    const ranges = reads.map(([place]) => ({ ...this.memory.range(place), nbytes: 4 }));
    const data = await this.read(ranges);
    reads.forEach(([, name], i) => this.sizes.known.set(name, new Int32Array(data[i])[0]));
    await this.settle();
    this.memory.ensure(this.frame.slots);
  }

  /** What host steps read that none of them makes. */
  #operandsOf(steps) {
    const made = new Set();
    const names = new Set();
    for (const step of steps) {
      for (const n of [...step.inputs, ...step.outer]) if (n && !made.has(n)) names.add(n);
      step.outputs.forEach((n) => made.add(n));
    }
    return [...names];
  }

  /** Fetches operands from the device in one round trip. Constants are the host's: it has the plan. */
  async #readOperands(names) {
    const infos = names.map((n) => this.plan.values.get(n)).filter((i) => !this.known(i) && i.constant === null);
    const data = await this.read(infos.map((i) => this.range(i)));
    infos.forEach((info, i) => {
      this.host.set(info.name, { dtype: info.dtype, dims: this.sizes.shape(info), data: typed(info.dtype, data[i]) });
    });
  }

  #takeResults(step, results) {
    for (const name of step.outputs.filter((n) => n)) {
      const info = this.plan.values.get(name);
      const value = results[name];
      const refuse = (what) => {
        const expected = declared(this.plan, info);
        return new ShapeError(`${this.scope.resolver.name(step)} made '${name}': ${what}; expected is ${expected}`);
      };
      if (!value) throw new DeviceError(`the host provider made no value '${name}'`);
      if (value.dims && info.dtype && value.dtype !== info.dtype) throw refuse(`its type is ${value.dtype}`);
      if (value.dims && info.place && nbytesOf(info.dtype, value.dims) !== value.data.byteLength) {
        throw refuse(`it has ${value.data.byteLength} bytes`);
      }
      this.host.set(name, value);
      this.bind(info, value, refuse);
    }
  }

  /** Whether the host has the value without the device; if so it is in `host`. */
  known(info) {
    if (this.host.has(info.name)) return true;
    if (info.contents !== null) {
      const values = info.contents.map((ref) => resolve(ref, this.sizes.values));
      if (values.includes(null)) throw new PlanError(`the value '${info.name}' depends on a size that is not known`);
      this.host.set(info.name, ofIntegers(info.dtype, this.sizes.shape(info), values));
      return true;
    }
    const bytes = this.session.constants.get(info.constant);
    if (!bytes) return false;
    const { dtype, shape } = this.plan.constants[info.constant];
    this.host.set(info.name, { dtype: info.dtype || dtype, dims: shape, data: typed(dtype, bytes.slice().buffer) });
    return true;
  }

  range(info) {
    if (info.place === null) throw new PlanError(`nothing gives the value '${info.name}'`);
    return { ...this.memory.range(info.place), nbytes: nbytesOf(info.dtype, this.sizes.shape(info)) };
  }
}
