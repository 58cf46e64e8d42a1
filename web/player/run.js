/** One run of a session: feeds, segments of device and host steps, outputs. The twin of webrt/runtime/executor.py. */

import { DeviceError, DeviceLost, InputError, OutOfMemory, PlanError, ShapeError, nbytesOf, padded, roundUp } from "./common.js";
import { Sizes, declared, resolve } from "./dims.js";
import {
  GpuTensor, bytesOf, checkNames, chooseLocations, chooseOutputs, copyOf, hostValue, isOnGpu, ofIntegers, typed,
} from "./feeds.js";
import { DRAWN, SKIP } from "./resolve.js";

export class Run {
  #host = new Map(); // what was fed or made on the host: name → { dtype, dims, data }
  #tensors = [];
  #handed = [];
  #frame;

  /** `signal` may end the run between submits and host steps; `timeout` are the seconds to wait for each submit. */
  constructor(session, { outputs, location = "cpu", signal = null, timeout = null } = {}) {
    this.session = session;
    this.plan = session.plan;
    this.memory = session.memory;
    this.gpu = session.gpu;
    this.signal = signal;
    this.timeout = timeout;
    this.outputs = chooseOutputs(this.plan, outputs);
    this.onGpu = chooseLocations(this.plan, this.outputs, location);
    this.sizes = new Sizes(this.plan, session.evaluated);
    if (session.resolver.draws) this.sizes.known.set(DRAWN, crypto.getRandomValues(new Uint32Array(1))[0]);
  }

  /** The outputs by name. */
  async go(feeds) {
    try {
      this.signal?.throwIfAborted();
      this.gpu.begin();
      await this.#take(feeds);
      await this.#settle();
      this.memory.ensure(this.#frame.slots);
      for (const info of this.plan.inputs) this.#upload(info, this.#host.get(info.name));
      for (const [info, feed] of this.#tensors) this.#place(info, feed);
      for (const [number, segment] of this.session.resolver.segments.entries()) {
        this.signal?.throwIfAborted();
        if (segment.kind === "host") await this.#runHost(segment);
        else if (segment.kind === "read") await this.#readSizes(segment);
        else await this.#runDevice(number, segment);
      }
      return await this.#collect();
    } catch (e) {
      this.gpu.drop();
      this.#handed.forEach((t) => t.dispose());
      if (e instanceof OutOfMemory) this.memory.reset();
      throw e;
    }
  }

  /** The kernel that a dispatch took; null where it did nothing. */
  kernelOf(step) {
    return this.#frame.steps[step]?.kernel ?? null;
  }

  #read(ranges) {
    this.signal?.throwIfAborted();
    return this.gpu.read(ranges, this.timeout);
  }

  async #take(feeds) {
    checkNames(this.plan, feeds);
    for (const info of this.plan.inputs) {
      const expected = declared(this.plan, info);
      const refuse = (what) => new InputError(`input '${info.name}': ${what}; expected is ${expected}`);
      let feed = feeds[info.name];
      if (isOnGpu(feed)) {
        this.#checkTensor(info, feed, refuse);
        if (info.place !== null && !info.elements) {
          this.sizes.bind(info, feed.dims, refuse);
          this.#tensors.push([info, feed]);
          continue;
        }
        feed = await this.#fetch(feed);
      }
      const value = hostValue(info, feed, this.session.host !== null, refuse);
      this.#host.set(info.name, value);
      this.#bind(info, value, refuse);
    }
  }

