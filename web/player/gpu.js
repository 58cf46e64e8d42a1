/** A WebGPU device: errors by name, counters, and commands that are recorded until a submit is due. */

import { DeviceError, DeviceLost, OutOfMemory, TargetError, WebrtError, padded, roundUp } from "./common.js";
import { WIDTH } from "./textures.js";

/** A GPUDevice with counters, errors by name, and commands that are recorded until a submit is due. */
export class Gpu {
  counters = {
    buffers: 0, bytes: 0, created: 0, pipelines: 0, bindGroups: 0, submits: 0, dispatches: 0, copies: 0,
    written: 0, read: 0,
  };
  profile = null; // a Profile while runs are timed
  #checks = [];
  #encoder = null;
  #pass = null;
  #pipeline = null;
  #staging = null;
  #closed = false;
  #ids = 0;
  #lost = "";

  constructor(device) {
    this.device = device;
    const { vendor = "", architecture = "" } = device.adapterInfo ?? {};
    const { features, limits } = device;
    const info = device.adapterInfo ?? {};
    const software = info.isFallbackAdapter || architecture === "swiftshader";
    this.target = {
      name: `${vendor} ${architecture}`.trim() || "WebGPU", kind: software ? "software" : "gpu", vendor, architecture,
      features, limits, subgroup_sizes: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0],
    };
    device.lost.then((info) => { this.#lost = info.message || "it was destroyed"; });
  }

  alive() {
    if (!this.#lost) return;
    throw new DeviceLost(`the device '${this.target.name}' is lost (${this.#lost}); make a new session`);
  }

  /** What was thrown as a WebrtError; the browser's own errors become DeviceLost or DeviceError. */
  async named(e) {
    if (e instanceof WebrtError) return e;
    await Promise.race([this.device.lost, new Promise((done) => setTimeout(done))]);
    try {
      this.alive();
    } catch (lost) {
      return lost;
    }
    return e instanceof DOMException ? new DeviceError(`the device '${this.target.name}' refused it: ${e.message}`) : e;
  }

  /** Runs `make` under error scopes; `settle` raises what they catch. Scopes are a stack, so `make` must not wait. */
  guard(what, make) {
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    try {
      return make();
    } finally {
      const caught = [this.device.popErrorScope(), this.device.popErrorScope()];
      this.#checks.push(Promise.all(caught).then(([invalid, memory]) => {
        const device = `the device '${this.target.name}'`;
        if (memory) return new OutOfMemory(`${what}: ${device} has no memory left; use smaller inputs`);
        return invalid && new DeviceError(`${what}: ${device} refused it: ${invalid.message}`);
      }, () => null));
    }
  }

  /** Raises the first error that a scope caught since the last call. */
  async settle() {
    const caught = await Promise.all(this.#checks.splice(0));
    const error = caught.find((e) => e instanceof OutOfMemory) ?? caught.find((e) => e);
    if (error) throw error;
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
    const make = () => this.device.createTexture({
      label, size: [width, rows], format: words ? "rgba32uint" : "rgba32float",
      usage: GPUTextureUsage.TEXTURE_BINDING | GPUTextureUsage.STORAGE_BINDING | GPUTextureUsage.COPY_DST,
    });
    const handle = this.guard(`${label}, ${nbytes} bytes`, make);
    return { handle, view: handle.createView(), rows, nbytes, id: this.#count(nbytes) };
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
    if (whole) put(row, bytes, WIDTH, whole);
    if (rest.length) {
      const padded = new Uint8Array(roundUp(rest.length, 16));
      padded.set(rest);
      put(row + whole, padded, padded.length / 16, 1);
    }
    this.counters.written += bytes.length;
  }

  /** Writes bytes, then zeros up to a multiple of 16. What was recorded runs before. */
  write(buffer, offset, bytes) {
    this.submit();
    const { queue } = this.device;
    const main = bytes.length - (bytes.length % 16);
    if (main) queue.writeBuffer(buffer.handle, offset, bytes, 0, main); // sizes and offsets are multiples of 4
    if (main < bytes.length) {
      const tail = new Uint8Array(16);
      tail.set(bytes.subarray(main));
      queue.writeBuffer(buffer.handle, offset + main, tail);
    }
    this.counters.written += bytes.length;
  }

  /** A bind group over ranges { buffer, offset, nbytes } and textures. */
  bind(pipeline, resources) {
    const entries = resources.map((r, i) => ({
      binding: i + pipeline.first,
      resource: r.view ?? { buffer: r.buffer.handle, offset: r.offset, size: r.nbytes },
    }));
    this.counters.bindGroups += 1;
    return this.guard("a bind group", () => this.device.createBindGroup({ layout: pipeline.layout, entries }));
  }

  record(command) {
    this.#encoder ??= this.device.createCommandEncoder();
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
      this.#fill(command);
      return;
    }
    const { source, sourceOffset, target, targetOffset, nbytes } = command;
    this.#encoder.copyBufferToBuffer(source.handle, sourceOffset, target.handle, targetOffset, nbytes);
  }

  /** Copies `texels` times 16 bytes of a buffer into a texture: whole rows, then the row that is not full. */
  #fill({ source, sourceOffset, texture, texels }) {
    const whole = Math.floor(texels / WIDTH);
    const parts = [[0, WIDTH, whole], [whole, texels % WIDTH, 1]].filter(([, width, rows]) => width && rows);
    for (const [row, width, rows] of parts) {
      const from = { buffer: source.handle, offset: sourceOffset + 16 * WIDTH * row, bytesPerRow: 16 * WIDTH };
      this.#encoder.copyBufferToTexture(from, { texture: texture.handle, origin: [0, row] }, [width, rows]);
    }
  }

  submit() {
    if (!this.#encoder) return;
    this.#endPass();
    this.profile?.resolve(this.#encoder);
    this.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = null;
    this.counters.submits += 1;
  }

  /** Forgets what was recorded and not submitted. */
  drop() {
    this.#encoder = this.#pass = this.#pipeline = null;
  }

  /** Submits what was recorded; the bytes of each range { buffer, offset, nbytes } as an ArrayBuffer of its own. */
  async read(ranges) {
    const total = ranges.reduce((sum, r) => sum + roundUp(r.nbytes, 8), 0); // a mapping starts at a multiple of 8
    if (!total) {
      this.submit();
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
      await staging.handle.mapAsync(GPUMapMode.READ, 0, total);
      return this.#copyOut(staging.handle.getMappedRange(0, total), ranges);
    } finally {
      staging.handle?.unmap();
      this.#giveStaging(staging);
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
