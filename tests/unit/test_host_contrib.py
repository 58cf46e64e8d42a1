"""com.microsoft and ai.onnx.ml on the CPU provider, against ONNX Runtime; and the schemas of the former."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.host_oracle import ML, MS, Array, Draw, agrees, i64, scalar
from webrt import schemas
from webrt.host import evaluate

ms = partial(agrees, opset=1, domain=MS)
ml = partial(agrees, domain=ML)
u8 = partial(scalar, dtype=np.uint8)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("k", "n", "block"), [(64, 6, 32), (80, 5, 32), (33, 3, 16)])
def test_matmul_nbits(bits: int, k: int, n: int, block: int) -> None:
    d = Draw(bits)
    blocks = -(-k // block)
    b, scales = d.u8(n, blocks, block * bits // 8), np.abs(d.real(n, blocks)) + np.float32(0.1)
    zeros = d.u8(n, -(-blocks * bits // 8))
    sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
    loose = {"rtol": 1e-4, "atol": 1e-4}
    ms("MatMulNBits", [d.real(2, 3, k), b, scales], **sizes, **loose)
    ms("MatMulNBits", [d.real(3, k), b, scales, zeros], **sizes, **loose)
    if bits != 8:  # ONNX Runtime has no 8-bit weights with real zero points
        ms("MatMulNBits", [d.real(3, k), b, scales, d.real(n, blocks)], **sizes, **loose)
    ms("MatMulNBits", [d.real(3, k), b, scales, None, None, d.real(n)], **sizes, **loose)
    if bits == 4:  # ONNX Runtime passes over g_idx with 2 bits and refuses it with 8
        groups = d.ints(0, blocks, k).astype(np.int32)
        ms("MatMulNBits", [d.real(3, k), b, scales, None, groups], **sizes, **loose)


@pytest.mark.parametrize("bits", [4, 8])
def test_gather_block_quantized(bits: int) -> None:
    d = Draw(bits)
    sizes = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}
    data, scales = d.u8(10, 64 * bits // 8), np.abs(d.real(10, 4))
    ms("GatherBlockQuantized", [data, d.ints(0, 10, 2, 3), scales], **sizes)
    ms("GatherBlockQuantized", [data, d.ints(-10, 10, 3), scales, d.u8(10, 4 * bits // 8)], **sizes)


@pytest.mark.parametrize("seed", range(30))
def test_group_query_attention(seed: int) -> None:
    d = Draw(seed)
    heads, groups, size, past = 4, 2, 16, d.pick(0, 3, 5)
    steps = d.pick(1, 4) if past == 0 else d.pick(1, 1, 3)
    batch = 1 if past and steps > 1 else d.pick(1, 2)
    total, more = past + steps, dict[str, Any]()
    for name, value in (("local_window_size", d.number(1, 4)), ("softcap", 5.0), ("smooth_softmax", 1), ("scale", 0.3)):
        if d.chance(0.3):
            more[name] = value
    caches: list[Array | None] = [None, None]
    if d.chance(0.5):
        angles = d.real(32, size // 2)
        caches, more = [np.cos(angles), np.sin(angles)], more | {"do_rotary": 1, "rotary_interleaved": d.number(0, 2)}
    q: list[Array | None] = [d.real(batch, steps, heads * size)]
    q += [d.real(batch, steps, groups * size), d.real(batch, steps, groups * size)]
    if d.chance(0.4):
        q = [d.real(batch, steps, (heads + 2 * groups) * size), None, None]
    lengths = i32(total - 1, total - 2) if past and batch == 2 else np.full(batch, total - 1, np.int32)
    cache = [d.real(batch, groups, past, size), d.real(batch, groups, past, size)]
    bias = [None, d.real(1, 1, steps, total)] if d.chance(0.3) else []
    inputs = [*q, *cache, lengths, i32(total), *caches, *bias]
    ms("GroupQueryAttention", inputs, (True,) * 3, num_heads=heads, kv_num_heads=groups, **more)


def test_attention() -> None:
    d = Draw(1)
    n, s, t, h, w = 2, 3, 5, 2, 8
    q, k, v = d.real(n, s, h * w), d.real(n, t, h * w), d.real(n, t, h * w)
    mha = partial(ms, "MultiHeadAttention", num_heads=h)
    mha([q, k, v])
    mha([q, k, v, d.real(3 * h * w), i32(3, 5)])
    mha([q, k, v, None, d.ints(0, 2, n, t).astype(np.int32)])
    mha([q, k, v, None, None, d.real(1, h, s, t)], scale=0.2)
    mha([q, q, q, None, None, None, d.real(n, h, 4, w), d.real(n, h, 4, w)], (True,) * 3)
    mha([q, q, q], unidirectional=1)
    mha([q, d.real(n, h, t, w), d.real(n, h, t, w)])
    own = partial(ms, "Attention", num_heads=h)
    x, weights, bias = d.real(n, s, 12), d.real(12, 3 * h * w), d.real(3 * h * w)
    own([x, weights, bias])
    own([x, weights, bias, i32(2, 3)])
    own([x, weights, bias, None, d.real(2, n, h, 4, w)], (True, True))
    own([x, weights, bias], unidirectional=1)
    for interleaved in (0, 1):
        angles = d.real(20, 4)
        caches = [np.cos(angles), np.sin(angles)]
        ms("RotaryEmbedding", [d.real(n, s, 24), d.ints(0, 20, n, s), *caches], interleaved=interleaved)
        ms("RotaryEmbedding", [d.real(n, 3, s, 8), i64(3), *caches], interleaved=interleaved)
        ms("RotaryEmbedding", [d.real(n, s, 48), d.ints(0, 20, n, s), *caches], interleaved=interleaved,
           rotary_embedding_dim=8, num_heads=3)  # fmt: skip


def test_fused_operators() -> None:
    d = Draw(2)
    x, skip, row = d.real(2, 3, 8), d.real(2, 3, 8), d.real(8)
    for op in ("Gelu", "QuickGelu", "FastGelu"):
        ms(op, [x])
    ms("FastGelu", [x, row])
    ms("BiasGelu", [x, row])
    ms("SkipLayerNormalization", [x, skip, row, row, row], (True, False, False, True))
    ms("SkipSimplifiedLayerNormalization", [x, skip, row, row], (True, False, False, True))
    agrees("SimplifiedLayerNormalization", [x, row], (True, True))
    ms("FusedMatMul", [d.real(2, 3, 4), d.real(2, 5, 4)], alpha=0.5, transB=1)
    ms("FusedMatMul", [d.real(3, 2, 4), d.real(2, 4, 5)], transBatchA=1)
    image, kernel = d.real(1, 2, 5, 5), d.real(3, 2, 3, 3)
    for name, params in (("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [-0.1, 0.2]), ("HardSigmoid", [0.3, 0.4])):
        more = {"activation_params": params} if params else {}
        ms("FusedConv", [image, kernel, d.real(3)], activation=name, **more)
    ms("FusedConv", [image, kernel, d.real(3), d.real(1, 3, 3, 3)], activation="Relu")
    ms("FusedGemm", [d.real(3, 4), d.real(4, 5), d.real(5)], activation="LeakyRelu", activation_alpha=0.3)
    ids, kinds, mask = (d.ints(0, n, 2, 4).astype(np.int32) for n in (9, 2, 2))
    tables = [d.real(9, 8), d.real(6, 8), d.real(2, 8), row, row]
    ms("EmbedLayerNormalization", [ids, kinds, *tables, np.sort(mask)[:, ::-1].copy()], (True, True))


def test_quantised_operators() -> None:
    d, f = Draw(3), scalar
    a, b = [d.u8(2, 3), f(0.1), u8(10)], [d.u8(3), f(0.2), u8(20)]
    ms("QLinearAdd", [*a, *b, f(0.3), u8(30)])
    ms("QLinearMul", [*a, *b, f(9), u8(30)])
    ms("QLinearSigmoid", [*a, f(1 / 256), u8(0)])
    ms("QLinearLeakyRelu", [*a, f(0.05), u8(100)], alpha=0.1)
    ms("QLinearConcat", [f(0.1), u8(3), d.u8(2, 3), f(0.2), u8(5), d.u8(2, 2), f(0.05), u8(100)], axis=1)
    ms("QLinearGlobalAveragePool", [d.u8(1, 2, 6, 6), f(0.05), u8(12), f(0.04), u8(3)])
    ms("QGemm", [d.u8(3, 4), f(0.1), u8(3), d.u8(5, 4), f(0.2), u8(4)], transB=1, alpha=0.5)
    ms("DynamicQuantizeMatMul", [d.real(3, 8), d.i8(8, 5), f(0.1)])
    ms("MatMulIntegerToFloat", [d.u8(3, 8), d.i8(8, 5), f(0.1), np.abs(d.real(5)), u8(3), d.i8(5), d.real(5)])


def test_encoders_and_scalers() -> None:
    d = Draw(4)
    words = np.array(["a", "b", "q"], object)
    ml("ArrayFeatureExtractor", [d.real(2, 3, 4), np.array([[1, 3]])], opset=3)
    ml("Binarizer", [d.real(3, 4)], opset=3, threshold=0.3)
    ml("Scaler", [d.ints(0, 9, 3, 4)], opset=3, offset=[1.0], scale=[0.5])
    for norm in ("MAX", "L1", "L2"):
        ml("Normalizer", [np.vstack([d.real(2, 4), np.zeros((1, 4), np.float32)])], opset=3, norm=norm)
    holes = np.array([[1, np.nan, 3]], np.float32)
    ml("Imputer", [holes], opset=3, imputed_value_floats=[9.0], replaced_value_float=float("nan"))
    ml("OneHotEncoder", [words], opset=3, cats_strings=["a", "b"], zeros=1)
    ml("LabelEncoder", [words], opset=2, keys_strings=["a", "b"], values_int64s=[5, 6], default_int64=-3)
    ml("LabelEncoder", [i64(1, 2, 9)], opset=2, keys_int64s=[1, 2], values_strings=["x", "y"])
    ml("CategoryMapper", [words], opset=1, cats_strings=["a", "b"], cats_int64s=[5, 6])
    ml("CategoryMapper", [i64(5, 7)], opset=1, cats_strings=["a", "b"], cats_int64s=[5, 6])


def test_maps() -> None:
    def one(op: str, value: Any, **attributes: Any) -> Any:
        return evaluate(helper.make_node(op, ["x"], ["y"], domain=ML, **attributes), {ML: 1}, [value])[0]

    rows = one("ZipMap", np.array([[0.25, 0.75]], np.float32), classlabels_strings=["no", "yes"])
    assert rows == [{"no": 0.25, "yes": 0.75}]
    assert one("CastMap", {3: np.float32(1), 1: np.float32(2)}, cast_to="TO_FLOAT").tolist() == [[2, 1]]
    assert one("CastMap", {2: np.float32(5)}, cast_to="TO_INT64", map_form="SPARSE", max_map=4).tolist() == [
        [0, 0, 5, 0]
    ]
    assert one("DictVectorizer", {"a": 4, "c": 8}, string_vocabulary=["a", "c", "b", "z"]).tolist() == [[4, 8, 0, 0]]


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_models_and_machines(transform: str) -> None:
    d = Draw(5)
    x, name = d.real(6, 4), {"post_transform": transform}
    ml("LinearRegressor", [x], opset=1, coefficients=d.real(8).tolist(), intercepts=[0.1, 0.2], targets=2, **name)
    labels = {"classlabels_strings": ["a", "b", "c"]}
    ml("LinearClassifier", [x], (True, True), opset=1, coefficients=d.real(12).tolist(), intercepts=[0.1, 0.2, 0.3],
       **labels, **name)  # fmt: skip
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        machine = {"kernel_type": kernel, "kernel_params": [0.5, 0.1, 2.0], "support_vectors": d.real(28).tolist()}
        pairs = {"vectors_per_class": [2, 3, 2], "rho": [0.1, 0.2, 0.3], "coefficients": d.real(14).tolist()}
        sure = {"prob_a": [-0.5, -0.7, -0.2], "prob_b": [0.1, 0.2, -0.1]}
        ml("SVMClassifier", [x], (True, True), opset=1, **machine, **pairs, **labels, **name)
        ml("SVMClassifier", [x], (True, True), opset=1, **machine, **pairs, **labels, **name, **sure)


def _forest(d: Draw, modes: tuple[str, ...], targets: list[int]) -> tuple[dict[str, Any], list[list[Any]]]:
    """Three complete trees of depth 3, and [tree, node, target, weight] of their leaves."""
    nodes: dict[str, list[Any]] = {}
    leaves: list[list[Any]] = []
    for tree in range(3):
        for i in range(15):
            leaf = i >= 7
            row = {
                "treeids": tree, "nodeids": i, "featureids": 0 if leaf else d.number(0, 5),
                "values": 0.0 if leaf else float(d.real(1).round(1)[0]), "modes": "LEAF" if leaf else d.pick(*modes),
                "truenodeids": 0 if leaf else 2 * i + 1, "falsenodeids": 0 if leaf else 2 * i + 2,
                "missing_value_tracks_true": 0 if leaf else d.number(0, 2),
            }  # fmt: skip
            for key, value in row.items():
                nodes.setdefault(f"nodes_{key}", []).append(value)
            leaves += [[tree, i, t, float(d.real(1)[0])] for t in targets] if leaf else []
    return nodes, [list(column) for column in zip(*leaves)]


@pytest.mark.parametrize(
    "modes", [("BRANCH_LEQ",), ("BRANCH_LT", "BRANCH_GTE"), ("BRANCH_GT",), ("BRANCH_EQ", "BRANCH_NEQ")]
)
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensembles(modes: tuple[str, ...], how: str) -> None:
    d = Draw(len(how))
    x = d.real(20, 5).round(1)
    x[3, 2] = np.nan
    nodes, (trees, ids, targets, weights) = _forest(d, modes, [0, 1])
    ends = {"target_treeids": trees, "target_nodeids": ids, "target_ids": targets, "target_weights": weights}
    ml(
        "TreeEnsembleRegressor",
        [x],
        opset=3,
        n_targets=2,
        aggregate_function=how,
        base_values=[0.3, 0.4],
        **ends,
        **nodes,
    )
    for classes, used in ((3, [0, 1, 2]), (2, [0]), (2, [1])):
        nodes, (trees, ids, targets, weights) = _forest(d, modes, used)
        ends = {"class_treeids": trees, "class_nodeids": ids, "class_ids": targets, "class_weights": weights}
        labels = list(range(5, 5 + classes))
        for name in ("NONE", "LOGISTIC"):
            ml("TreeEnsembleClassifier", [x], (True, True), opset=3, classlabels_int64s=labels, post_transform=name,
               **ends, **nodes)  # fmt: skip


def test_schemas_check_and_infer() -> None:
    schemas.register()
    schemas.register()
    past = ["n", 2, "p", 16]
    nodes = [
        helper.make_node("MatMulNBits", ["x", "b", "s"], ["q"], domain=MS, K=64, N=128, block_size=32),
        helper.make_node("GroupQueryAttention", ["q", "", "", "pk", "pv", "l", "t"], ["a", "k", "v"], domain=MS,
                         num_heads=4, kv_num_heads=2),
        helper.make_node("SimplifiedLayerNormalization", ["a", "g"], ["y"]),
    ]  # fmt: skip
    kinds = {"x": (1, ["n", "s", 64]), "b": (2, [128, 2, 16]), "s": (1, [128, 2]), "pk": (1, past), "pv": (1, past),
             "l": (6, ["n"]), "t": (6, [1]), "g": (1, [64])}  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, *v) for k, v in kinds.items()],
        [helper.make_tensor_value_info(k, 1, v) for k, v in (("y", ["n", "s", "w"]), ("k", ["n", 2, "t", 16]))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(MS, 1)])
    onnx.checker.check_model(model, full_check=True)
    found = {
        v.name: v.type.tensor_type for v in onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    }
    assert [d.dim_param or d.dim_value for d in found["q"].shape.dim] == ["n", "s", 128]
    assert [d.dim_param or d.dim_value for d in found["a"].shape.dim] == ["n", "s", 64]
    assert found["v"].elem_type == TensorProto.FLOAT


def test_schema_defaults() -> None:
    schema = schemas.get_schema("QuickGelu", 1, MS)
    assert schema is not None
    assert schemas.attribute_defaults(schema) == {"alpha": pytest.approx(1.702)}
    assert schemas.get_schema("LayerNormalization", 12) is not None
    newer = schemas.get_schema("LayerNormalization", 17)
    assert newer is not None and newer.since_version == 17
