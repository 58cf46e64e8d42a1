"""Compile time of generated models against their number of nodes, as JSON.

    python -m benchmarks.growth                       every kind at 1 250 … 20 000 nodes
    python -m benchmarks.growth --only chain --nodes 500 1000 2000

Seconds are those of this process's CPU, level "all". `exponent` is the slope of log seconds over log nodes through all
sizes (least squares), `last` the same between the two largest: 1 is linear growth, 2 quadratic.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.fits import exponents
from webrt.compiler.compile import compile_model

SIZES = (1250, 2500, 5000, 10000, 20000)
DEPTH = 30
"""How deep branches nest; the compiler refuses more than 64."""

Nodes = list[onnx.NodeProto]


def chain(count: int) -> onnx.ModelProto:
    """Functions of one tensor, one after another, with a product of matrices every tenth node."""
    nodes, last = Nodes(), "x"
    for i in range(count):
        op = ("MatMul", "Add", "Relu", "Mul", "Sigmoid", "Transpose", "Neg", "Sub", "Tanh", "Abs")[i % 10]
        second = {"MatMul": ["w"], "Add": ["x"], "Mul": ["b"], "Sub": ["x"]}.get(op, [])
        nodes.append(helper.make_node(op, [last, *second], [f"t{i}"], f"n{i}"))
        last = f"t{i}"
    return _model(nodes, [last])


def wide(count: int) -> onnx.ModelProto:
    """Rows of four functions of the input, each with its own factor, summed in a tree."""
    nodes, ends = Nodes(), list[str]()
    for i in range(count // 6):
        last = "x"
        for k, (op, more) in enumerate((("Mul", [f"c{i}"]), ("Sigmoid", []), ("MatMul", ["w"]), ("Relu", []))):
            nodes.append(helper.make_node(op, [last, *more], [f"t{i}.{k}"]))
            last = f"t{i}.{k}"
        nodes.append(helper.make_node("Constant", [], [f"c{i}"], value_float=float(i + 1)))
        ends.append(last)
    while len(ends) > 1:
        rest = ends[len(ends) // 2 * 2 :]
        for i in range(0, len(ends) - 1, 2):
            rest.append(f"s{len(nodes)}")
            nodes.append(helper.make_node("Add", ends[i : i + 2], [rest[-1]]))
        ends = rest
    return _model(nodes, ends)


def fan(count: int) -> onnx.ModelProto:
    """One tensor that all nodes read, and one Concat of up to a thousand of their results each."""
    nodes, ends, parts = Nodes(), list[str](), list[str]()
    for i in range(count):
        nodes.append(helper.make_node("LeakyRelu", ["x"], [f"t{i}"], alpha=float(i + 1)))
        parts.append(f"t{i}")
        if len(parts) == 1000 or i == count - 1:
            ends.append(f"c{i}")
            nodes.append(helper.make_node("Concat", parts, [f"c{i}"], axis=0))
            parts = []
    return _model(nodes, ends)


def shapes(count: int) -> onnx.ModelProto:
    """Shape arithmetic: each link reads a size of the tensor before it and gives it to a Reshape."""
    nodes, last = Nodes(), "x"
    for i in range(count // 5):
        size, dim, wanted, made = f"s{i}", f"d{i}", f"r{i}", f"t{i}"
        nodes.append(helper.make_node("Shape", [last], [size]))
        nodes.append(helper.make_node("Gather", [size, "zero"], [dim]))
        nodes.append(helper.make_node("Concat", [dim, "rest"], [wanted], axis=0))
        nodes.append(helper.make_node("Relu", [last], [f"{made}.a"]))
        nodes.append(helper.make_node("Reshape", [f"{made}.a", wanted], [made]))
        last = made
    return _model(nodes, [last])


def nested(count: int) -> onnx.ModelProto:
    """Branches within branches, DEPTH deep, that the input decides; each has the same number of nodes of its own."""
    each = max(1, count // (2 * DEPTH))

    def body(depth: int, tag: str) -> onnx.GraphProto:
        nodes, last = Nodes(), "x"
        for i in range(each):
            nodes.append(helper.make_node(("Relu", "Neg", "Tanh")[i % 3], [last], [f"{tag}.{i}"]))
            last = f"{tag}.{i}"
        if depth:
            branches = {f"{b}_branch": body(depth - 1 if b == "then" else 0, f"{tag}{b[0]}") for b in ("then", "else")}
            nodes.append(helper.make_node("If", ["condition"], [f"{tag}.out"], **branches))
            nodes.append(helper.make_node("Add", [last, f"{tag}.out"], [f"{tag}.sum"]))
            last = f"{tag}.sum"
        return helper.make_graph(nodes, tag, [], [_info(last)])

    graph = body(DEPTH, "g")
    summed = helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0)
    test = helper.make_node("Greater", ["top", "half"], ["condition"])
    return _model([summed, test, *graph.node], [graph.output[0].name])


KINDS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain, "wide": wide, "fan": fan, "shapes": shapes, "nested": nested,
}  # fmt: skip


def _info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _model(nodes: Nodes, outputs: Sequence[str]) -> onnx.ModelProto:
    """A model of input x [N, 8] and a few constants; nodes are in any order."""
    constants: dict[str, np.ndarray[Any, Any]] = {
        "w": np.eye(8, dtype=np.float32), "b": np.arange(8, dtype=np.float32), "zero": np.zeros(1, np.int64),
        "rest": np.array([8], np.int64), "half": np.array(0.5, np.float32),
    }  # fmt: skip
    used = {x for n in nodes for x in n.input}
    held = [onnx.numpy_helper.from_array(a, k) for k, a in constants.items() if k in used]
    size = 8 if any(n.op_type == "Transpose" for n in nodes) else "N"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 8])
    graph = helper.make_graph(nodes, "generated", [x], [_info(o) for o in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def measure(kind: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each size, and one with the slopes."""
    seconds: list[float] = []
    for count in sizes:
        model = KINDS[kind](count)
        start = time.process_time()
        plan = compile_model(model)
        seconds.append(time.process_time() - start)
        yield {"model": kind, "nodes": count, "steps": len(plan.steps), "seconds": round(seconds[-1], 3)}
    if len(sizes) > 1:
        slope, last = exponents(sizes, seconds)
        yield {"model": kind, "exponent": round(slope, 2), "last": round(last, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS, help="this kind only")
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES, help="numbers of nodes, smallest first")
    args = parser.parse_args()
    compile_model(chain(100))
    for kind in KINDS:
        if args.only in (None, kind):
            for row in measure(kind, args.nodes):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
