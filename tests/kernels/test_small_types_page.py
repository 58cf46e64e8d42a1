"""Small types with a stand-in for ml_dtypes, as in a page: inside a model they run, elsewhere they are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from webrt.cli import ml_dtypes_stand_in

STAND_IN = """
import numpy as np, ml_dtypes, onnx
from onnx import TensorProto as P, helper
from tests.kernels.harness import run_native
from webrt.errors import UnsupportedType
from webrt.host import run_model

assert ml_dtypes.__version__.endswith("+webrt")

def model(nodes, inputs, output, *weights):
    infos = [helper.make_tensor_value_info(n, c, [4]) for n, c in inputs]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", output, [4])], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)

def refused(call, *args):
    try:
        call(*args)
    except UnsupportedType as e:
        assert "ml_dtypes" in str(e), e
    else:
        raise AssertionError("not refused")

x, feeds = ("x", P.FLOAT), {"x": np.zeros(4, np.float32)}
weight = P(name="w", data_type=P.INT4, dims=[4], raw_data=bytes([0x21, 0xF8]))
zero = P(name="z", data_type=P.INT4, dims=[], raw_data=bytes([0x0F]))
scale = helper.make_tensor("s", P.FLOAT, [], [0.5])
nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), helper.make_node("Add", ["d", "x"], ["y"])]
inside = model(nodes, [x], P.FLOAT, weight, zero, scale)
(y,), plan = run_native(inside, feeds)
assert y.tolist() == [1.0, 1.5, -3.5, 0.0] and not plan.host_steps, y
refused(run_model, inside, feeds)
for code in (P.INT4, P.FLOAT8E5M2):
    refused(run_native, model([helper.make_node("Cast", ["x"], ["y"], to=code)], [x], code), feeds)
    back = model([helper.make_node("Cast", ["q"], ["y"], to=1)], [("q", code)], P.FLOAT)
    for feed in (np.zeros(4, np.uint8), np.zeros(4, np.uint8).view(ml_dtypes.int4), [1, 2, 3, 4]):
        refused(run_native, back, {"q": feed})
"""


def test_with_a_stand_in_for_ml_dtypes(tmp_path: Path) -> None:
    source = Path(ml_dtypes_stand_in.__file__).read_text(encoding="utf-8")
    (tmp_path / "ml_dtypes.py").write_text(source, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}
    done = subprocess.run([sys.executable, "-c", STAND_IN], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
