"""Schemas of operators that real models contain and onnx does not define.

Sources: ONNX Runtime's registry (names, optional inputs, defaults, type constraints) and its ContribOperators.md.
After `register()` the checker, the attribute defaults and the shape inference of onnx treat them like their own.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from typing import Any

import onnx
from onnx.defs import OpSchema

from webrt.schema_shapes import INFERENCE

__all__ = ["MS_DOMAIN", "attribute_defaults", "get_schema", "register"]

MS_DOMAIN = "com.microsoft"

REQUIRED_INT, REQUIRED_INTS, REQUIRED_STR = "!INT", "!INTS", "!STRING"
INT, INTS, FLOAT, FLOATS, STRING, STRINGS = "?INT", "?INTS", "?FLOAT", "?FLOATS", "?STRING", "?STRINGS"

# A letter of a signature → the tensor types that it allows. A digit after it makes another constraint of the same set.
TYPES: dict[str, tuple[str, ...]] = {
    "F": ("float", "float16", "double", "bfloat16"),
    "S": ("float", "double"),
    "Z": ("uint8", "float", "float16", "bfloat16"),
    "C": ("float", "float16", "bfloat16", "uint8", "int8", "float8e4m3fn"),
    "Q": ("uint8", "int8"),
    "R": ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4"),
    "U": ("uint8",),
    "B": ("int4", "uint4", "uint8"),
    "I": ("int32",),
    "L": ("int64",),
    "X": ("int32", "int64"),
    "f": ("float",),
    "b": ("bool",),
    "M": ("uint8", "int8", "float"),
    "G": ("float", "float16", "double", "bfloat16", "uint32", "uint64", "int32", "int64"),
    "A": (
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float", "double",
        "bfloat16", "string", "bool", "complex64", "complex128",
    ),
}  # fmt: skip

_CONV: dict[str, Any] = {
    "auto_pad": "NOTSET", "kernel_shape": INTS, "dilations": INTS, "strides": INTS, "pads": INTS, "group": 1,
}  # fmt: skip
_POOL: dict[str, Any] = {
    "auto_pad": "NOTSET", "kernel_shape": REQUIRED_INTS, "strides": INTS, "pads": INTS, "ceil_mode": 0,
}  # fmt: skip
_FUSED: dict[str, Any] = {"activation": STRING, "activation_params": FLOATS}
_MATMUL: dict[str, Any] = {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}
_GROUPS: dict[str, Any] = {"epsilon": 1e-5, "groups": REQUIRED_INT, "activation": REQUIRED_INT, "channels_last": 1}
_LN: dict[str, Any] = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
_LSTM: dict[str, Any] = {
    "direction": "forward", "hidden_size": INT, "activations": STRINGS, "activation_alpha": FLOATS,
    "activation_beta": FLOATS, "clip": FLOAT, "input_forget": 0,
}  # fmt: skip

# (signature, attributes, shape inference). `name?` is optional, `name*` variadic.
MICROSOFT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Gelu(X:F) -> Y:F", {}, "same"),
    ("FastGelu(X:F, bias?:F) -> Y:F", {}, "same"),
    ("QuickGelu(X:F) -> Y:F", {"alpha": 1.702}, "same"),
    ("BiasGelu(A:F, B:F) -> C:F", {}, "same"),
    ("BiasAdd(X:F, bias:F, skip:F) -> Y:F", {}, "same"),
    ("BiasSplitGelu(X:F, bias:F) -> Y:F", {}, "half_last"),
    ("BiasSoftmax(data:F, bias:F) -> output:F", {"axis": 1, "is_inner_broadcast": REQUIRED_INT}, "same"),
    ("FusedMatMul(A:F, B:F) -> Y:F", _MATMUL, "matmul"),
    ("TransposeMatMul(A:F, B:F) -> Y:F", {"alpha": 1.0, "transA": 0, "transB": 0}, "matmul"),
    (
        "FusedGemm(A:G, B:G, C?:G) -> Y:G",
        {
            "alpha": 1.0,
            "beta": 1.0,
            "transA": 0,
            "transB": 0,
            "activation": STRING,
            "activation_alpha": FLOAT,
            "activation_beta": FLOAT,
            "activation_gamma": FLOAT,
        },
        "matmul",
    ),
    ("FusedConv(X:F, W:F, B?:F, Z?:F) -> Y:F", _CONV | _FUSED, "conv"),
    ("NhwcFusedConv(X:F, W:F, B?:F, Z?:F) -> Y:F", _CONV | _FUSED, "nhwc_conv"),
    ("NhwcConv(X:F, W:F, B?:F) -> Y:F", _CONV, "nhwc_conv"),
    ("NhwcMaxPool(x:Q) -> y:Q", _POOL | {"dilations": INTS}, "type"),
    (
        "MatMulNBits(A:F, B:U, scales:F, zero_points?:Z, g_idx?:I, bias?:F) -> Y:F",
        {
            "K": REQUIRED_INT,
            "N": REQUIRED_INT,
            "bits": 4,
            "block_size": REQUIRED_INT,
            "accuracy_level": 0,
            "weight_prepacked": 0,
        },
        "matmul_nbits",
    ),
    (
        "GatherBlockQuantized(data:B, indices:X, scales:F, zero_points?:B) -> output:F",
        {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1},
        "gather_block",
    ),
    (
        "GroupQueryAttention(query:F, key?:F, value?:F, past_key?:C, past_value?:C, seqlens_k:I, "
        "total_sequence_length:I, cos_cache?:F, sin_cache?:F, position_ids?:L, attention_bias?:F, head_sink?:F, "
        "k_scale?:f, v_scale?:f, q_norm_weight?:F, k_norm_weight?:F, query_seqlens?:I) -> "
        "output:F, present_key?:C, present_value?:C, output_qk?:F",
        {
            "num_heads": REQUIRED_INT,
            "kv_num_heads": REQUIRED_INT,
            "scale": FLOAT,
            "softcap": FLOAT,
            "local_window_size": -1,
            "do_rotary": INT,
            "rotary_interleaved": INT,
            "smooth_softmax": -1,
            "qk_output": 0,
            "k_quant_type": "NONE",
            "v_quant_type": "NONE",
            "kv_cache_bit_width": INT,
            "causal": 1,
            "sliding_window_cache": 0,
            "qk_norm_epsilon": 1e-6,
            "q_norm_epsilon": FLOAT,
            "k_norm_epsilon": FLOAT,
        },
        "gqa",
    ),
    (
        "MultiHeadAttention(query:F, key?:F, value?:F, bias?:F, key_padding_mask?:I, attention_bias?:F, "
        "past_key?:F, past_value?:F, past_sequence_length?:I, cache_indirection?:I) -> "
        "output:F, present_key?:F, present_value?:F, qk?:F1",
        {"num_heads": REQUIRED_INT, "mask_filter_value": FLOAT, "scale": FLOAT, "unidirectional": 0},
        "mha",
    ),
    (
        "Attention(input:F, weights:F, bias?:F, mask_index?:I, past?:F, attention_bias?:F, past_sequence_length?:I)"
        " -> output:F, present?:F",
        {
            "num_heads": REQUIRED_INT,
            "unidirectional": 0,
            "qkv_hidden_sizes": INTS,
            "mask_filter_value": FLOAT,
            "scale": FLOAT,
            "do_rotary": INT,
            "rotary_embedding_dim": INT,
            "past_present_share_buffer": INT,
        },
        "type",
    ),
    (
        "RotaryEmbedding(input:F, position_ids:L, cos_cache:F, sin_cache:F) -> output:F",
        {
            "scale": FLOAT,
            "interleaved": INT,
            "rotary_embedding_dim": INT,
            "num_heads": INT,
            "is_packed_batching": INT,
        },
        "same",
    ),
    (
        "SkipLayerNormalization(input:F, skip:F, gamma:F, beta?:F, bias?:F) -> "
        "output:F, mean?:f, inv_std_var?:f, input_skip_bias_sum?:F",
        {"epsilon": 1e-12},
        "skip_norm",
    ),
    (
        "SkipSimplifiedLayerNormalization(input:F, skip:F, gamma:F, bias?:F) -> "
        "output:F, mean?:f, inv_std_var?:f, input_skip_bias_sum?:F",
        {"epsilon": 1e-12},
        "skip_norm",
    ),
    ("SimplifiedLayerNormalization(X:F, scale:F1) -> Y:F1, inv_std_var?:S", _LN, "norm"),
    (
        "EmbedLayerNormalization(input_ids:I, segment_ids?:I, word_embedding:F, position_embedding:F, "
        "segment_embedding?:F, gamma:F, beta:F, mask?:I, position_ids?:I) -> output:F, mask_index?:I, embedding_sum?:F",
        {"epsilon": 1e-12, "mask_index_type": INT},
        "embed",
    ),
    ("GroupNorm(X:F, gamma:F1, beta:F1) -> Y:F", _GROUPS, "same"),
    ("SkipGroupNorm(X:F, gamma:F1, beta:F1, skip:F, bias?:F) -> Y:F, S?:F", _GROUPS, "same_all"),
    (
        "QLinearAdd(A:Q, A_scale:f, A_zero_point?:Q, B:Q, B_scale:f, B_zero_point?:Q, C_scale:f, C_zero_point?:Q)"
        " -> C:Q",
        {},
        "broadcast_0_3",
    ),
    (
        "QLinearMul(A:Q, A_scale:f, A_zero_point?:Q, B:Q, B_scale:f, B_zero_point?:Q, C_scale:f, C_zero_point?:Q)"
        " -> C:Q",
        {},
        "broadcast_0_3",
    ),
    ("QLinearConcat(Y_scale:f, Y_zero_point:Q, inputs*:M) -> Y:Q", {"axis": REQUIRED_INT}, "type_1"),
    ("QLinearSigmoid(X:Q, X_scale:f, X_zero_point?:Q, Y_scale:f, Y_zero_point?:Q) -> Y:Q", {}, "same"),
    (
        "QLinearLeakyRelu(X:Q, X_scale:f, X_zero_point?:Q, Y_scale:f, Y_zero_point?:Q) -> Y:Q",
        {"alpha": 0.01},
        "same",
    ),
    (
        "QLinearSoftmax(X:Q, X_scale:f, x_zero_point?:Q, y_scale:f, y_zero_point:Q) -> Y:Q",
        {"axis": -1, "opset": REQUIRED_INT},
        "same",
    ),
    (
        "QLinearAveragePool(X:Q, x_scale:f, x_zero_point?:Q, y_scale:f, y_zero_point?:Q) -> Y:Q",
        _POOL | {"count_include_pad": 0, "channels_last": 0},
        "type",
    ),
    (
        "QLinearGlobalAveragePool(X:Q, x_scale:f, x_zero_point:Q, y_scale:f, y_zero_point:Q) -> Y:Q",
        {"channels_last": 0},
        "type",
    ),
    (
        "QLinearConv(x:Q, x_scale:f, x_zero_point:Q, w:Q1, w_scale:f, w_zero_point:Q1, y_scale:f, y_zero_point:Q2, "
        "B?:I) -> y:Q2",
        _CONV | {"channels_last": 0},
        "type",
    ),
    (
        "QGemm(A:Q, a_scale:f, a_zero_point:Q, B:Q1, b_scale:f, b_zero_point:Q1, C?:I, y_scale?:f, y_zero_point?:Q2)"
        " -> Y:M",
        {"alpha": 1.0, "transA": 0, "transB": 0},
        "qgemm",
    ),
    (
        "DynamicQuantizeMatMul(A:f, B:Q, b_scale:f, b_zero_point?:Q, bias?:f) -> Y:f",
        {},
        "matmul",
    ),
    (
        "MatMulIntegerToFloat(A:Q, B:Q1, a_scale:F, b_scale:F, a_zero_point?:Q, b_zero_point?:Q1, bias?:F) -> Y:F",
        {},
        "matmul_scaled",
    ),
    (
        "DynamicQuantizeLSTM(X:f, W:Q, R:Q, B?:f, sequence_lens?:I, initial_h?:f, initial_c?:f, P?:f, W_scale:f, "
        "W_zero_point:Q, R_scale:f, R_zero_point:Q) -> Y?:f, Y_h?:f, Y_c?:f",
        _LSTM,
        "type",
    ),
    ("QuantizeLinear(x:F, y_scale:F, y_zero_point?:R) -> y:R", {"axis": INT}, "quantize"),
    ("DequantizeLinear(x:R, x_scale:F, x_zero_point?:R) -> y:F", {"axis": INT}, "dequantize"),
    ("Trilu(X:A, k?:L) -> Y:A", {"upper": 1}, "same"),
    ("Inverse(X:F) -> Y:F", {}, "same"),
    ("ExpandDims(X:A, axis:I) -> Y:A", {}, "type"),
    ("GatherND(data:A, indices:X) -> output:A", {}, "type"),
    ("Pad(data:F, pads:L, value?:F) -> output:F", {"mode": "constant"}, "type"),
    ("Unique(x:A) -> y:A, idx:L, counts:L", {}, "type"),
    ("IsAllFinite(input*:F) -> output:b", {"isinf_only": 0, "isnan_only": 0}, "scalar_bool"),
)

DEFAULT_DOMAIN: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("SimplifiedLayerNormalization(X:F, scale:F1) -> Y:F1, inv_std_var?:S", _LN, "norm"),
    ("LayerNormalization(X:F, Scale:F1, B?:F1) -> Y:F1, Mean?:S, InvStdDev?:S", _LN, "norm"),
)

_lock = threading.Lock()
_done = False


def register() -> None:
    """Adds every schema of this file to onnx's registry, once per process; schemas that exist already stay."""
    global _done
    with _lock:
        if _done:
            return
        # onnx.reference refuses to be imported once two domains share an operator's name, as ours and onnx's do.
        with contextlib.suppress(ImportError):
            importlib.import_module("onnx.reference.op_run")
        for domain, table in ((MS_DOMAIN, MICROSOFT), ("", DEFAULT_DOMAIN)):
            for signature, attributes, inference in table:
                schema = _schema(domain, signature, attributes, inference)
                if _lookup(schema.name, 1, domain) is None:
                    onnx.defs.register_schema(schema)
        _done = True


