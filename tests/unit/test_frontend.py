"""What the frontend takes, and what it refuses by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from webrt import dims as D
from webrt.compiler import checker, frontend
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.errors import ExternalDataError, InputError, InvalidModel, UnsupportedOp

RELU = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }'


def model(text: str = RELU) -> onnx.ModelProto:
    return parser.parse_model(text)


def external_model(location: str, **entries: str) -> onnx.ModelProto:
    """y = x + w, with w's four floats at `location`."""
    m = model('<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) { y = Add(x, w) }')
    tensor = m.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return m


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"not an onnx model at all", b"\x08"])
def test_bytes_that_are_no_model(data: bytes) -> None:
    with pytest.raises(InvalidModel):
        compile_model(data)


def test_a_model_cut_short_at_any_byte() -> None:
    data = model().SerializeToString()
    for n in range(len(data)):
        with pytest.raises(InvalidModel):
            compile_model(data[:n])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"nothing\.onnx"):
        compile_model(tmp_path / "nothing.onnx")


def test_unknown_operator_domain_and_opset() -> None:
    with pytest.raises(UnsupportedOp, match="Frobnicate"):
        compile_model(model(RELU.replace("Relu", "Frobnicate")))
    m = model()
    m.graph.node[0].domain = "org.nowhere"
    with pytest.raises(InvalidModel, match=r"org\.nowhere"):
        compile_model(m)
    m = model()
    m.opset_import[0].version = 99
    with pytest.raises(InvalidModel, match="99"):
        compile_model(m)
    del m.opset_import[:]
    with pytest.raises(InvalidModel, match="opset"):
        compile_model(m)


def test_deprecated_operators_are_taken_and_the_rest_is_still_checked() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
      g (float[1,4,2,2] x, float[2] s, float[2] b) => (float[1,4,2,2] y)
      { z = Relu(x)  y = GroupNormalization<num_groups=2>(z, s, b) }"""
    checker.check(model(text))
    with pytest.raises(InvalidModel, match="foo"):
        checker.check(model(text.replace("Relu(x)", "Relu<foo=1>(x)")))


def test_nodes_in_any_order() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { z = Abs(x)  y = Neg(z) }'
    m = model(text)
    first, second = m.graph.node
    swapped = [onnx.NodeProto.FromString(n.SerializeToString()) for n in (second, first)]
    del m.graph.node[:]
    m.graph.node.extend(swapped)
    assert [n.op_type for n in frontend.load(m).nodes] == ["Abs", "Neg"]


def test_a_cycle_and_dangling_and_duplicate_names() -> None:
    cycle = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Add(x, z)  z = Neg(y) }'
    with pytest.raises(InvalidModel, match="cycle"):
        compile_model(model(cycle))
    with pytest.raises(InvalidModel, match="nowhere"):
        compile_model(model(RELU.replace("Relu(x)", "Relu(nowhere)")))
    twice = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Neg(x)  y = Abs(x) }'
    with pytest.raises(InvalidModel, match="y"):
        compile_model(model(twice))


def test_declared_sizes_that_are_wrong_or_missing() -> None:
    m = model()
    m.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 77
    m.graph.value_info.append(helper.make_tensor_value_info("y2", TensorProto.FLOAT, [5]))
    plan = compile_model(m)
    assert plan.outputs[0].shape is not None and plan.outputs[0].shape[1] == 4
    m = model()
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    (value,) = frontend.load(m).inputs
    assert value.shape == (D.var("x.0"), 4)
    m = model()
    m.graph.output[0].type.tensor_type.ClearField("shape")
    m.graph.output[0].type.tensor_type.shape.SetInParent()
    plan = compile_model(m)
    assert plan.outputs[0].shape is not None and len(plan.outputs[0].shape) == 2


def test_outputs_without_a_type_or_a_shape() -> None:
    m = model()
    m.graph.output[0].type.tensor_type.ClearField("shape")
    assert compile_model(m).outputs[0].dtype == "float32"
    m.graph.output[0].ClearField("type")
    assert compile_model(m).outputs[0].dtype == "float32"


def test_an_initializer_that_is_an_input_is_a_constant() -> None:
    m = model('<ir_version: 8, opset_import: ["" : 18]> g (float[4] x, float[4] w) => (float[4] y) { y = Add(x, w) }')
    m.graph.initializer.append(numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"))
    graph = frontend.load(m)
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.overridable] == ["w"]
    other = frontend.load(m, {"w": np.ones(4, np.float32)})
    assert other.overridable[0].const is not None and other.overridable[0].const.tolist() == [1, 1, 1, 1]
    with pytest.raises(InputError, match="w"):
        frontend.load(m, {"w": np.ones(4, np.int64)})


def test_odd_names() -> None:
    m = model()
    m.graph.input[0].name = m.graph.node[0].input[0] = "x/0:é \"'\n"
    plan = compile_model(m)
    assert plan.inputs[0].name == "x/0:é \"'\n"
    assert all("é" not in k.wgsl for k in plan.kernels)


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    onnx.save(external_model("w.bin", offset="8", length="16"), tmp_path / "m.onnx")
    graph = frontend.load(frontend.read_model(tmp_path / "m.onnx"))
    (node,) = graph.nodes
    assert node.const(1).tolist() == [2, 3, 4, 5]


def test_external_data_given_as_bytes() -> None:
    data = external_model("w.bin").SerializeToString()
    compile_model(data, CompileOptions(external_data={"w.bin": bytes(16)}))
    with pytest.raises(ExternalDataError, match=r"w\.bin"):
        compile_model(data)
    with pytest.raises(ExternalDataError, match="w"):
        compile_model(data, CompileOptions(external_data={"w.bin": bytes(8)}))


@pytest.mark.parametrize(
    "location", ["/etc/hostname", "../w.bin", "sub/../../w.bin", "C:\\w.bin", "link.bin", "linked/w.bin", ""]
)
def test_external_data_outside_the_folder(location: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    os.symlink(tmp_path / "w.bin", inside / "link.bin")
    os.symlink(tmp_path, inside / "linked")
    (inside / "m.onnx").write_bytes(external_model(location).SerializeToString())
    with pytest.raises(ExternalDataError, match=r"outside|w"):
        compile_model(inside / "m.onnx")


@pytest.mark.parametrize(
    "entries", [{"length": "32"}, {"offset": "8", "length": "16"}, {"offset": "-1"}, {"length": "x"}]
)
def test_external_data_that_is_short_or_malformed(entries: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "m.onnx").write_bytes(external_model("w.bin", **entries).SerializeToString())
    with pytest.raises(ExternalDataError, match="w"):
        compile_model(tmp_path / "m.onnx")


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(external_model("gone.bin").SerializeToString())
    with pytest.raises(ExternalDataError, match=r"gone\.bin"):
        compile_model(tmp_path / "m.onnx")


def test_a_free_dim_that_no_input_has() -> None:
    plan = compile_model(model(), CompileOptions(free_dims={"N": 3}))
    assert plan.inputs[0].shape == (3, 4)
    with pytest.raises(InputError, match="M"):
        compile_model(model(), CompileOptions(free_dims={"M": 3}))
