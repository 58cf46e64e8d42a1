"""Calls that make no sense: each is a WebrtError that says what was expected, whatever was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import webrt
from webrt import dims as D
from webrt import dtypes
from webrt.compiler import emit, lower, memory, partition
from webrt.compiler.compile import compile_model
from webrt.compiler.options import CompileOptions, Precision
from webrt.errors import InvalidModel, PlanError, WebrtError
from webrt.host import run_model
from webrt.ir import Graph, Node, Value
from webrt.planfile import dump
from webrt.target import BASE

X = np.arange(6, dtype=np.float32)


def model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {body}')


RELU = "(float[N] x) => (float[N] y) { y = Relu(x) }"


@pytest.mark.parametrize("source", [None, 5, [], "a\0b", ""])
def test_sources_that_are_no_models(source: Any) -> None:
    with pytest.raises(WebrtError):
        webrt.InferenceSession(source)


@pytest.mark.parametrize("providers", ["CPUExecutionProvider", [5], [None], [("CPUExecutionProvider",)], 7, []])
def test_provider_lists(providers: Any) -> None:
    with pytest.raises(webrt.InputError, match="provider"):
        webrt.InferenceSession(model(RELU), providers=providers)


def test_options_of_the_wrong_kind() -> None:
    with pytest.raises(webrt.InputError, match="SessionOptions"):
        webrt.InferenceSession(model(RELU), {"a": 1})  # type: ignore[arg-type]
    options = webrt.SessionOptions()
    for size in ("x", -1, 2**70, 1.5):
        with pytest.raises(webrt.InputError, match="size"):
            options.add_free_dimension_override_by_name("N", size)  # type: ignore[arg-type]
    for level in (42, "all", None):
        options.graph_optimization_level = level  # type: ignore[assignment]
        with pytest.raises(webrt.InputError, match="ORT_ENABLE_ALL"):
            webrt.InferenceSession(model(RELU), options)


@pytest.mark.parametrize(
    "given",
    [
        {"level": "most"}, {"providers": ("gpu",)}, {"providers": ()}, {"disabled": ("fuse_all",)},
        {"disabled": "fuse_norms"}, {"seconds": float("nan")}, {"seconds": -1.0},
        *({"free_dims": {"N": size}} for size in ((5, 2), (-1, 5), (1,), "x", None, 1.5, True, (1, 2**60))),
        {"precision": Precision(weights="int3")}, {"precision": Precision(int8=True, samples=({"x": [1.0]},))},
        {"precision": Precision(int8=True, method="most", samples=({"x": X},))},
    ],
    ids=str,
)  # fmt: skip
def test_compile_options(given: dict[str, Any]) -> None:
    with pytest.raises(webrt.InputError):
        compile_model(model(RELU), CompileOptions(**given))


def test_requests_of_the_wrong_kind() -> None:
    with webrt.InferenceSession(model(RELU)) as session:
        for names in (5, "y"):
            with pytest.raises(webrt.InputError, match="output_names"):
                session.run(names, {"x": X})  # type: ignore[arg-type]
        with pytest.raises(webrt.InputError, match="output_location"):
            session.run(None, {"x": X}, output_location=None)  # type: ignore[arg-type]


def test_a_folder_as_the_optimised_model(tmp_path: Path) -> None:
    options = webrt.SessionOptions()
    options.optimized_model_filepath = str(tmp_path)
    with pytest.raises(PlanError, match="folder"):
        webrt.InferenceSession(model(RELU), options)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_kernels_needs_the_webgpu_provider() -> None:
    data = dump(compile_model(model(RELU)))
    with pytest.raises(webrt.PlacementError, match="WebGpuExecutionProvider"):
        webrt.InferenceSession(data, providers=["CPUExecutionProvider"])


def test_an_output_listed_twice() -> None:
    m = model(RELU)
    m.graph.output.append(m.graph.output[0])
    with pytest.raises(InvalidModel, match="twice"):
        compile_model(m)


def test_to_the_end_as_the_largest_integer() -> None:
    """INT64_MAX as Slice's end is no size; such values are compiled for, and others stay sizes of one plan."""
    m = model("(float[N] x, int64[1] start, int64[1] end) => (float[M] y) { y = Slice(x, start, end) }")
    with webrt.InferenceSession(m) as session:
        for end in (2**63 - 1, 4, -1, -(2**63)):
            (y,) = session.run(None, {"x": X, "start": np.array([1]), "end": np.array([end])})
            np.testing.assert_array_equal(y, X[1:end])


def test_transposed_convolution_of_an_empty_batch() -> None:
    m = model("(float[N,2,4,4] x, float[2,3,2,2] w) => (float[N,3,5,5] y) { y = ConvTranspose(x, w) }")
    feeds = {"x": np.zeros((0, 2, 4, 4), np.float32), "w": np.ones((2, 3, 2, 2), np.float32)}
    assert run_model(m, feeds)["y"].shape == (0, 3, 5, 5)


def test_sizes_that_nothing_before_gives_are_refused_when_compiling() -> None:
    """Reshape's size is an element of a value that only a later host step could give: no plan is made of it."""
    value = Value("late", dtypes.F32, (D.var("nobody"),))
    node = Node("Relu", "", "relu", [value], [Value("y", dtypes.F32, (D.var("nobody"),))], 18)
    graph = Graph([node], [], [], {"": 18})
    placed, _ = partition.partition(graph, ("webgpu",), BASE, set())
    items = lower.lower(placed)
    places = memory.assign(graph, items, 1 << 27)
    places.places[value] = ("s", 0)
    with pytest.raises(webrt.ShapeError, match="nobody"):
        emit.emit(graph, placed, items, places, BASE, set(), {})
