/** One engine in a page, for benchmarks/pages.py: `bench.open(engine)`, `run()`, `facts()`. Times are in seconds. */

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array, uint8: Uint8Array,
  int8: Int8Array, uint16: Uint16Array, int16: Int16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array,
};

/** A file's address; models have addresses of their own, so that the browser's cache does not take one for another. */
const at = (file) => `work/${file}?${new URLSearchParams(location.search).get("model") ?? ""}`;

async function feeds() {
  const listed = await (await fetch(at("feeds.json"))).json();
  return Promise.all(Object.entries(listed).map(async ([name, { dtype, dims, file }]) => (
    { name, dtype, dims, buffer: await (await fetch(at(file))).arrayBuffer() })));
}

// Each takes a promise of the feeds: what needs none of them does not wait.
const engines = {
  async player(given) {
    const { loadPlan } = await import("./player.js");
    const array = (f) => (f.dtype === "float16" ? Uint16Array : ARRAYS[f.dtype]);
    const inputs = given.then((all) => (
      Object.fromEntries(all.map((f) => [f.name, { data: new (array(f))(f.buffer), dims: f.dims }]))));
    let session;
    let before;
    return {
      open: async () => { session = await loadPlan(at("model.webrt")); },
      run: async () => {
        before = session.counters;
        return Object.values(await session.run(await inputs));
      },
      facts: () => {
        const now = session.counters;
        const did = (key) => now[key] - before[key];
        return {
          adapter: session.gpu.target.name, device_bytes: now.bytes, dispatches: did("dispatches"),
          copies: did("copies"), bytes_up: did("written"), bytes_down: did("read"),
        };
      },
    };
  },

  async pyodide(given) {
    const { pyodide: { index, packages } } = await (await fetch("site.json")).json();
    const model = fetch(at("model.onnx")).then((r) => r.arrayBuffer());
    return python(given, await start({ index, packages }), new Uint8Array(await model));
  },
  async plan(given) {
    const started = await start({ packages: ["webrt", "numpy"], plan: at("model.webrt") });
    return python(given, started, started.plan);
  },
  webgpu: (given) => onnxruntime("ort.webgpu.min.mjs", "webgpu", given),
  wasm: (given) => onnxruntime("ort.wasm.min.mjs", "wasm", given),
};

const start = async (options) => (await import("./python.js")).startPython(options);

async function python(given, { pyodide: py }, model) {
  reach("python");
  globalThis.given = (await given).map((f) => ({ ...f, bytes: new Uint8Array(f.buffer) }));
  py.runPython(`
import numpy as np, webrt
from js import given
feeds = {f.name: np.frombuffer(f.bytes.to_bytes(), f.dtype).reshape(f.dims.to_py()) for f in given}
async def make(model):
  global session
  session = await webrt.InferenceSession.create(model.to_bytes())
async def once():
  return await session.arun(None, feeds)
async def packed():
  return [[str(a.dtype), list(a.shape), np.ascontiguousarray(a).tobytes()] for a in await once()]
def facts():
  did = session.last_run
  return [did.dispatches, did.copies, did.host_nodes, did.up, did.down]`);
  let first = true;
  return {
    open: () => py.globals.get("make")(model),
    run: async () => {
      const made = await py.globals.get(first ? "packed" : "once")();
      const plain = first ? made.toJs().map(([dtype, dims, data]) => ({ dtype, dims, data })) : [];
      first = false;
      made.destroy();
      return plain;
    },
    facts: () => {
      const [dispatches, copies, host_nodes, bytes_up, bytes_down] = py.globals.get("facts")().toJs();
      return { dispatches, copies, host_nodes, bytes_up, bytes_down };
    },
  };
}

async function onnxruntime(module, provider, given) {
  const ort = await import(`./ort/${module}`);
  ort.env.wasm.wasmPaths = new URL("ort/", location.href).href;
  ort.env.wasm.numThreads = 2;
  ort.env.logLevel = "error";
  const inputs = given.then((all) => Object.fromEntries(
    all.map((f) => [f.name, new ort.Tensor(f.dtype, new ARRAYS[f.dtype](f.buffer), f.dims)])));
  let session;
  return {
    open: async () => {
      session = await ort.InferenceSession.create(at("model.onnx"), { executionProviders: [provider] });
    },
    run: async () => {
      const made = await session.run(await inputs);
      return session.outputNames.map((n) => ({ dtype: made[n].type, dims: made[n].dims, data: made[n].data }));
    },
    facts: () => ({ threads: ort.env.wasm.numThreads }),
  };
}

const seconds = async (work) => {
  const start = performance.now();
  const made = await work();
  return [(performance.now() - start) / 1000, made];
};

function packed({ dtype, dims, data }) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return { dtype, dims: Array.from(dims, Number), base64: btoa(text) };
}

let engine;
const reached = {}; // milliseconds from navigation, by stage
const reach = (stage) => { reached[stage] = performance.now(); };

globalThis.bench = {
  /** Loads a model and runs it once: { facts, outputs }. */
  async open(name) {
    engine = await engines[name](feeds());
    reach("engine");
    const [session] = await seconds(() => engine.open());
    reach("session");
    const [first, outputs] = await seconds(() => engine.run());
    reach("answer");
    return { facts: { session, first_run: first }, outputs: outputs.map(packed) };
  },
  async run() {
    return (await seconds(() => engine.run()))[0];
  },
  facts: () => engine.facts(),
};

// page.html?first=ENGINE: milliseconds from navigation to each stage up to the first answer.
const wanted = new URLSearchParams(location.search).get("first");
if (wanted) {
  try {
    await globalThis.bench.open(wanted);
    globalThis.first = reached;
  } catch (e) {
    globalThis.first = { error: `${e.name}: ${e.message}` };
  }
}