def get_schema(op_type: str, opset: int, domain: str = "") -> OpSchema | None:
    """The schema of an operator at an opset (ours included), or None where there is none."""
    register()
    return _lookup(op_type, opset, "" if domain == "ai.onnx" else domain)


def attribute_defaults(schema: OpSchema) -> dict[str, Any]:
    """Attribute name → default value, for the attributes that have one; strings as str."""
    found: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            found[name] = _decoded(onnx.helper.get_attribute_value(attribute.default_value))
    return found


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return [_decoded(v) for v in value] if isinstance(value, list) else value


def _lookup(op_type: str, opset: int, domain: str) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


def _schema(domain: str, signature: str, attributes: dict[str, Any], inference: str) -> OpSchema:
    match = re.fullmatch(r"(\w+)\((.*)\) -> (.*)", signature)
    assert match, signature
    name, inputs, outputs = match.groups()
    used: set[str] = set()
    schema = OpSchema(
        name, domain, 1, f"{name}, as ONNX Runtime defines it.",
        inputs=[_parameter(p, used) for p in inputs.split(", ")],
        outputs=[_parameter(p, used) for p in outputs.split(", ")],
        type_constraints=[(t, [f"tensor({n})" for n in TYPES[t[0]]], "") for t in sorted(used)],
        attributes=[_attribute(k, v) for k, v in attributes.items()],
    )  # fmt: skip
    schema.set_type_and_shape_inference_function(INFERENCE[inference])
    return schema


def _parameter(text: str, used: set[str]) -> OpSchema.FormalParameter:
    name, letter = text.strip().split(":")
    used.add(letter)
    option = OpSchema.FormalParameterOption.Single
    if name.endswith("?"):
        option = OpSchema.FormalParameterOption.Optional
    elif name.endswith("*"):
        option = OpSchema.FormalParameterOption.Variadic
    heterogeneous = name.endswith("*") and letter == "M"
    return OpSchema.FormalParameter(
        name.rstrip("?*"), letter, param_option=option, is_homogeneous=not heterogeneous, min_arity=1
    )


def _attribute(name: str, value: Any) -> OpSchema.Attribute:
    if isinstance(value, str) and value[:1] in ("!", "?"):
        kind = getattr(OpSchema.AttrType, value[1:])
        return OpSchema.Attribute(name, kind, required=value[0] == "!")
    return OpSchema.Attribute(name, onnx.helper.make_attribute(name, value))
