// Runs node cases the whole way under Pyodide: messages { model, feeds } in base64 (an .onnx, an .npz) are answered by
// { outputs, placement } (an .npz in base64, [[op, provider], …]) or { error }.

const PYTHON = `
import base64, io, json
import numpy as np
from webrt import InferenceSession

async def run_case(model, feeds):
    with np.load(io.BytesIO(base64.b64decode(feeds))) as data:
        given = {name: data[name] for name in data.files}
    session = await InferenceSession.create(
        base64.b64decode(model), providers=["WebGpuExecutionProvider", "CPUExecutionProvider"])
    outputs = await session.arun(None, given)
    placement = [[p.op, p.provider] for p in session.get_placement()]
    session.close()
    buffer = io.BytesIO()
    np.savez(buffer, *[np.asarray(x) for x in outputs])
    return json.dumps({"outputs": base64.b64encode(buffer.getvalue()).decode(), "placement": placement})
`;

const started = (async () => {
  const site = await (await fetch("site.json")).json();
  const { loadPyodide } = await import(new URL(site.pyodide.index + "pyodide.mjs", location.href));
  const pyodide = await loadPyodide({ indexURL: new URL(site.pyodide.index, location.href).href });
  await pyodide.loadPackage(site.pyodide.packages, { messageCallback() {} });
  pyodide.runPython(PYTHON);
  return pyodide.globals.get("run_case");
})();

onmessage = async ({ data }) => {
  try {
    const run = await started;
    postMessage(JSON.parse(await run(data.model, data.feeds)));
  } catch (error) {
    postMessage({ error: String(error.message ?? error) });
  }
};
