"""Models in fewer bits: what is rewritten, what stays, how far the results go, and that other runtimes read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.passes.harness import feeds_of, parse
from webrt.cli.main import main
from webrt.compiler.compile import CompileOptions, compile_model
from webrt.compiler.options import Precision
from webrt.compiler.precision import nbits
from webrt.compiler.precision.calibrate import BINS, best_threshold
from webrt.errors import InputError
from webrt.inference import InferenceSession
from webrt.sandbox import compile as confined

RNG = np.random.default_rng(11)
NET = """agraph (float[n,8,10,10] x) => (float[n,20] y) {
    c = Conv<pads=[1,1,1,1]>(x, w, b)
    r = Relu(c)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    m = MatMul(f, m0)
    g = Gemm<transB=1>(m, m1, bias)
    y = Softmax(g)
}"""
CONSTANTS = {
    "w": RNG.standard_normal((64, 8, 3, 3)).astype(np.float32) / 8,
    "b": RNG.standard_normal(64).astype(np.float32),
    "m0": RNG.standard_normal((64, 96)).astype(np.float32) / 8,
    "m1": RNG.standard_normal((20, 96)).astype(np.float32) / 8,
    "bias": RNG.standard_normal(20).astype(np.float32),
}
TOLERANCE = {"f16": 5e-3, "int8": 2e-2, "int4": 6e-2}


def net(opset: int = 20) -> onnx.ModelProto:
    return parse(NET, CONSTANTS, opset)


def shrink(
    model: onnx.ModelProto, precision: Precision, path: Path | None = None
) -> tuple[dict[str, Any], onnx.ModelProto]:
    """What is told of the model in fewer bits, and it."""
    made: list[bytes] = []
    plan = compile_model(model, CompileOptions(precision=precision, optimized=made.append, strict=True))
    if path is not None:
        path.write_bytes(made[-1])
    small = onnx.load_from_string(made[-1])
    onnx.checker.check_model(small)
    return plan.meta["precision"], small


def on_cpu(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        ("f16", Precision(f16=True)),
        ("int8", Precision(weights="int8")),
        ("int4", Precision(weights="int4", block=16)),
        ("int8", Precision(int8=True, samples=({"x": feeds_of(net())["x"]},))),
        ("int8", Precision(int8=True, method="entropy", samples=({"x": feeds_of(net())["x"]},))),
        ("int4", Precision(weights="int4", f16=True, block=16)),
    ],
    ids=["f16", "weights-int8", "weights-int4", "minmax", "entropy", "int4-f16"],
)
def test_results_stay_near_and_other_runtimes_agree(kind: str, precision: Precision, tmp_path: Path) -> None:
    model, feeds = net(), feeds_of(net())
    want = on_cpu(model, feeds)
    _, small = shrink(model, precision, tmp_path / "small.onnx")
    there = on_cpu(small, feeds)
    with InferenceSession(tmp_path / "small.onnx") as session:
        (here,) = session.run(None, feeds)
    assert 0 < np.abs(here - want).max() < TOLERANCE[kind]
    assert np.abs(here - there).max() < (5e-3 if precision.f16 else 1e-5)


def test_weights_are_packed_and_small_ones_stay() -> None:
    told, small = shrink(net(), Precision(weights="int4", block=32))
    assert [n.op_type for n in small.graph.node].count("MatMulNBits") == 1
    assert [n.op_type for n in small.graph.node].count("Gemm") == 1  # 1 920 weights are below LEAST
    assert told["int4"]["weights"] == 1
    assert told["int4"]["bytes_before"] == 64 * 96 * 4
    assert told["int4"]["bytes_after"] == 64 * 96 // 2 + 2 * 96 * 4
    packed = next(t for t in small.graph.initializer if t.data_type == onnx.TensorProto.UINT8)
    assert list(packed.dims) == [96, 2, 16]


@pytest.mark.parametrize(("bits", "most"), [(8, 0.5 / 127), (4, 0.5 / 7)])
def test_no_weight_is_off_by_more_than_half_a_step(bits: int, most: float) -> None:
    rows = RNG.standard_normal((5, 100)).astype(np.float32)
    rows[0, :32] = 0
    blocks = nbits.pack(rows, bits, 32)
    numbers = blocks.packed.astype(int)
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(5, 4, 32)
    restored = (numbers - (1 << (bits - 1))) * blocks.scales[..., None]
    error = np.abs(restored.reshape(5, -1)[:, :100] - rows).reshape(5, -1)
    largest = np.abs(np.pad(rows, ((0, 0), (0, 28))).reshape(5, 4, 32)).max(axis=2).repeat(32, axis=1)[:, :100]
    # The end of the range that has one step less may be cut by a whole step.
    assert (error <= largest * most * 2 + 1e-7).all()
    assert not restored.reshape(5, -1)[0, :32].any()


def test_half_keeps_islands_and_the_types_of_inputs_and_outputs() -> None:
    model = parse(
        """agraph (float[n,8] x) => (float[n,8] y, int64[n] i) {
            big = Mul(x, large)
            e = Exp(x)
            s = Add(e, x)
            i = ArgMax<axis=1,keepdims=0>(s)
            back = Div(big, large)
            y = Add(back, s)
        }""",
        {"large": np.float32(1e6)},
    )
    told, small = shrink(model, Precision(f16=True))
    islands = told["f16"]["islands"]
    assert {k.split(":")[0] for k in islands.values()} == {"Mul", "Div", "Exp"}
    assert all("range of f16" in reason for reason in islands.values())
    assert small.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert small.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    feeds = feeds_of(model)
    assert np.abs(on_cpu(small, feeds) - on_cpu(model, feeds)).max() < 2e-2


@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_packed_weights_that_leave_the_range_of_f16_stay_f32(weights: Literal["int4", "int8"]) -> None:
    """Their scales alone are in range; the weights that a kernel makes of them are not."""
    constants = {"w": RNG.standard_normal((64, 32)).astype(np.float32) * 1e5}
    model = parse("agraph (float[n,64] x) => (float[n,32] y) { y = MatMul(x, w) }", constants)
    told, small = shrink(model, Precision(weights=weights, f16=True))
    assert told["f16"]["nodes"] == 0
    assert [k.endswith("leaves the range of f16") for k in told["f16"]["islands"].values()] == [True]
    feeds = {"x": RNG.standard_normal((3, 64)).astype(np.float32)}
    assert np.isfinite(InferenceSession(small).run(None, feeds)[0]).all()


def test_samples_decide_islands() -> None:
    model = parse("agraph (float[n] x) => (float[n] y) { e = Exp(x) y = Log(e) }")
    tame, _ = shrink(model, Precision(f16=True, samples=({"x": np.ones(3, np.float32)},)))
    wild, _ = shrink(model, Precision(f16=True, samples=({"x": np.full(3, 12, np.float32)},)))
    assert not tame["f16"]["islands"]
    assert len(wild["f16"]["islands"]) == 2
    assert wild["difference"]["y"]["largest_difference"] == 0


def test_resize_takes_f16_but_not_for_its_scales() -> None:
    model = parse(
        'agraph (float[1,1,4,4] x) => (float[1,1,8,8] y) { y = Resize<mode="linear">(x, , scales) }',
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    told, small = shrink(model, Precision(f16=True))
    assert told["f16"]["nodes"] == 1
    assert {t.data_type for t in small.graph.initializer} == {onnx.TensorProto.FLOAT}


def test_static_int8_has_a_scale_per_channel_from_opset_13_on() -> None:
    sample = {"x": feeds_of(net())["x"]}
    _, small = shrink(net(), Precision(int8=True, samples=(sample,)))
    sizes = {t.dims[0] for t in small.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 1}
    assert sizes == {64, 96, 20}
    _, older = shrink(net(11), Precision(int8=True, samples=(sample,)))
    assert all(len(t.dims) != 1 for t in older.graph.initializer if t.data_type == onnx.TensorProto.INT8)


def test_static_int8_of_a_stack_of_matrices_has_one_scale() -> None:
    """ONNX Runtime refuses to load another form at its higher levels."""
    stack = np.random.default_rng(3).standard_normal((3, 8, 6)).astype(np.float32)
    model = parse("agraph (float[3,5,8] x) => (float[3,5,6] y) { y = MatMul(x, w) }", {"w": stack})
    feeds = feeds_of(model)
    _, small = shrink(model, Precision(int8=True, samples=(feeds,)))
    assert [t.dims for t in small.graph.initializer if t.data_type == onnx.TensorProto.INT8] == [[3, 8, 6], []]
    want = on_cpu(model, feeds)
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(small.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (got,) = session.run(None, feeds)
        assert float(np.abs(got - want).max()) < 3e-2 * float(np.abs(want).max())


def test_entropy_cuts_a_rare_extreme_and_nothing_else() -> None:
    counts = np.zeros(BINS)
    counts[:300] = np.linspace(1000, 1, 300)
    assert best_threshold(counts, 128) >= 128
    counts[-1] = 1
    assert best_threshold(counts, 128) < BINS // 2
    flat = np.full(BINS, 50.0)
    assert best_threshold(flat, 128) > BINS * 0.9
    assert best_threshold(np.zeros(BINS), 128) == 128


@pytest.mark.parametrize(
    ("precision", "words"),
    [
        (Precision(int8=True), "needs samples"),
        (Precision(int8=True, f16=True), "cannot be combined"),
        (Precision(weights="int4", block=33), "blocks of 33"),
        (Precision(f16=True, samples=({"z": np.zeros(1)},)), "lacks"),
        (Precision(f16=True, samples=({"x": np.zeros((1, 8, 10), np.float32)},)), "expected"),
        (Precision(f16=True, samples=({"x": np.zeros((1, 8, 10, 10))},)), "float64"),
    ],
)
def test_wishes_that_cannot_be(precision: Precision, words: str) -> None:
    with pytest.raises(InputError, match=words):
        shrink(net(), precision)


def test_an_output_whose_type_an_attribute_may_decide_stays_f32() -> None:
    model = parse("agraph (float[n,4] x) => (float[n,4] y) { r = EyeLike(x) y = Add(x, r) }")
    told, small = shrink(model, Precision(f16=True))
    assert told["f16"] == {"nodes": 1, "islands": {"r": "EyeLike: it has no form in f16"}}
    feeds = feeds_of(model)
    assert np.abs(on_cpu(small, feeds) - on_cpu(model, feeds)).max() < 1e-2


def test_the_command_tells_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    np.savez("sample.npz", x=feeds_of(net())["x"])
    np.savez("marked.npz", **{"in:x": feeds_of(net())["x"], "out:y": np.zeros(1)})
    assert main(["compile", "net.onnx", "--weights", "int4", "--f16", "--sample", "sample.npz"]) == 0
    out = capsys.readouterr().out
    assert "int4: 1 weight matrix, 0.0 -> 0.0 MB" in out
    assert "f16: " in out
    assert "y: off by at most" in out
    assert main(["compile", "net.onnx", "--int8", "--sample", "marked.npz", "-o", "small.onnx", "--no-sandbox"]) == 0
    assert "int8: 3 nodes quantised, by minmax over 1 sample" in capsys.readouterr().out
    assert main(["compile", "net.onnx", "--sample", "sample.npz"]) == 1
    assert "--sample has no use" in capsys.readouterr().err
    assert main(["compile", "net.onnx", "--int8", "--sample", "net.onnx"]) == 1
    told = capsys.readouterr().err
    assert "a sample is an .npz file with an array for each input" in told
    assert "pickle" not in told


def test_a_confined_worker_gives_the_same_plan() -> None:
    options = CompileOptions(precision=Precision(int8=True, samples=(feeds_of(net()), feeds_of(net(), free=2))))
    made = confined(net().SerializeToString(), options, wants=("plan", "onnx"))
    plan = compile_model(net().SerializeToString(), options)
    assert made.precision == plan.meta["precision"]
    assert made.precision["int8"]["samples"] == 2


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_tables_are_packed(bits: Literal["int8", "int4"]) -> None:
    table = RNG.standard_normal((200, 64)).astype(np.float32)
    model = parse("agraph (int64[n] i) => (float[n,64] y) { y = Gather(table, i) }", {"table": table})
    told, small = shrink(model, Precision(weights=bits))
    assert [n.op_type for n in small.graph.node] == ["GatherBlockQuantized"]
    assert told[bits]["weights"] == 1
    feeds = {"i": np.array([3, 199, 0, -1])}
    with InferenceSession(small.SerializeToString()) as session:
        (here,) = session.run(None, feeds)
    np.testing.assert_array_equal(here, on_cpu(small, feeds))
    assert np.abs(here - table[feeds["i"]]).max() < (0.05 if bits == "int8" else 0.6)
