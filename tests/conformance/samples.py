"""The small table of representative nodes: every operator that has a kernel, in every form that its opsets have.

`VERSIONS` says which schema version of each operator the table was written for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import onnx.defs

import webrt.ops  # noqa: F401 (registers the operators)
from tests.conformance import (
    samples_elementwise,
    samples_microsoft,
    samples_spatial,
    samples_special,
    samples_tensors,
)  # fmt: skip
from tests.conformance.samples_data import Sample
from webrt import lowering, schemas
from webrt.compiler.bodies import BODIES
from webrt.dtypes import SMALL

Key = tuple[str, str]
FIRST = 7
TYPES = (
    "float32", "float16", "bfloat16", "int32", "uint32", "int64", "uint64", "bool", "int8", "uint8", "int16", "uint16",
    *sorted(t.name for t in SMALL),
)  # fmt: skip
"""The element types that kernels compute with, and those that they only read and write."""
NEWEST = onnx.defs.onnx_opset_version()

# The newest schema version of the operators of the default domain that have kernels.
_VERSIONS: Mapping[int, str] = {
    1: "Not SimplifiedLayerNormalization",
    7: "And Or Xor",
    9: "Shrink",
    10: "ConvInteger MatMulInteger QLinearConv Upsample",
    11: "DynamicQuantizeLinear NonMaxSuppression Scatter",
    13: "Abs ArgMax ArgMin Ceil Clip Concat Erf Exp Expand Floor Gather GatherElements GatherND Gemm Greater "
    "Hardmax LRN Less Log LogSoftmax MatMul Max Mean MeanVarianceNormalization Min Neg NonZero Reciprocal "
    "ReduceSum Sigmoid Sign Slice Softmax Sqrt Sum Tanh Tile",
    14: "Add CumSum Div Mul Relu Sub Trilu",
    15: "BatchNormalization Pow",
    16: "GreaterOrEqual LeakyRelu LessOrEqual PRelu Where",
    17: "LayerNormalization MelWeightMatrix STFT",
    18: "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im ReduceL1 ReduceL2 ReduceMean ReduceProd "
    "ReduceSumSquare ScatterElements ScatterND Split",
    19: "Equal Resize",
    20: "AffineGrid DFT Gelu IsInf IsNaN ReduceMax ReduceMin",
    21: "GroupNormalization QLinearMatMul",
    22: "Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det "
    "Dropout Elu EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish "
    "InstanceNormalization LSTM LpNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish Multinomial RNN "
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus Softsign "
    "Tan ThresholdedRelu",
    23: "RMSNormalization RotaryEmbedding",
    24: "Swish TensorScatter TopK",
    25: "CastLike ConstantOfShape Flatten Identity Pad Reshape Shape Size Squeeze Transpose Unsqueeze",
    26: "BitCast CumProd",
    27: "Range",
    28: "BitShift Cast Celu Compress DepthToSpace DequantizeLinear Einsum Mod OneHot QuantizeLinear ReduceLogSum "
    "ReduceLogSumExp ReverseSequence SpaceToDepth Unique",
}
VERSIONS: Mapping[str, int] = {name: version for version, names in _VERSIONS.items() for name in names.split()}


@lru_cache(maxsize=1)
def samples() -> tuple[Sample, ...]:
    """All samples."""
    files = (samples_elementwise, samples_tensors, samples_spatial, samples_special, samples_microsoft)
    return tuple(x for file in files for x in file.samples())


def operators() -> set[Key]:
    """(domain, name) of every operator with a kernel, or a function body of ours."""
    return {*((r.domain, r.name) for r in lowering.registered()), *BODIES}


@lru_cache(maxsize=1)
def _history() -> Mapping[Key, frozenset[int]]:
    schemas.register()
    found: dict[Key, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return {key: frozenset(versions) for key, versions in found.items()}


def since_versions(key: Key) -> frozenset[int]:
    """The opsets at which the schema of an operator changed."""
    return _history()[key]


def opsets(sample: Sample) -> list[int]:
    """Where the sample is tried: at its first and last opset, and at each schema version between them."""
    last = NEWEST if sample.until is None else sample.until
    versions = since_versions((sample.domain, sample.op)) if not sample.domain else frozenset[int]()
    return sorted({sample.since, last, *(v for v in versions if sample.since <= v <= last)})


def required_opsets(key: Key) -> set[int]:
    """Every opset from 7 on that must have a sample: the schema's versions, 7 where it is older, and the newest."""
    entries = [r for r in lowering.registered() if (r.domain, r.name) == key]
    versions = since_versions(key)
    wanted = {v for v in versions if v >= FIRST} | ({FIRST} if min(versions) <= FIRST else set()) | {NEWEST}
    return {v for v in wanted if any(e.since <= v <= (e.until or NEWEST) for e in entries)}


def allowed(key: Key, opset: int) -> Mapping[str, list[str]]:
    """The types of each type parameter of the operator's schema (or of each operand, where it has none): our names for
    tensors ("float32"), else ONNX's text."""
    schema = schemas.get_schema(key[1], opset, key[0])
    if schema is None:
        return {}
    texts = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
    texts = texts or {x.name: [x.type_str] for x in (*schema.inputs, *schema.outputs)}
    return {parameter: [_type_name(t) for t in types] for parameter, types in texts.items()}


def _type_name(text: str) -> str:
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    return {"float": "float32", "double": "float64"}.get(found[1], found[1]) if found else text


def types_of(key: Key, opset: int, parameter: str) -> list[str]:
    """The types of a type parameter of the operator's schema that kernels compute with."""
    return [n for n in allowed(key, opset).get(parameter, []) if n in TYPES]


def newest_samples() -> Iterator[Sample]:
    """Samples that are valid at the newest opset, or else at their last."""
    newest = [x for x in samples() if x.until is None]
    have = {(x.domain, x.op) for x in newest}
    yield from newest
    yield from (x for x in samples() if (x.domain, x.op) not in have)


def newest_opset(sample: Sample) -> int:
    """The last opset at which the sample is valid."""
    return NEWEST if sample.until is None else sample.until
