"""One engine in a process of its own, for benchmarks/rivals.py: JSON lines on standard input, answers on output.

    python worker.py webrt | onnxruntime-webgpu | onnxruntime-cpu

Runs where only the engine and numpy are installed. Times are seconds of whole runs, outputs on the host.
"""

import json
import os
import sys
import time

import numpy as np


class Webrt:
    """webrt, natively."""

    def open(self, model, feeds):
        import webrt

        self.session = webrt.InferenceSession(model, providers=["WebGpuExecutionProvider", "CPUExecutionProvider"])
        self.feeds = feeds

    def run(self):
        return self.session.run(None, self.feeds)

    def facts(self):
        from dataclasses import asdict

        from webrt.runtime import peaks

        did, counters = self.session.last_run, self.session.device.counters
        return {
            "peaks": asdict(peaks.measure(self.session.device)),
            "adapter": self.session.device.target.name, "device_bytes": counters.bytes,
            "dispatches": did.dispatches, "copies": did.copies, "host_nodes": did.host_nodes,
            "bytes_up": did.up, "bytes_down": did.down,
        }  # fmt: skip


class Onnxruntime:
    """onnxruntime with one provider before the CPU's."""

    def __init__(self, provider):
        self.provider = provider

    def open(self, model, feeds):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.x64quantprecision", "1")
        providers = list(dict.fromkeys([self.provider, "CPUExecutionProvider"]))
        self.session = onnxruntime.InferenceSession(model, options, providers=providers)
        if self.provider not in self.session.get_providers():
            raise RuntimeError(f"{self.provider} does not work here")
        self.feeds = feeds

    def run(self):
        return self.session.run(None, self.feeds)

    def facts(self):
        return {}


ENGINES = {
    "webrt": Webrt,
    "onnxruntime-webgpu": lambda: Onnxruntime("WebGpuExecutionProvider"),
    "onnxruntime-cpu": lambda: Onnxruntime("CPUExecutionProvider"),
}


def answer(engine, call):
    """What a call gives."""
    if call["call"] == "open":
        with np.load(call["feeds"]) as data:
            feeds = {name: data[name] for name in data.files}
        start = time.perf_counter()
        engine.open(call["model"], feeds)
        opened = time.perf_counter()
        outputs = engine.run()
        done = time.perf_counter()
        np.savez(call["outputs"], *[np.asarray(o) for o in outputs])
        return {"session": opened - start, "first_run": done - opened}
    if call["call"] == "run":
        start = time.perf_counter()
        engine.run()
        return {"seconds": time.perf_counter() - start}
    return engine.facts()


def main():
    """Answers until standard input ends. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = ENGINES[sys.argv[1]]()
    for line in sys.stdin:
        try:
            made = answer(engine, json.loads(line))
        except Exception as e:
            made = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:300]}
        out.write(json.dumps(made) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
