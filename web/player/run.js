/** One run of a session: feeds, the plan's steps, outputs. The twin of webrt/runtime/executor.py. */

import { InputError, OutOfMemory, DeviceLost, nbytesOf, padded, roundUp } from "./common.js";
import { declared } from "./dims.js";
import {
  GpuTensor, bytesOf, checkNames, chooseLocations, chooseOutputs, copyOf, hostValue, isOnGpu, typed,
} from "./feeds.js";
import { isKnown, refuseOther } from "./known.js";
import { Steps } from "./steps.js";

export class Run extends Steps {
  #tensors = [];
  #handed = [];

  constructor(session, { outputs, location = "cpu", signal = null, timeout = null } = {}) {
    super(session.scope, { signal, timeout });
    this.outputs = chooseOutputs(this.plan, outputs);
    this.onGpu = chooseLocations(this.plan, this.outputs, location);
  }

  /** The outputs by name. */
  async go(feeds) {
    try {
      this.check();
      this.gpu.begin();
      await this.#take(feeds);
      await this.settle();
      this.memory.ensure(this.frame.slots);
      for (const info of this.plan.inputs) this.upload(info, this.host.get(info.name));
      for (const [info, feed] of this.#tensors) this.#place(info, feed);
      await this.run();
      return await this.#collect();
    } catch (e) {
      this.gpu.drop();
      this.#handed.forEach((t) => t.dispose());
      if (e instanceof OutOfMemory) this.scope.reset();
      throw e;
    }
  }

  /** The kernel that a dispatch took; null where it did nothing. */
  kernelOf(step) {
    return this.frame.steps[step]?.kernel ?? null;
  }

  async #take(feeds) {
    checkNames(this.plan, feeds);
    for (const info of this.plan.inputs) {
      if (isKnown(this.plan, info.name) && !Object.hasOwn(feeds, info.name)) continue;
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
      this.host.set(info.name, value);
      this.bind(info, value, refuse);
      refuseOther(this.plan, info, value.data);
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
    const [bytes] = await this.read([{ buffer: { handle: buffer }, offset: 0, nbytes }]);
    return { dtype, dims, data: typed(dtype, bytes) };
  }

  #place(info, feed) {
    const nbytes = Math.min(padded(nbytesOf(feed.dtype, feed.dims)), feed.buffer.size - (feed.buffer.size % 4));
    const { buffer, offset } = this.memory.range(info.place);
    if (!nbytesOf(feed.dtype, feed.dims)) return;
    this.gpu.record({ source: { handle: feed.buffer }, sourceOffset: 0, target: buffer, targetOffset: offset, nbytes });
  }

  /** Reads outputs in the last submit, or copies them into tensors of their own. */
  async #collect() {
    const made = this.outputs.map((info, i) => {
      const known = this.known(info);
      if (this.onGpu[i]) return this.#handOut(info, known);
      return known ? copyOf(this.host.get(info.name)) : null;
    });
    const reads = this.outputs.filter((_, i) => made[i] === null);
    const data = await this.read(reads.map((info) => this.range(info)));
    return Object.fromEntries(this.outputs.map((info, i) => {
      if (made[i] !== null) return [info.name, made[i]];
      return [info.name, { dtype: info.dtype, dims: this.sizes.shape(info), data: typed(info.dtype, data.shift()) }];
    }));
  }

  #handOut(info, known) {
    const dims = known ? this.host.get(info.name).dims : this.sizes.shape(info);
    const buffer = this.gpu.alloc(nbytesOf(info.dtype, dims), `output '${info.name}'`);
    const tensor = new GpuTensor(this.gpu, buffer, info.dtype, dims);
    this.#handed.push(tensor);
    if (known) {
      this.gpu.write(buffer, 0, bytesOf(this.host.get(info.name).data));
    } else if (tensor.nbytes) {
      const source = this.range(info);
      this.gpu.record({
        source: source.buffer, sourceOffset: source.offset, target: buffer, targetOffset: 0,
        nbytes: padded(tensor.nbytes),
      });
    }
    return tensor;
  }
}
