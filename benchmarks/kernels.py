"""Rates of single operators beside the adapter's peaks, measured in turns in one run; prints JSON.

    python -m benchmarks.kernels                        the adapter that webrt would take
    python -m benchmarks.kernels --adapter swiftshader  the first whose name contains this
    python -m benchmarks.kernels --only gemm_512

`wall` is of the best run, from submitting to the result; `cpu` takes the process's CPU time in its place, times the
machine's cores: on a software adapter that is what idle cores would give. `of_peak` compares `cpu` (on a GPU `wall`)
with the peak's. Inputs and outputs stay on the device; a constant is where the plan puts it. `error` is against numpy,
relative to the largest output.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from webrt.compiler.compile import CompileOptions, compile_model
from webrt.plan import Kernel
from webrt.runtime import peaks
from webrt.runtime.device import Launch, Layout, Range
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session
from webrt.runtime.tensor import Tensor

Array = np.ndarray[Any, Any]
CORES = os.cpu_count() or 1
CHAINS, FMA_STEPS, FMA_GROUPS = 8, 1024, 16
FMA_FLOP = CHAINS * 2 * FMA_STEPS * 8 * FMA_GROUPS * 64
FMA = """
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  let x = vec4<f32>(f32(id.x) * 1e-9);
  {start}
  for (var i = 0u; i < 1024u; i++) {{ {step} }}
  out[id.x] = {end};
}}
"""
COPY = """
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ let i = id.x * {fours}u; {body} }}
"""
COPIED = 4 << 20
COPY_FOURS = (1, 4)
"""vec4s that an invocation of a copy kernel copies."""


@dataclass(frozen=True)
class Case:
    """A graph in ONNX's text form, `flop` of a run or `moved` bytes, and what it should give where numpy has it. Inputs
    from `constants` on are initializers."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    flop: int = 0
    moved: int = 0
    expected: Callable[..., Array] | None = None
    constants: int | None = None


@dataclass
class Timed:
    """The best of all runs so far, in seconds."""

    wall: float = float("inf")
    cpu: float = float("inf")

    def run(self, work: Callable[[], Any]) -> None:
        """One more run."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.wall = min(self.wall, time.perf_counter() - wall)
        self.cpu = min(self.cpu, time.process_time() - cpu)


@dataclass
class Prepared:
    """A case on a device."""

    case: Case
    session: Session
    feeds: dict[str, Tensor]
    compiled: float
    error: float | None
    timed: Timed = field(default_factory=Timed)

    def run(self) -> None:
        """Runs and waits."""
        (out,) = self.session.run(None, self.feeds, "device")
        out.device.read([Range(out.buffer, 0, 4)])


def _graph(inputs: str, output: str, body: str) -> str:
    return f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({output} y) {{ {body} }}'


def gemm(m: int, k: int, n: int, constants: int | None = None) -> Case:
    """The product of two matrices that are fed; with `constants` 1 the second one is constant."""
    text = _graph(f"float[{m},{k}] a, float[{k},{n}] b", f"float[{m},{n}]", "y = MatMul(a, b)")
    return Case(text, ((m, k), (k, n)), flop=2 * m * k * n, expected=np.matmul, constants=constants)


def conv(channels: int, outputs: int, size: int, kernel: int, stride: int, group: int = 1) -> Case:
    """A convolution of one square image that is channels-last, as within a network; the weights are constant."""
    pad, out = kernel // 2, -(-size // stride)
    node = f"Conv<pads=[{pad},{pad},{pad},{pad}], strides=[{stride},{stride}], group={group}>(t, w)"
    body = f"t = Transpose<perm=[0,3,1,2]>(x) c = {node} y = Transpose<perm=[0,2,3,1]>(c)"
    shapes = ((1, size, size, channels), (outputs, channels // group, kernel, kernel))
    x, w, y = (f"float[{','.join(map(str, s))}]" for s in (*shapes, (1, out, out, outputs)))
    flop = 2 * outputs * out * out * channels // group * kernel * kernel
    moved = 4 * (channels * size * size + outputs * out * out)
    return Case(_graph(f"{x} x, {w} w", y, body), shapes, flop=flop, moved=moved, constants=1)


def attention(heads: int, rows: int, keys: int, head: int) -> Case:
    """softmax(q · kᵀ) · v of inputs that are fed."""
    shapes = tuple((1, heads, n, head) for n in (rows, keys, keys))
    q, k, v = (f"float[{','.join(map(str, s))}]" for s in shapes)
    body = "t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, t) w = Softmax<axis=-1>(s) y = MatMul(w, v)"
    flop = 4 * heads * rows * keys * head
    return Case(_graph(f"{q} q, {k} k, {v} v", q, body), shapes, flop=flop, expected=_attention)


def _attention(q: Array, k: Array, v: Array) -> Array:
    logits = q @ k.swapaxes(-1, -2)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


CASES: dict[str, Case] = {
    "gemm_512": gemm(512, 512, 512),
    "gemm_1024": gemm(1024, 1024, 1024),
    "gemm_1024x256x1024": gemm(1024, 256, 1024),
    "gemm_33x256x256": gemm(33, 256, 256),
    "gemv_1024": gemm(1, 1024, 1024),
    "gemv_1024_weights": gemm(1, 1024, 1024, 1),
    "gemm_1024_weights": gemm(1024, 1024, 1024, 1),
    "conv_3x3_64_56": conv(64, 64, 56, 3, 1),
    "conv_1x1_96_576_14": conv(96, 576, 14, 1, 1),
    "conv_7x7_3_64_224": conv(3, 64, 224, 7, 2),
    "depthwise_3x3_96_112": conv(96, 96, 112, 3, 1, group=96),
    "attention_6x1500x32": attention(6, 1500, 1500, 32),
    "attention_12x197x64": attention(12, 197, 197, 64),
    "attention_12x1x2048x64": attention(12, 1, 2048, 64),
}


def model_of(case: Case) -> tuple[onnx.ModelProto, list[Array]]:
    """A case's model, and random values of all it takes, initializers last."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in case.shapes]
    model = parser.parse_model(case.text)
    constants = range(len(arrays))[len(arrays) if case.constants is None else case.constants :]
    infos = [model.graph.input[i].name for i in constants]
    model.graph.initializer.extend(numpy_helper.from_array(arrays[i], n) for i, n in zip(constants, infos))
    del model.graph.input[len(arrays) - len(constants) :]
    return model, arrays


