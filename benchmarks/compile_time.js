/** A worker for benchmarks/compile_time.py: loads Pyodide, says so, then compiles the model as often as it is asked. */

import { startPython } from "./python.js";

const { pyodide: { index, packages } } = await (await fetch("site.json")).json();
const { pyodide } = await startPython({ index, packages });
const model = new Uint8Array(await (await fetch("model.onnx")).arrayBuffer());
pyodide.globals.set("given", model);
pyodide.runPython(`
import time, webrt
model = given.to_bytes()
def once():
  begin = time.perf_counter()
  plan = webrt.compile_model(model)
  return time.perf_counter() - begin, len(plan.steps)`);
const once = pyodide.globals.get("once");
onmessage = () => postMessage(once().toJs());
postMessage("ready");