  #checkTensor(info, feed, refuse) {
    if (feed.lost) throw new DeviceLost(`input '${info.name}' was on a device that is lost; feed it from the host again`);
    if (feed.dtype !== info.dtype) throw refuse(`it is ${feed.dtype}`);
    if ((feed.device ?? this.gpu.device) !== this.gpu.device) throw refuse("it is a tensor of another device");
    const fits = feed.buffer.size >= roundUp(nbytesOf(feed.dtype, feed.dims), 4);
    if (!fits) throw refuse("its buffer is too small for its dims");
  }

  async #fetch({ buffer, dtype, dims }) {
    const nbytes = nbytesOf(dtype, dims);
    const [bytes] = await this.#read([{ buffer: { handle: buffer }, offset: 0, nbytes }]);
    return { dtype, dims, data: typed(dtype, bytes) };
  }

  #bind(info, value, refuse) {
    if (value.dims === null || value.dims === undefined) return;
    this.sizes.bind(info, value.dims, refuse);
    if (info.elements) this.sizes.bindElements(info, Array.from(value.data, Number), refuse);
  }

  async #settle() {
    const key = this.sizes.settle();
    this.#frame = await this.session.frame(key, this.sizes.values);
  }

  #upload(info, value) {
    if (info.place === null || !value) return;
    const { buffer, offset } = this.memory.range(info.place);
    this.gpu.write(buffer, offset, bytesOf(value.data));
  }

  #place(info, feed) {
    const nbytes = Math.min(padded(nbytesOf(feed.dtype, feed.dims)), feed.buffer.size - (feed.buffer.size % 4));
    const { buffer, offset } = this.memory.range(info.place);
    if (!nbytesOf(feed.dtype, feed.dims)) return;
    this.gpu.record({ source: { handle: feed.buffer }, sourceOffset: 0, target: buffer, targetOffset: offset, nbytes });
  }

  async #runDevice(number, segment) {
    this.memory.writeParams(this.#frame.params);
    const textures = this.session.resolver.schedule(this.#frame, number, segment);
    this.memory.pool.ensure(textures.sizes);
    let made = this.#frame.commands.get(number);
    if (made?.generation !== this.memory.generation) {
      const list = segment.steps.flatMap((i) => this.#commands(i, textures));
      made = { generation: this.memory.generation, list };
      this.#frame.commands.set(number, made);
    }
    const { profile } = this.gpu;
    for (const command of made.list) {
      this.gpu.record(command);
      if (profile?.alone) await profile.wait(this.gpu, command);
    }
  }

  /** What a step needs copied into textures, and the step itself; nothing where it does nothing. */
  #commands(index, textures) {
    const ready = this.#frame.steps[index];
    if (ready === null) throw new PlanError("a step's size depends on a value that only comes later");
    if (ready === SKIP) return [];
    const fills = (textures.fills.get(index) ?? []).map(([{ place, offset, texels }, id]) => {
      const source = this.memory.binding(place, offset, 16 * texels);
      const texture = this.memory.pool.get(id);
      return { source: source.buffer, sourceOffset: source.offset, texture, texels, step: index };
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
        nbytes: ready.numbers[2], step: index, name: this.session.resolver.name(step),
      };
    }
    const through = new Map(ready.textures);
    const resources = step.bindings.map(([place, , , size], i) => {
      if (!through.has(i)) return this.memory.binding(place, ready.numbers[i], size);
      if (place[0] === "c") return this.memory.texture(through.get(i));
      return this.memory.pool.get(textures.reads.get(`${index}:${i}`));
    });
    if (step.params.length) resources.unshift(this.memory.paramsRange(step));
    const name = this.session.resolver.name(step);
    return { ...this.session.group(index, ready.kernel, resources, name), groups: ready.groups, step: index, name };
  }

  async #runHost(segment) {
    const steps = segment.steps.map((i) => this.plan.steps[i]);
    const operands = this.#operandsOf(steps);
    await this.#readOperands(operands);
    const given = operands.filter((n) => this.#host.has(n)).map((n) => [n, this.#host.get(n)]);
    const run = () => this.session.host([...segment.steps], Object.fromEntries(given));
    const results = await (this.gpu.profile?.host(segment.steps, run) ?? run());
    for (const step of steps) this.#takeResults(step, results);
    await this.#settle();
    this.memory.ensure(this.#frame.slots);
    for (const name of steps.flatMap((s) => s.outputs).filter((n) => n)) {
      this.#upload(this.plan.values.get(name), this.#host.get(name));
    }
  }

  /** Submits what was recorded and binds the sizes that it computed. */
  async #readSizes(segment) {
    const reads = segment.steps.flatMap((i) => this.plan.steps[i].reads);
    const ranges = reads.map(([place]) => ({ ...this.memory.range(place), nbytes: 4 }));
    const data = await this.#read(ranges);
    reads.forEach(([, name], i) => this.sizes.known.set(name, new Int32Array(data[i])[0]));
    await this.#settle();
    this.memory.ensure(this.#frame.slots);
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
    const infos = names.map((n) => this.plan.values.get(n)).filter((i) => !this.#known(i) && i.constant === null);
    const data = await this.#read(infos.map((i) => this.#range(i)));
    infos.forEach((info, i) => {
      this.#host.set(info.name, { dtype: info.dtype, dims: this.sizes.shape(info), data: typed(info.dtype, data[i]) });
    });
  }

  #takeResults(step, results) {
    for (const name of step.outputs.filter((n) => n)) {
      const info = this.plan.values.get(name);
      const value = results[name];
      const refuse = (what) => {
        const expected = declared(this.plan, info);
        return new ShapeError(`${this.session.resolver.name(step)} made '${name}': ${what}; expected is ${expected}`);
      };
      if (!value) throw new DeviceError(`the host provider made no value '${name}'`);
      if (value.dims && info.dtype && value.dtype !== info.dtype) throw refuse(`its type is ${value.dtype}`);
      if (value.dims && info.place && nbytesOf(info.dtype, value.dims) !== value.data.byteLength) {
        throw refuse(`it has ${value.data.byteLength} bytes`);
      }
      this.#host.set(name, value);
      this.#bind(info, value, refuse);
    }
  }

  /** Whether the host has the value without the device; if so it is in `#host`. */
  #known(info) {
    if (this.#host.has(info.name)) return true;
    if (info.contents !== null) {
      const values = info.contents.map((ref) => resolve(ref, this.sizes.values));
      if (values.includes(null)) throw new PlanError(`the value '${info.name}' depends on a size that is not known`);
      this.#host.set(info.name, ofIntegers(info.dtype, this.sizes.shape(info), values));
      return true;
    }
    const bytes = this.session.constants.get(info.constant);
    if (!bytes) return false;
    const { dtype, shape } = this.plan.constants[info.constant];
    this.#host.set(info.name, { dtype: info.dtype || dtype, dims: shape, data: typed(dtype, bytes.slice().buffer) });
    return true;
  }

  #range(info) {
    if (info.place === null) throw new PlanError(`nothing gives the value '${info.name}'`);
    return { ...this.memory.range(info.place), nbytes: nbytesOf(info.dtype, this.sizes.shape(info)) };
  }

  /** Reads outputs in the last submit, or copies them into tensors of their own. */
  async #collect() {
    const made = this.outputs.map((info, i) => {
      const known = this.#known(info);
      if (this.onGpu[i]) return this.#handOut(info, known);
      return known ? copyOf(this.#host.get(info.name)) : null;
    });
    const reads = this.outputs.filter((_, i) => made[i] === null);
    const data = await this.#read(reads.map((info) => this.#range(info)));
    return Object.fromEntries(this.outputs.map((info, i) => {
      if (made[i] !== null) return [info.name, made[i]];
      return [info.name, { dtype: info.dtype, dims: this.sizes.shape(info), data: typed(info.dtype, data.shift()) }];
    }));
  }

  #handOut(info, known) {
    const dims = known ? this.#host.get(info.name).dims : this.sizes.shape(info);
    const buffer = this.gpu.alloc(nbytesOf(info.dtype, dims), `output '${info.name}'`);
    const tensor = new GpuTensor(this.gpu, buffer, info.dtype, dims);
    this.#handed.push(tensor);
    if (known) {
      this.gpu.write(buffer, 0, bytesOf(this.#host.get(info.name).data));
    } else if (tensor.nbytes) {
      const source = this.#range(info);
      this.gpu.record({
        source: source.buffer, sourceOffset: source.offset, target: buffer, targetOffset: 0,
        nbytes: padded(tensor.nbytes),
      });
    }
    return tensor;
  }
}
