/** A WebGPU device: errors by name, counters, and commands that are recorded until a submit is due. */

import { Checks } from "./checks.js";
import { DeviceLost, TargetError, padded, roundUp } from "./common.js";
import { WIDTH } from "./textures.js";

/** What is counted of a session: `buffers` and `bytes` are alive now, the others only grow; `measured` by tuning. */
const newCounters = () => ({
  buffers: 0, bytes: 0, created: 0, pipelines: 0, bindGroups: 0, submits: 0, dispatches: 0, copies: 0,
  written: 0, read: 0, measured: 0,
});

/** Copies `texels` times 16 bytes of a buffer into a texture: whole rows, then the row that is not full. */
export function fill(encoder, { source, sourceOffset, texture, texels }) {
  const whole = Math.floor(texels / WIDTH);
  const parts = [[0, WIDTH, whole], [whole, texels % WIDTH, 1]].filter(([, width, rows]) => width && rows);
  for (const [row, width, rows] of parts) {
    const from = { buffer: source.handle, offset: sourceOffset + 16 * WIDTH * row, bytesPerRow: 16 * WIDTH };
    encoder.copyBufferToTexture(from, { texture: texture.handle, origin: [0, row] }, [width, rows]);
  }
}

/** A GPUDevice with counters, errors by name, and commands that are recorded until a submit is due. */
export class Gpu extends Checks {
  profile = null; // a Profile while runs are timed
  #recorded = [];
  #encoder = null;
  #pass = null;
  #pipeline = null;
  #staging = null;
  #sampler = null; // of the nearest texel
  #closed = false;
  #ids = 0;

  constructor(device, counters = newCounters()) {
    super(device, counters);
    const { features, limits } = device;
    const { vendor = "", architecture = "", subgroupMinSize = 0, subgroupMaxSize = 0 } = device.adapterInfo ?? {};
    const software = device.adapterInfo?.isFallbackAdapter || architecture === "swiftshader";
    this.target = {
      name: this.name, kind: software ? "software" : "gpu", vendor, architecture, features, limits,
      subgroup_sizes: [subgroupMinSize, subgroupMaxSize],
    };
  }

  alloc(size, label, usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST) {
    const nbytes = padded(size);
    const { maxBufferSize } = this.target.limits;
    if (nbytes > maxBufferSize) {
      throw new TargetError(`${label} needs a buffer of ${nbytes} bytes; `
        + `the device '${this.target.name}' has maxBufferSize ${maxBufferSize}`);
    }
    const make = () => this.device.createBuffer({ label, size: nbytes, usage });
    const handle = this.guard(`${label}, ${nbytes} bytes`, make);
    return { handle, nbytes, label, id: this.#count(nbytes) };
  }

  free(buffer) {
    if (!buffer?.handle) return;
    buffer.handle.destroy();
    buffer.handle = null;
    this.counters.buffers -= 1;
    this.counters.bytes -= buffer.nbytes;
  }

  #count(nbytes) {
    this.counters.buffers += 1;
    this.counters.created += 1;
    this.counters.bytes += nbytes;
    this.#ids += 1;
    return this.#ids;
  }

