"""Layers between QuantizeLinear and DequantizeLinear beside the same as QLinearConv and QLinearMatMul, as JSON lines.

    python -m benchmarks.quantized [--layers 3] [--repeat 5]

The former compute in f32, with weights that are folded and rounding within the kernel; the latter in exact integers.
`qdq` and `qlinear` are milliseconds of this process's CPU, the least of the runs; `ratio` is the median over the runs,
in turn, of qlinear by qdq (above 1: f32 is faster). `differ` is the part of the results that are not equal, `most` by
how many quanta: a sum that lies halfway between two is rounded either way, and later layers see it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import seconds_of
from webrt.compiler.compile import compile_model
from webrt.host import CpuProvider
from webrt.runtime.native import NativeDevice
from webrt.runtime.session import Session

LAYERS: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {
    "conv_1x1": ([1, 64, 56, 56], [64, 64, 1, 1], {}),
    "conv_3x3": ([1, 64, 56, 56], [64, 64, 3, 3], {"pads": [1, 1, 1, 1]}),
    "depthwise_3x3": ([1, 96, 56, 56], [96, 1, 3, 3], {"pads": [1, 1, 1, 1], "group": 96}),
    "matmul": ([512, 512], [512, 512], {}),
}
"""The input's shape, the weights' and the attributes of a layer."""
SCALES: dict[str, Any] = {
    "s": np.float32(0.0531), "z": np.uint8(128), "ws": np.float32(0.0093), "wz": np.int8(0),
}  # fmt: skip

Nodes = list[onnx.NodeProto]


def model(name: str, layers: int, *, integers: bool) -> onnx.ModelProto:
    """So many layers of a kind, one after another, from uint8 to uint8."""
    shape, weights, _ = LAYERS[name]
    rng = np.random.default_rng(0)
    constants = dict(SCALES)
    nodes, last = Nodes(), "x"
    for i in range(layers):
        constants[f"w{i}"] = rng.integers(-40, 40, weights).astype(np.int8)
        nodes += _integer_layer(name, last, i) if integers else _float_layer(name, last, i)
        last = f"q{i}"
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.UINT8, shape)] for n in ("x", last))
    stored = [numpy_helper.from_array(np.asarray(a), k) for k, a in constants.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _integer_layer(name: str, x: str, i: int) -> Nodes:
    op = "QLinearMatMul" if name == "matmul" else "QLinearConv"
    return [helper.make_node(op, [x, "s", "z", f"w{i}", "ws", "wz", "s", "z"], [f"q{i}"], **LAYERS[name][2])]


def _float_layer(name: str, x: str, i: int) -> Nodes:
    op = "MatMul" if name == "matmul" else "Conv"
    return [
        helper.make_node("DequantizeLinear", [x, "s", "z"], [f"d{i}"]),
        helper.make_node("DequantizeLinear", [f"w{i}", "ws", "wz"], [f"v{i}"]),
        helper.make_node(op, [f"d{i}", f"v{i}"], [f"y{i}"], **LAYERS[name][2]),
        helper.make_node("QuantizeLinear", [f"y{i}", "s", "z"], [f"q{i}"]),
    ]


def measure(device: NativeDevice, name: str, layers: int, repeat: int) -> dict[str, Any]:
    """One kind's row."""
    x = np.random.default_rng(1).integers(118, 138, LAYERS[name][0]).astype(np.uint8)
    plans = [compile_model(model(name, layers, integers=integers)) for integers in (False, True)]
    with Session(plans[0], device, CpuProvider()) as floats, Session(plans[1], device, CpuProvider()) as exact:
        first = [np.asarray(s.run(None, {"x": x})[0]).astype(int) for s in (floats, exact)]
        runs = [partial(session.run, None, {"x": x}) for session in (floats, exact)]
        pairs = [[seconds_of(run) for run in runs] for _ in range(repeat)]
    off = np.abs(first[0] - first[1])
    qdq, qlinear = (min(times) for times in zip(*pairs))
    return {
        "layer": name, "layers": layers, "qdq": round(1e3 * qdq, 2), "qlinear": round(1e3 * qlinear, 2),
        "ratio": round(statistics.median(b / a for a, b in pairs), 2),
        "differ": round(float((off > 0).mean()), 6), "most": int(off.max()),
    }  # fmt: skip


def rows(layers: int, repeat: int) -> Iterator[dict[str, Any]]:
    device = NativeDevice()
    for name in LAYERS:
        yield measure(device, name, layers, repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    for row in rows(args.layers, args.repeat):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
