"""A small decoder over 32 steps with a growing cache: one session, one plan, all on WebGPU, as onnxruntime says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.tolerance import close
from webrt.inference import InferenceSession

STEPS = 32
VOCABULARY, WIDTH, HEADS, GROUPS, HEAD, BLOCK = 50, 64, 4, 2, 16, 32
MS = "com.microsoft"
Array = np.ndarray[Any, Any]


def weights(rng: np.random.Generator) -> dict[str, Array]:
    """Initializers; matrices have 4 bits, in blocks of 32."""
    out: dict[str, Array] = {
        "table": rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
        "gain": np.ones(WIDTH, np.float32),
        "one": np.array([1], np.int64),
        "axis": np.array(1, np.int64),
    }
    for name, rows in (
        ("q", HEADS * HEAD),
        ("k", GROUPS * HEAD),
        ("v", GROUPS * HEAD),
        ("o", WIDTH),
        ("out", VOCABULARY),
    ):
        out[f"{name}_w"] = rng.integers(0, 256, (rows, WIDTH // BLOCK, BLOCK // 2), np.uint8)
        out[f"{name}_s"] = rng.uniform(0.01, 0.03, (rows, WIDTH // BLOCK)).astype(np.float32)
    angles = np.arange(64)[:, None] / 100 ** (np.arange(HEAD // 2) / (HEAD // 2))
    return out | {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def product(source: str, name: str, rows: int) -> onnx.NodeProto:
    return helper.make_node(
        "MatMulNBits", [source, f"{name}_w", f"{name}_s"], [name], name, domain=MS, K=WIDTH, N=rows, bits=4,
        block_size=BLOCK,
    )  # fmt: skip


def decoder() -> onnx.ModelProto:
    """Embedding, one layer of attention over a cache, logits. Lengths come from the attention mask."""
    initializers = [onnx.numpy_helper.from_array(a, k) for k, a in weights(np.random.default_rng(8)).items()]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("SimplifiedLayerNormalization", ["x", "gain"], ["h"], epsilon=1e-5),
        product("h", "q", HEADS * HEAD), product("h", "k", GROUPS * HEAD), product("h", "v", GROUPS * HEAD),
        helper.make_node("ReduceSum", ["mask", "one"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "axis"], ["total64"]),
        helper.make_node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin"],
            ["a", "present_k", "present_v"], domain=MS, num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
        ),
        product("a", "o", WIDTH),
        helper.make_node("Add", ["x", "o"], ["y"]),
        helper.make_node("SimplifiedLayerNormalization", ["y", "gain"], ["z"], epsilon=1e-5),
        product("z", "out", VOCABULARY),
    ]  # fmt: skip

    def info(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    caches = [info(f"past_{k}", 1, "batch", GROUPS, "past", HEAD) for k in "kv"]
    inputs = [info("ids", 7, "batch", "seq"), info("mask", 7, "batch", "total"), *caches]
    presents = [info(f"present_{k}", 1, "batch", GROUPS, "room", HEAD) for k in "kv"]
    graph = helper.make_graph(
        nodes, "decoder", inputs, [info("out", 1, "batch", "seq", VOCABULARY), *presents], initializers
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_a_growing_cache() -> None:
    import onnxruntime as ort

    model = decoder()
    oracle = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = ["out", "present_k", "present_v"]
    empty = np.zeros((2, GROUPS, 0, HEAD), np.float32)
    ids = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    got: list[Array] = [empty, empty, empty]
    want: list[Array] = [empty, empty, empty]
    with InferenceSession(model, providers=["WebGpuExecutionProvider"]) as session:
        plan, seen = session.plan, 0
        assert not plan.host_steps
        for _ in range(STEPS):
            seen += ids.shape[1]
            feeds = {"ids": ids, "mask": np.ones((2, seen), np.int64)}
            got = session.run(names, feeds | {"past_k": got[1], "past_v": got[2]})
            want = oracle.run(names, feeds | {"past_k": want[1], "past_v": want[2]})
            for g, w in zip(got, want, strict=True):
                close(g, w, rtol=1e-3, atol=1e-4)
            ids = want[0][:, -1:].argmax(-1)
        assert session.plan is plan
