/**
 * Compiles one model under Pyodide, in the worker that compile-frame.html makes of this text. All comes through one port:
 *
 *   sandbox.js → here   the site's files of Pyodide, by name, with the port; then { model, request, externalData }
 *   here → sandbox.js   { kind: "ready" } · { kind: "progress", stage, done, total } · { kind: "done", plan, onnx, told }
 *                       or { kind: "error", told }
 *
 * Messages are bounded and checked on the other side: what runs here is not trusted once it has read the model.
 */

const TYPES = { wasm: "application/wasm", json: "application/json" };
const ADDRESS = "http://pyodide.invalid/";
const LOCK_FILE = "pyodide-lock.json";

onmessage = async ({ data: { port, files } }) => {
  const send = (message, moved = []) => port.postMessage(message, moved);
  try {
    const compile = await start(files);
    port.onmessage = ({ data }) => {
      port.onmessage = null;
      const report = (stage, done, total) => send({ kind: "progress", stage, done, total });
      const [plan, onnx, told] = compile(data, report);
      send(plan.length ? { kind: "done", plan, onnx, told } : { kind: "error", told }, [plan.buffer, onnx.buffer]);
    };
    send({ kind: "ready" });
  } catch (error) {
    send({ kind: "error", told: JSON.stringify({ kind: "other", what: String(error.message ?? error) }) });
  }
};

/** Pyodide from bytes: whatever it asks the network for is taken from `files` by the last part of its name. */
async function start(files) {
  const nameOf = (url) => decodeURIComponent(String(url.url ?? url)).split("/").at(-1);
  self.fetch = async (url) => {
    const bytes = files[nameOf(url)];
    const type = TYPES[nameOf(url).split(".").at(-1)] ?? "application/octet-stream";
    return bytes ? new Response(bytes, { headers: { "content-type": type } }) : new Response(null, { status: 404 });
  };
  const load = (name) => import(URL.createObjectURL(new Blob([files[name]], { type: "text/javascript" })));
  const { loadPyodide } = await load("pyodide.mjs");
  const { default: createPyodideModule } = await load("pyodide.asm.mjs");
  const lockFileContents = new TextDecoder().decode(files[LOCK_FILE]);
  const [indexURL, packageBaseUrl] = [ADDRESS, ADDRESS];
  const pyodide = await loadPyodide({ indexURL, packageBaseUrl, createPyodideModule, lockFileContents });
  await pyodide.loadPackage("webrt-compiler", { messageCallback() {} });
  for (const name of Object.keys(files)) delete files[name];
  const { compile_bytes: compile } = pyodide.pyimport("webrt.compiler.page");
  return ({ model, request, externalData }, report) => {
    const bytes = pyodide.pyimport("builtins").bytes;
    const external = pyodide.toPy(new Map(Object.entries(externalData).map(([k, v]) => [k, bytes(v)])));
    return compile(bytes(model), request, external, report).toJs();
  };
}
