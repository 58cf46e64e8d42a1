/**
 * webrt for plain pages, under the names that users of onnxruntime-web know:
 *
 *   import { InferenceSession, Tensor } from "./webrt.js";
 *   const session = await InferenceSession.create("model.webrt");
 *   const { y } = await session.run({ x: new Tensor("float32", new Float32Array(6), [2, 3]) });
 *   console.log(y.dims, y.data);
 *
 * It runs plans (`webrt compile model.onnx` makes them); everything of player.js is exported too. Types: webrt.d.ts.
 */

import { DTYPES, GpuTensor, InputError, loadPlan } from "./player.js";
import { product } from "./player/common.js";

export * from "./player.js";

/** The plan of an ONNX model that nobody has to trust: see sandbox.js, which is loaded for that, as is Pyodide. */
export async function compileInSandbox(model, options) {
  return (await import("./sandbox.js")).compileInSandbox(model, options);
}

/** A tensor: element `type`, `data` (a typed array, or a list; undefined on the GPU), `dims`. */
export class Tensor {
  #gpu = null;

  /** `dims` may be left out for one dimension. Raises InputError where they are not the data's. */
  constructor(type, data, dims = [data.length]) {
    if (!DTYPES.get(type)?.array) throw new InputError(`there is no tensor type '${type}'`);
    if (data instanceof GpuTensor) {
      this.#gpu = data;
    } else if (product(dims) !== data.length) {
      throw new InputError(`[${dims.join(", ")}] is not the shape of ${data.length} elements`);
    }
    this.type = type;
    this.dims = dims;
    this.data = this.#gpu ? undefined : data;
  }

  get size() {
    return product(this.dims);
  }

  /** "cpu" or "gpu-buffer". */
  get location() {
    return this.#gpu ? "gpu-buffer" : "cpu";
  }

  /** The GPUBuffer of a tensor on the GPU. */
  get gpuBuffer() {
    return this.#gpu?.buffer;
  }

  /** The elements; read back where the tensor is on the GPU. */
  async getData() {
    return this.#gpu ? this.#gpu.read() : this.data;
  }

  /** Frees a tensor on the GPU. */
  dispose() {
    this.#gpu?.dispose();
  }

  /** What player.js takes. */
  get feed() {
    return this.#gpu ?? { dtype: this.type, dims: this.dims, data: this.data };
  }
}

export class InferenceSession {
  #session;
  #location;

  constructor(session, location) {
    this.#session = session;
    this.#location = location;
  }

  /**
   * A session of a .webrt file: its URL, bytes, a Blob, a Response or a stream. Options: those of `loadPlan`, and
   * `preferredOutputLocation`, "cpu" (default) or "gpu-buffer", for all or by name; `logSeverityLevel` (2): from 3 on no
   * warning is logged.
   */
  static async create(source, { preferredOutputLocation = "cpu", logSeverityLevel = 2, ...others } = {}) {
    const options = logSeverityLevel > 2 ? { warn: () => {}, ...others } : others;
    return new InferenceSession(await loadPlan(source, options), preferredOutputLocation);
  }

  get inputNames() {
    return this.#session.inputs.map((i) => i.name);
  }

  get outputNames() {
    return this.#session.outputs.map((o) => o.name);
  }

  /** [{ name, type, shape }]: numbers and the names of free sizes. */
  get inputMetadata() {
    return this.#session.inputs.map(({ name, dtype, shape }) => ({ name, type: dtype, shape }));
  }

  get outputMetadata() {
    return this.#session.outputs.map(({ name, dtype, shape }) => ({ name, type: dtype, shape }));
  }

  /**
   * Runs once. `feeds`: { name: Tensor }; `fetches`: names of the wanted outputs; options: `signal` (an AbortSignal) and
   * `timeout` (seconds), as for `Session.run`. Returns { name: Tensor }.
   */
  async run(feeds, fetches, { signal, timeout } = {}) {
    const given = Object.entries(feeds ?? {}).map(([name, t]) => [name, t instanceof Tensor ? t.feed : t]);
    const where = this.#location;
    const plain = (at) => (at === "gpu-buffer" ? "gpu" : at);
    const location = typeof where === "string" ? plain(where)
      : Object.fromEntries(Object.entries(where).map(([name, at]) => [name, plain(at)]));
    const made = await this.#session.run(Object.fromEntries(given), {
      outputs: fetches, location, signal, timeout,
    });
    return Object.fromEntries(Object.entries(made).map(([name, value]) => [name, tensorOf(value)]));
  }

  /** Times runs step by step from now on. */
  startProfiling() {
    this.#session.startProfiling();
  }

  /** The runs that were timed, as a Chrome trace: an object for JSON, or null where none was. */
  endProfiling() {
    return this.#session.endProfiling();
  }

  /** After a DeviceLost: as `Session.recover`. */
  async recover(options) {
    await this.#session.recover(options);
  }

  /** Frees the session's device memory. */
  async release() {
    this.#session.release();
  }
}

function tensorOf(value) {
  return new Tensor(value.dtype, value instanceof GpuTensor ? value : value.data, [...value.dims]);
}
