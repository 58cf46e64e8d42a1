/** A session's device memory: the twin of webrt/runtime/memory.py. */

import { checkBlocks, crc32 } from "./checksum.js";
import { PlanError, TargetError, padded, roundUp } from "./common.js";
import { blocksEnd } from "./source.js";
import { TexturePool, keyOf, textureWriter } from "./textures.js";

const ARENA = 1 << 26;
const STAGE = 1 << 20;

/** Bytes that a slot has once it had to grow. */
const LEAST_GROWN = 65536;

/** A session's device memory: constants in arenas, slots that grow by half again, and the parameter block. */
export class Memory {
  #arenas = [];
  #constants = new Map();
  #textures = new Map();
  #slots;
  #params = null;
  #written = null;
  #sizes = [];
  generation = 0;

  #external = new Map();
  #owner;
  #accumulators = new Map();

  /** A sub-plan's memory has the constants of the memory `around` it. */
  constructor(plan, gpu, { bound, target }, around = null) {
    this.plan = plan;
    this.gpu = gpu;
    this.bound = bound;
    this.limits = target.limits;
    this.#slots = plan.slots.map(() => null);
    this.pool = new TexturePool(gpu, this.limits.maxTextureDimension2D, () => {
      gpu.submit(); // what uses the old texture
      this.generation += 1;
    });
    this.#owner = around === null;
    if (around) {
      this.#constants = around.#constants;
      this.#textures = around.#textures;
    }
    if (plan.params_size) {
      const size = roundUp(plan.params_size, 256);
      this.#params = gpu.alloc(size, "parameters", GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    }
  }

  /**
   * Puts constants on the device while they arrive, as far as they are not there: those in `wanted` in buffers,
   * `contents` in textures; those in `kept` stay on the host as well. Returns these, and the checksums of all. Raises PlanError where they are not those of the file, or of `sums`, an earlier load's.
   */
  async load(source, { wanted, contents, kept, sums = null }, onProgress) {
    const { constants, version } = this.plan;
    const start = source.position;
    const total = constants.reduce((end, c) => c.offset + c.nbytes, 0);
    const host = new Map();
    const found = new Uint32Array(constants.length);
    const arenas = this.#arenas.length;
    this.#pack([...wanted].filter((c) => !this.has(c)));
    const added = new Set(this.#arenas.slice(arenas));
    const textures = this.#makeTextures(contents.filter((c) => !this.texture(c)));
    for (const [index, c] of constants.entries()) {
      const summed = (part) => { found[index] = crc32(part, found[index]); };
      await source.each(start + c.offset - source.position, summed);
      const sinks = [];
      if (added.has(this.#constants.get(index)?.buffer)) sinks.push(this.#uploader(this.#constants.get(index)));
      sinks.push(...textures.filter(({ place }) => place[1] === index).map(({ sink }) => sink()));
      if (kept.has(index)) {
        host.set(index, new Uint8Array(c.nbytes));
        sinks.push(setter(host.get(index)));
      }
      await source.each(c.nbytes, (part) => {
        summed(part);
        sinks.forEach((sink) => sink(part));
        onProgress("download", source.position - start, total);
      });
      sinks.forEach((sink) => sink(null));
      const end = start + (constants[index + 1]?.offset ?? blocksEnd(constants));
      if (version > 1) await source.each(end - source.position, summed);
    }
    if (version > 1) checkBlocks(constants, found, await source.take(4 * constants.length));
    if (sums) checkBlocks(constants, found, new Uint8Array(sums.buffer));
    return { host, sums: found };
  }

  /** Slots of at least these sizes; null where a size is not known yet. */
  ensure(sizes) {
    this.#sizes = sizes;
    sizes.forEach((size, i) => {
      const old = this.#slots[i];
      if (size === null || old?.nbytes >= size || this.#external.has(i)) return;
      if (old) this.gpu.submit(); // what uses it
      const roomy = old ? Math.min(Math.max(roundUp(old.nbytes * 1.5, 16), LEAST_GROWN), this.#largest(i)) : 0;
      const wanted = Math.max(size, roomy);
      this.gpu.free(old);
      this.#slots[i] = null;
      this.generation += 1;
      this.#slots[i] = this.gpu.alloc(wanted, this.plan.slots[i].label || `slot ${i}`);
    });
  }

  /** Whether `ensure` would free nothing. */
  fits(sizes) {
    return this.#slots.every((old, i) => old === null || sizes[i] === null || this.#external.has(i)
      || old.nbytes >= sizes[i]);
  }

  /** A buffer in the place of a slot's own from now on; null for its own. */
  standIn(slot, buffer) {
    if ((this.#external.get(slot) ?? null) === buffer) return;
    if (buffer) this.#external.set(slot, buffer);
    else this.#external.delete(slot);
    this.generation += 1;
  }

  /** Whether a slot has a buffer that is not its own. */
  isLent(slot) {
    return this.#external.has(slot);
  }

  /** Whether `load` would find all of these on the device. */
  holds({ wanted, contents }) {
    return [...wanted].every((c) => this.has(c)) && contents.every((c) => this.texture(c));
  }

  /** Whether a constant is in a buffer. */
  has(constant) {
    return this.#constants.has(constant);
  }

  /**
   * The buffer of a loop's output, of at least so many bytes, and the one that it takes the place of: the caller moves
   * what is there and frees that.
   */
  accumulator(number, nbytes) {
    const old = this.#accumulators.get(number) ?? null;
    if (old?.nbytes >= nbytes) return [old, null];
    const wanted = old ? Math.max(nbytes, Math.min(2 * old.nbytes, this.limits.maxBufferSize - 16)) : nbytes;
    this.#accumulators.set(number, this.gpu.alloc(wanted, `iterations of output ${number}`));
    return [this.#accumulators.get(number), old];
  }

  /** The bytes of a place from `offset` to its end. */
  range([kind, index], offset = 0) {
    const { buffer, offset: start, nbytes } = kind === "c" ? this.#constants.get(index) : this.#slot(index);
    return { buffer, offset: start + offset, nbytes: nbytes - offset };
  }

  /** What a dispatch binds: `size` bytes, or, where that is 0, as much of the rest as one binding holds. */
  binding(place, offset, size) {
    const rest = this.range(place, offset);
    if (size > rest.nbytes || rest.nbytes <= 0) {
      throw new PlanError(`a step binds ${size} bytes of '${rest.buffer.label}', of which ${rest.nbytes} are left`);
    }
    return { ...rest, nbytes: size || Math.min(rest.nbytes, this.limits.maxStorageBufferBindingSize) };
  }

  /** A constant's texture. */
  texture(content) {
    return this.#textures.get(keyOf(content));
  }

  paramsRange(step) {
    return { buffer: this.#params, offset: step.params_offset, nbytes: padded(4 * step.params.length) };
  }

  writeParams(words) {
    const written = this.#written;
    if (!words.length || words === written || written && words.every((w, i) => w === written[i])) return;
    this.gpu.write(this.#params, 0, new Uint8Array(words.buffer));
    this.#written = words;
  }

  /** Forgets the slots: one of them may be a buffer that the device had no memory for. */
  reset() {
    this.#slots.forEach((b) => this.gpu.free(b));
    this.#slots.fill(null);
    this.#accumulators.forEach((b) => this.gpu.free(b));
    this.#accumulators.clear();
    this.#external.clear();
    this.pool.close();
    this.generation += 1;
  }

  close() {
    const owned = [...this.#arenas, ...this.#slots, this.#params, ...this.#accumulators.values()];
    owned.forEach((b) => this.gpu.free(b));
    this.#slots.fill(null);
    this.#accumulators.clear();
    this.#external.clear();
    if (this.#owner) {
      this.#textures.forEach((t) => this.gpu.freeTexture(t));
      this.#textures.clear();
    }
    this.pool.close();
  }

  /** The textures of constants' contents, each once: [{ place, sink }] where sink() makes what takes its parts. */
  #makeTextures(contents) {
    const own = new Map(contents.map((c) => [keyOf(c), c]));
    return [...own].map(([key, content]) => {
      const { name } = this.plan.constants[content.place[1]];
      const made = this.gpu.allocTexture(content.texels, content.words, `the constant '${name}'`);
      this.#textures.set(key, made);
      return { place: content.place, sink: () => textureWriter(this.gpu, made, content) };
    });
  }

  #slot(index) {
    const buffer = this.#external.get(index) ?? this.#slots[index];
    if (buffer && this.#sizes[index] !== null) return { buffer, offset: 0, nbytes: buffer.nbytes };
    throw new PlanError(`the size of slot '${this.plan.slots[index].label}' is not known where a step needs it`);
  }

  #largest(index) {
    const { maxBufferSize, maxStorageBufferBindingSize } = this.limits;
    const most = this.bound.has(index) ? Math.min(maxBufferSize, maxStorageBufferBindingSize) : maxBufferSize;
    return most - (most % 16);
  }

  /** Gives each wanted constant a range of an arena, at multiples of 256 as bindings need; large ones have one each. */
  #pack(wanted) {
    const { maxBufferSize, maxStorageBufferBindingSize } = this.limits;
    const limit = Math.min(maxBufferSize, maxStorageBufferBindingSize);
    let arena = [];
    let end = 0;
    const close = () => {
      if (!arena.length) return;
      const buffer = this.gpu.alloc(end, `constants from '${this.plan.constants[arena[0].index].name}' on`);
      this.#arenas.push(buffer);
      arena.forEach(({ index, offset, nbytes }) => this.#constants.set(index, { buffer, offset, nbytes }));
      arena = [];
      end = 0;
    };
    for (const index of [...wanted].sort((a, b) => a - b)) {
      const { name, nbytes } = this.plan.constants[index];
      if (padded(nbytes) > maxBufferSize) {
        throw new TargetError(`the constant '${name}' has ${padded(nbytes)} bytes; `
          + `the device '${this.gpu.target.name}' has maxBufferSize ${maxBufferSize}`);
      }
      if (roundUp(end, 256) + padded(nbytes) > Math.min(limit, ARENA)) close();
      arena.push({ index, offset: roundUp(end, 256), nbytes: padded(nbytes) });
      end = roundUp(end, 256) + padded(nbytes);
    }
    close();
  }

  /** Takes parts of any length and writes them in pieces of STAGE bytes; null at the end writes the rest. */
  #uploader({ buffer, offset, nbytes }) {
    const stage = new Uint8Array(Math.min(STAGE, nbytes));
    let filled = 0;
    let at = offset;
    const flush = () => {
      this.gpu.write(buffer, at, stage.subarray(0, filled));
      at += filled;
      filled = 0;
    };
    return (part) => {
      if (part === null) return filled && flush();
      for (let from = 0; from < part.length;) {
        const piece = part.subarray(from, from + stage.length - filled);
        stage.set(piece, filled);
        filled += piece.length;
        from += piece.length;
        if (filled === stage.length) flush();
      }
      return undefined;
    };
  }
}

function setter(out) {
  let at = 0;
  return (part) => {
    if (part === null) return;
    out.set(part, at);
    at += part.length;
  };
}