def prepare(case: Case, device: NativeDevice) -> Prepared:
    """Compiles a case, runs it once and compares."""
    model, arrays = model_of(case)
    plan = compile_model(model, CompileOptions(target=device.target))
    start = time.perf_counter()
    session = Session(plan, device)
    compiled = time.perf_counter() - start
    names = [v.name for v in plan.inputs]
    (y,) = session.run(None, dict(zip(names, arrays)))
    error = None
    if case.expected is not None:
        want = case.expected(*arrays)
        error = float(np.abs(y - want).max() / np.abs(want).max())
    feeds = {name: Tensor.from_numpy(a, device) for name, a in zip(names, arrays)}
    return Prepared(case, session, feeds, compiled, error)


def measure(device: NativeDevice, names: Sequence[str], rounds: int) -> dict[str, Any]:
    """The peaks and the rates of all cases: in each round every one once."""
    prepared = {name: prepare(CASES[name], device) for name in names}
    fma, dependent = Timed(), _dependent_fma(device)
    copies = {f"copy_{fours}_vec4_gbs": (Timed(), _copy(device, fours)) for fours in COPY_FOURS}
    for _ in range(rounds):
        fma.run(dependent)
        for timed, copy in copies.values():
            timed.run(copy)
        for p in prepared.values():
            p.timed.run(p.run)
            fma.run(dependent)
    on_cpu = device.target.kind == "software"
    peak = {"fma_gflops_wall": FMA_FLOP / fma.wall / 1e9, "copy_gbs_wall": peaks.measure(device).gbs}
    if on_cpu:
        peak["fma_gflops_cpu"] = FMA_FLOP * CORES / fma.cpu / 1e9
        peak |= {f"{name}_cpu": 2 * COPIED * CORES / timed.cpu / 1e9 for name, (timed, _) in copies.items()}
    most = peak["fma_gflops_cpu" if on_cpu else "fma_gflops_wall"]
    rates = {name: _rate(p, on_cpu, most) for name, p in prepared.items()}
    for p in prepared.values():
        p.session.close()
    return {"adapter": device.target.name, "cores": CORES, "peak": peak, "cases": rates}


def _dependent_fma(device: NativeDevice) -> Callable[[], None]:
    """Runs CHAINS chains of FMAs, each of which needs the one before."""
    names = [f"a{i}" for i in range(CHAINS)]
    text = FMA.format(
        start=" ".join(f"var {a} = x + {i}.0;" for i, a in enumerate(names)),
        step=" ".join(f"{a} = fma({a}, x, x);" for a in names * 2), end=" + ".join(names),
    )  # fmt: skip
    (pipeline,) = device.pipelines([(Kernel("fma", text, "benchmark"), Layout(False, ("w",)))])
    out = Range(device.alloc(16 * FMA_GROUPS * 64, "fma"), 0, 16 * FMA_GROUPS * 64)
    launch = Launch(pipeline, device.bind(pipeline, [out]), FMA_GROUPS, 1, 1)

    def run() -> None:
        device.submit([launch], [out._replace(nbytes=4)])

    return run


def _copy(device: NativeDevice, fours: int) -> Callable[[], None]:
    """Copies COPIED bytes, so many vec4s an invocation."""
    text = COPY.format(fours=fours, body=" ".join(f"out[i + {k}u] = x[i + {k}u];" for k in range(fours)))
    (pipeline,) = device.pipelines([(Kernel("copy", text, f"copy_{fours}"), Layout(False, ("r", "w")))])
    ranges = [Range(device.alloc(COPIED, "copy"), 0, COPIED) for _ in range(2)]
    launch = Launch(pipeline, device.bind(pipeline, ranges), COPIED // 16 // 64 // fours, 1, 1)

    def run() -> None:
        device.submit([launch], [ranges[1]._replace(nbytes=4)])

    return run


def _rate(p: Prepared, on_cpu: bool, peak: float) -> dict[str, Any]:
    wall, cpu = p.case.flop / p.timed.wall / 1e9, p.case.flop * CORES / p.timed.cpu / 1e9
    rate = {
        "wall_ms": p.timed.wall * 1e3, "gflops_wall": wall, "first_session_s": p.compiled, "error": p.error,
        "of_peak": (cpu if on_cpu else wall) / peak,
    }  # fmt: skip
    if on_cpu:
        rate["gflops_cpu"] = cpu
    if p.case.moved:
        rate["gbs_wall"] = p.case.moved / p.timed.wall / 1e9
        if on_cpu:
            rate["gbs_cpu"] = p.case.moved * CORES / p.timed.cpu / 1e9
    return rate


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--adapter", help="a part of the adapter's name")
    options.add_argument("--only", nargs="+", choices=sorted(CASES), help="these cases alone")
    options.add_argument("--rounds", type=int, default=10)
    args = options.parse_args()
    device = NativeDevice(adapter=args.adapter)
    print(json.dumps(measure(device, args.only or list(CASES), args.rounds), indent=1))
    device.close()


if __name__ == "__main__":
    main()
