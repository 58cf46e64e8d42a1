/** What goes wrong on a WebGPU device, by name: its loss, what error scopes catch, and what no scope caught. */

import { DeviceError, DeviceLost, OutOfMemory, WebrtError } from "./common.js";

const watches = new WeakMap();

/** What is known of a device, whoever uses it: why it is `lost` ("" while it is not), and errors that no scope caught. */
function watch(device) {
  if (!watches.has(device)) {
    const made = { lost: "", errors: 0, message: "" };
    watches.set(device, made);
    device.lost.then((info) => { made.lost ||= info.message || "it was destroyed"; });
    device.addEventListener("uncapturederror", ({ error }) => {
      made.errors += 1;
      made.message = error.message;
    });
  }
  return watches.get(device);
}

/** A GPUDevice, watched. `counters` has the bytes and buffers that its user holds. */
export class Checks {
  #checks = [];
  #watch;
  #seen;

  constructor(device, counters) {
    this.device = device;
    this.counters = counters;
    this.#watch = watch(device);
    this.#seen = this.#watch.errors;
    const { vendor = "", architecture = "" } = device.adapterInfo ?? {};
    this.name = `${vendor} ${architecture}`.trim() || "WebGPU";
  }

  get lost() {
    return this.#watch.lost !== "";
  }

  alive() {
    if (!this.lost) return;
    const what = `the device '${this.name}' is lost (${this.#watch.lost})`;
    throw new DeviceLost(`${what}; recover the session, or make a new one`);
  }

  /** Whether the device is gone, by now. */
  async isLost() {
    await Promise.race([this.device.lost, new Promise((done) => setTimeout(done))]);
    return this.lost;
  }

  /** Destroys the device, for whoever uses it. */
  giveUp(why) {
    this.#watch.lost ||= why;
    this.device.destroy();
  }

  /** A run begins: what went wrong on the device before is none of its errors. */
  begin() {
    this.#checks = [];
    this.#seen = this.#watch.errors;
  }

  /** What was thrown as a WebrtError; the browser's own errors become DeviceLost or DeviceError. */
  async named(e) {
    if (e instanceof WebrtError) return e;
    await this.isLost();
    try {
      this.alive();
    } catch (lost) {
      return lost;
    }
    return e instanceof DOMException ? new DeviceError(`the device '${this.name}' refused it: ${e.message}`) : e;
  }

  /**
   * Runs `make` under error scopes; `settle` raises what they catch. Scopes are a stack, so `make` must not wait.
   * `where()` may tell more exactly what was refused.
   */
  guard(what, make, where = async () => "") {
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    try {
      return make();
    } finally {
      const caught = [this.device.popErrorScope(), this.device.popErrorScope()];
      this.#checks.push(Promise.all(caught).then(async ([invalid, memory]) => {
        if (memory) return this.#noMemory(what);
        return invalid && new DeviceError(`${await where() || what}: the device '${this.name}' refused it: ${invalid.message}`);
      }, () => null));
    }
  }

  #noMemory(what) {
    const { bytes, buffers } = this.counters;
    return new OutOfMemory(`${what}: the device '${this.name}' has no memory left beside the ${bytes} bytes in ${buffers} `
      + "buffers of this session; use smaller inputs, or release other sessions");
  }

  /** Raises the first error that a scope caught since the last call, else one that none caught. */
  async settle() {
    const caught = await Promise.all(this.#checks.splice(0));
    const error = caught.find((e) => e instanceof OutOfMemory) ?? caught.find((e) => e);
    if (error) throw error;
    if (this.#watch.errors === this.#seen) return;
    this.#seen = this.#watch.errors;
    throw new DeviceError(`the device '${this.name}' failed meanwhile: ${this.#watch.message}`);
  }
}