  /** A texture of rgba32uint (`words`) or rgba32float; it is counted as a buffer. */
  allocTexture(texels, words, label) {
    const [width, rows] = [Math.min(texels, WIDTH), Math.ceil(texels / WIDTH)];
    const { maxTextureDimension2D } = this.target.limits;
    if (rows > maxTextureDimension2D) {
      throw new TargetError(`${label} needs ${rows} rows; `
        + `the device '${this.target.name}' has maxTextureDimension2D ${maxTextureDimension2D}`);
    }
    const nbytes = 16 * width * rows;
    const make = () => {
      const handle = this.device.createTexture({
        label, size: [width, rows], format: words ? "rgba32uint" : "rgba32float",
        usage: GPUTextureUsage.TEXTURE_BINDING | GPUTextureUsage.STORAGE_BINDING | GPUTextureUsage.COPY_DST,
      });
      return { handle, view: handle.createView() };
    };
    return { ...this.guard(`${label}, ${nbytes} bytes`, make), rows, nbytes, id: this.#count(nbytes) };
  }

  freeTexture(texture) {
    this.free(texture);
    texture.rows = 0;
  }

  /** Writes bytes from a row on; zeros fill a last texel that is not full. What was recorded runs before. */
  writeTexture(texture, row, bytes) {
    this.submit();
    const whole = Math.floor(bytes.length / (16 * WIDTH));
    const rest = bytes.subarray(16 * WIDTH * whole);
    const put = (y, data, width, rows) => this.device.queue.writeTexture(
      { texture: texture.handle, origin: [0, y] }, data, { bytesPerRow: 16 * width }, [width, rows],
    );
    this.guard("a write to a texture", () => {
      if (whole) put(row, bytes, WIDTH, whole);
      if (!rest.length) return;
      const padded = new Uint8Array(roundUp(rest.length, 16));
      padded.set(rest);
      put(row + whole, padded, padded.length / 16, 1);
    });
    this.counters.written += bytes.length;
  }

  /** Writes bytes, then zeros up to a multiple of 16. What was recorded runs before. */
  write(buffer, offset, bytes) {
    this.submit();
    this.guard(`a write to '${buffer.label ?? "a tensor"}'`, () => this.#write(buffer, offset, bytes));
    this.counters.written += bytes.length;
  }

  #write({ handle }, offset, bytes) {
    const { queue } = this.device;
    const main = bytes.length - (bytes.length % 16);
    if (main) queue.writeBuffer(handle, offset, bytes, 0, main); // sizes and offsets are multiples of 4
    if (main === bytes.length) return;
    const tail = new Uint8Array(16);
    tail.set(bytes.subarray(main));
    queue.writeBuffer(handle, offset + main, tail);
  }

  /** A bind group over ranges { buffer, offset, nbytes } and textures, for the step that is called `name`. */
  bind(pipeline, resources, name) {
    const entries = resources.map((r, i) => ({
      binding: i + pipeline.first,
      resource: r.view ?? { buffer: r.buffer.handle, offset: r.offset, size: r.nbytes },
    }));
    if (pipeline.sampler) {
      this.#sampler ??= this.device.createSampler();
      entries.push({ binding: entries.length + pipeline.first, resource: this.#sampler });
    }
    this.counters.bindGroups += 1;
    return this.guard(`the bind group of ${name}`, () => this.device.createBindGroup({ layout: pipeline.layout, entries }));
  }

  record(command) {
    this.#encoder ??= this.device.createCommandEncoder();
    this.#recorded.push(command);
    if (!command.pipeline) {
      this.#endPass();
      const copy = () => this.#copy(command);
      if (this.profile) this.profile.around(this.#encoder, command, copy);
      else copy();
      this.counters.copies += 1;
      return;
    }
    this.#pass ??= this.#encoder.beginComputePass(this.profile?.pass(command));
    if (command.pipeline !== this.#pipeline) this.#pass.setPipeline(command.pipeline.handle);
    this.#pipeline = command.pipeline;
    this.#pass.setBindGroup(0, command.group);
    this.#pass.dispatchWorkgroups(...command.groups);
    this.counters.dispatches += 1;
    if (this.profile) this.#endPass();
  }

  #copy(command) {
    if (command.texture) {
      fill(this.#encoder, command);
      return;
    }
    const { source, sourceOffset, target, targetOffset, nbytes } = command;
    this.#encoder.copyBufferToBuffer(source.handle, sourceOffset, target.handle, targetOffset, nbytes);
  }

  submit() {
    if (!this.#encoder) return;
    this.#endPass();
    this.profile?.resolve(this.#encoder);
    const [encoder, commands] = [this.#encoder, this.#recorded];
    this.drop();
    this.guard("a submit", () => this.device.queue.submit([encoder.finish()]), () => this.#refused(commands));
    this.counters.submits += 1;
  }

  /** The name of the first of a refused submit's commands that is refused alone, too. */
  async #refused(commands) {
    const { dispatches, copies } = this.counters;
    const { profile } = this;
    this.profile = null;
    let found = "";
    for (const command of commands) {
      this.device.pushErrorScope("validation");
      this.record(command);
      this.#endPass();
      this.#encoder.finish();
      this.drop();
      if (await this.device.popErrorScope()) found ||= command.name ?? "";
    }
    Object.assign(this.counters, { dispatches, copies });
    this.profile = profile;
    return found;
  }

  /**
   * Submits and waits where more than `most` commands are recorded, so that a page does not stand still. After `timeout`
   * seconds the device is given up: DeviceLost.
   */
  async rest(most, timeout = null) {
    if (this.#recorded.length <= most) return;
    this.submit();
    await this.within(timeout, () => this.device.queue.onSubmittedWorkDone());
    this.alive();
  }

  /** Forgets what was recorded and not submitted. */
  drop() {
    this.#recorded = [];
    this.#encoder = this.#pass = this.#pipeline = null;
  }

  /**
   * Submits what was recorded; the bytes of each range { buffer, offset, nbytes } as an ArrayBuffer of its own. Raises
   * what was refused since the run began. After `timeout` seconds the device is given up: DeviceLost.
   */
  async read(ranges, timeout = null) {
    const total = ranges.reduce((sum, r) => sum + roundUp(r.nbytes, 8), 0); // a mapping starts at a multiple of 8
    if (!total) {
      this.submit();
      await this.settle();
      this.alive();
      return ranges.map(() => new ArrayBuffer(0));
    }
    const staging = this.#takeStaging(total);
    let at = 0;
    for (const r of ranges) {
      if (!r.nbytes) continue;
      this.#encoder ??= this.device.createCommandEncoder();
      this.#endPass();
      this.#encoder.copyBufferToBuffer(r.buffer.handle, r.offset, staging.handle, at, roundUp(r.nbytes, 4));
      at += roundUp(r.nbytes, 8);
    }
    this.submit();
    try {
      await this.#map(staging, total, timeout);
      const data = this.#copyOut(staging.handle.getMappedRange(0, total), ranges);
      staging.handle.unmap();
      this.#giveStaging(staging);
      return data;
    } catch (e) {
      this.free(staging);
      throw e;
    }
  }

  /** Waits until a buffer is mapped. What a scope caught says more than the mapping that failed for it. */
  async #map(staging, total, timeout) {
    let failure = null;
    try {
      await this.within(timeout, () => staging.handle.mapAsync(GPUMapMode.READ, 0, total));
    } catch (e) {
      failure = e;
    }
    if (!(failure instanceof DeviceLost)) await this.settle();
    if (failure) throw failure;
    this.alive();
  }

  /** What `wait()` gives, once the device has come to it; the device is given up after `timeout` seconds. */
  async within(timeout, wait) {
    let timedOut = false;
    const late = () => {
      timedOut = true;
      this.giveUp(`it did not end its work within ${timeout} s and was given up`);
    };
    const timer = timeout === null ? null : setTimeout(late, 1000 * timeout);
    try {
      const found = await wait();
      if (timedOut) this.alive();
      return found;
    } catch (e) {
      throw Object.assign(await this.named(e), { timedOut });
    } finally {
      clearTimeout(timer);
    }
  }

  #copyOut(mapped, ranges) {
    let at = 0;
    this.counters.read += ranges.reduce((sum, r) => sum + r.nbytes, 0);
    return ranges.map((r) => {
      const start = at;
      at += roundUp(r.nbytes, 8);
      return mapped.slice(start, start + r.nbytes);
    });
  }

  /** The read-back buffer, kept from run to run; another one while it is mapped. */
  #takeStaging(nbytes) {
    const kept = this.#staging;
    this.#staging = null;
    if (kept?.nbytes >= nbytes) return kept;
    this.free(kept);
    const { maxBufferSize } = this.target.limits;
    const size = Math.max(4096, nbytes, Math.min(Math.ceil(nbytes * 1.5), maxBufferSize - 16));
    return this.alloc(size, "read-back", GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
  }

  #giveStaging(staging) {
    const keep = !this.#closed && !(this.#staging?.nbytes >= staging.nbytes);
    this.free(keep ? this.#staging : staging);
    if (keep) this.#staging = staging;
  }

  #endPass() {
    this.#pass?.end();
    this.#pass = this.#pipeline = null;
  }

  close() {
    this.#closed = true;
    this.drop();
    this.free(this.#staging);
    this.#staging = null;
  }
}
