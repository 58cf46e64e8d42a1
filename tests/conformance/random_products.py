"""Random cases of products, normalizations, quantization and the operators of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.random_draw import Draw
from tests.conformance.samples_data import Array, Sample, s, scalar

MS = "com.microsoft"
Case = Callable[[Draw], Sample]
EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "bhij,bhkj->bhik", "ij->ji", "bij->b", "i,j->ij", "ij,ij->", "bij,jk", "ij->",
    "abc,cd->dab", "bi,bj->bij", "ab,bc->ac",
)  # fmt: skip
SCALES = (0.5, 0.25, 2.0, 1.0)


def cases() -> Mapping[str, Case]:
    """A maker of cases for each operator."""
    return {
        "MatMul": matmul, "Gemm": gemm, "Einsum": einsum, "ms FusedMatMul": partial(fused_matmul, "FusedMatMul"),
        "ms TransposeMatMul": partial(fused_matmul, "TransposeMatMul"), "MatMulInteger": matmul_integer,
        "QLinearMatMul": qlinear_matmul, "ms MatMulNBits": matmul_nbits, "ms GroupQueryAttention": attention,
        "QuantizeLinear": partial(quantize, ""), "ms QuantizeLinear": partial(quantize, MS),
        "DequantizeLinear": partial(dequantize, ""), "ms DequantizeLinear": partial(dequantize, MS),
        "DynamicQuantizeLinear": dynamic_quantize, "RotaryEmbedding": rotary, "ms RotaryEmbedding": ms_rotary,
        "BatchNormalization": batch_norm, "InstanceNormalization": instance_norm, "LayerNormalization": layer_norm,
        "GroupNormalization": group_norm, "RMSNormalization": rms_norm, "LpNormalization": lp_norm, "LRN": lrn,
        "MeanVarianceNormalization": mvn, "SimplifiedLayerNormalization": partial(simplified, ""),
        "ms SimplifiedLayerNormalization": partial(simplified, MS),
        "ms SkipLayerNormalization": partial(skip_norm, "SkipLayerNormalization"),
        "ms SkipSimplifiedLayerNormalization": partial(skip_norm, "SkipSimplifiedLayerNormalization"),
    }  # fmt: skip


def size(d: Draw) -> int:
    """Mostly small, sometimes at the edge of a tile."""
    return int(d.pick(3, 1, 2, 4, 5, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65))


def weights(d: Draw) -> list[int]:
    """Whether the second input is an initializer."""
    return [1] if d.chance(50) else []


def matmul(d: Draw) -> Sample:
    opset, k = d.opset("MatMul"), size(d)
    lead = [d.number(1, 3) for _ in range(d.number(0, 2))]
    a = [*d.broadcast(lead), size(d), k] if d.chance(85) else [k]
    b = [*d.broadcast(lead), k, size(d)] if d.chance(85) else [k]
    name = d.type("MatMul", opset, only=("float32", "int32", "uint32"))
    return s("MatMul", d.exact(name, a), d.exact(name, b), since=opset, const=weights(d))


def gemm(d: Draw) -> Sample:
    opset, (m, n, k) = d.opset("Gemm"), (size(d) for _ in range(3))
    ta, tb = d.number(0, 1), d.number(0, 1)
    a, b = d.exact("float32", (k, m) if ta else (m, k)), d.exact("float32", (n, k) if tb else (k, n))
    bias = d.exact("float32", d.pick((m, n), (n,), (1, n), (m, 1), (), (1,)))
    inputs = [a, b] if opset >= 11 and d.chance(20) else [a, b, bias]
    factors = {"alpha": d.pick(1.0, 0.5, 2.0), "beta": d.pick(1.0, 0.25, 0.0)}
    return s("Gemm", *inputs, since=opset, const=weights(d), transA=ta, transB=tb, **factors)


def einsum(d: Draw) -> Sample:
    equation = d.pick(*EQUATIONS)
    sizes = {c: d.number(1, 9) for c in "abcdhijk"}
    terms = equation.split("->")[0].split(",")
    return s("Einsum", *(d.exact("float32", [sizes[c] for c in t]) for t in terms), since=d.opset("Einsum", 12),
             equation=equation)  # fmt: skip


def fused_matmul(op: str, d: Draw) -> Sample:
    m, n, k, ta, tb = size(d), size(d), size(d), d.number(0, 1), d.number(0, 1)
    lead = [d.number(1, 3)] if d.chance(50) else []
    a = d.exact("float32", [*lead, *((k, m) if ta else (m, k))])
    b = d.exact("float32", [*lead, *((n, k) if tb else (k, n))])
    return s(op, a, b, domain=MS, transA=ta, transB=tb, alpha=d.pick(1.0, 0.5, -2.0))


def bytes_of(d: Draw, shape: Sequence[int], name: str) -> Array:
    """All of a type of 8 or 16 bits."""
    info = np.iinfo(name)
    return d.values.integers(info.min, info.max, tuple(shape), dtype=np.dtype(name), endpoint=True)


def matmul_integer(d: Draw) -> Sample:
    m, n, k = size(d), size(d), size(d)
    a, b = bytes_of(d, (m, k), d.pick("uint8", "int8")), bytes_of(d, (k, n), d.pick("uint8", "int8"))
    zeros = [bytes_of(d, (), a.dtype.name), bytes_of(d, (), b.dtype.name)][: d.number(0, 2)]
    return s("MatMulInteger", a, b, *zeros, since=10, const=weights(d))


def qlinear_matmul(d: Draw) -> Sample:
    m, n, k, name = size(d), size(d), size(d), d.pick("uint8", "int8")
    a, b, zeros = bytes_of(d, (m, k), name), bytes_of(d, (k, n), name), [bytes_of(d, (), name) for _ in range(3)]
    return s("QLinearMatMul", a, scalar(0.5), zeros[0], b, scalar(0.25), zeros[1], scalar(d.pick(16, 64)), zeros[2],
             since=d.opset("QLinearMatMul", 10))  # fmt: skip


def matmul_nbits(d: Draw) -> Sample:
    bits, block = d.pick(4, 8), d.pick(16, 32, 64)
    n, blocks, rows = size(d), d.number(1, 3), d.number(1, 9)
    k = block * blocks - d.pick(0, 8)
    inputs: list[Array | None] = [
        d.exact("float32", (rows, k)), bytes_of(d, (n, blocks, block * bits // 8), "uint8"),
        d.exact("float32", (n * blocks,), 1, 16),
    ]  # fmt: skip
    if d.chance(50):
        inputs.append(bytes_of(d, (n * ((blocks * bits + 7) // 8),), "uint8"))
    return s("MatMulNBits", *inputs, domain=MS, const=range(1, len(inputs)), K=k, N=n, bits=bits, block_size=block)


def attention(d: Draw) -> Sample:
    groups, width, batch, past = d.number(1, 2), 8 * d.number(1, 2), d.number(1, 2), d.number(1, 9)
    heads = groups * d.number(1, 2)
    q, k, v = (d.normal("float32", (batch, 1, n * width)) for n in (heads, groups, groups))
    cache = [d.normal("float32", (batch, groups, past, width)) for _ in "kv"]
    lengths = np.full(batch, past, np.int32)
    return s("GroupQueryAttention", q, k, v, *cache, lengths, np.array([past + 1], np.int32), domain=MS, outputs=3,
             const=[6], symbolic=False, num_heads=heads, kv_num_heads=groups)  # fmt: skip


def quantize(domain: str, d: Draw) -> Sample:
    opset = 28 if domain else d.opset("QuantizeLinear", 10, 25)
    x, name = d.shape(1, 4), d.pick("uint8", "int8", *(["int16", "uint16"] if opset >= 21 else []))
    data = d.exact("float32", x, -3000, 3000)
    if domain or opset < 13 or d.chance(50):
        inputs = [scalar(d.pick(*SCALES)), bytes_of(d, (), name)]
        return s("QuantizeLinear", data, *inputs, domain=domain, since=opset)
    axis = d.axis(len(x))
    inputs = [d.values.choice(np.array(SCALES, np.float32), x[axis]), bytes_of(d, (x[axis],), name)]
    return s("QuantizeLinear", data, *inputs, since=opset, axis=axis)


def dequantize(domain: str, d: Draw) -> Sample:
    opset = 28 if domain else d.opset("DequantizeLinear", 10, 25)
    x, name = d.shape(1, 4), d.pick("uint8", "int8", *(["int16", "uint16"] if opset >= 21 else []))
    data, axis = bytes_of(d, x, name), d.axis(len(x))
    if domain or opset < 13 or d.chance(40):
        return s("DequantizeLinear", data, scalar(d.pick(*SCALES)), bytes_of(d, (), name), domain=domain, since=opset)
    if opset >= 21 and x[axis] and d.chance(50):
        block = d.number(1, x[axis])
        part = list(x)
        part[axis] = -(-x[axis] // block)
        return s("DequantizeLinear", data, d.exact("float32", part, 1, 9), bytes_of(d, part, name), since=opset,
                 axis=axis, block_size=block)  # fmt: skip
    return s("DequantizeLinear", data, d.exact("float32", (x[axis],), 1, 9), bytes_of(d, (x[axis],), name),
             since=opset, axis=axis)  # fmt: skip


def dynamic_quantize(d: Draw) -> Sample:
    return s("DynamicQuantizeLinear", d.normal("float32", d.shape(0, 4, empty=False), 9), since=11, outputs=3)


def rotary(d: Draw) -> Sample:
    half, heads, steps, batch = d.number(1, 5), d.number(1, 4), d.number(1, 5), d.number(1, 2)
    ids = d.indices(9, (batch, steps), negative=False)
    cache = [d.normal("float32", (9, half)) for _ in range(2)]
    attrs = {"interleaved": d.number(0, 1)}
    if d.chance(50):
        return s(
            "RotaryEmbedding", d.normal("float32", (batch, heads, steps, 2 * half)), *cache, ids, since=23, **attrs
        )
    x = d.normal("float32", (batch, steps, heads * 2 * half))
    cache = [c[ids] for c in cache]
    return s("RotaryEmbedding", x, *cache, since=23, num_heads=heads, **attrs)


def ms_rotary(d: Draw) -> Sample:
    half, heads, steps, batch = 4 * d.number(1, 3), d.number(1, 4), d.number(1, 5), d.number(1, 2)
    ids = d.indices(9, (batch, steps), negative=False)
    cache = [d.normal("float32", (9, half)) for _ in range(2)]
    x = d.normal("float32", (batch, heads, steps, 2 * half))
    return s("RotaryEmbedding", x, ids, *cache, domain=MS, interleaved=d.number(0, 1))


def picture(d: Draw, channels: int) -> Array:
    """[batch, channels, axis …]"""
    return d.normal("float32", [d.number(1, 3), channels, *(d.number(1, 9) for _ in range(d.number(1, 3)))])


def batch_norm(d: Draw) -> Sample:
    opset, c = d.opset("BatchNormalization"), d.number(1, 9)
    inputs = [d.normal("float32", (c,)) for _ in range(3)] + [d.exact("float32", (c,), 1, 20)]
    attrs: dict[str, Any] = {"epsilon": d.pick(1e-5, 0.1)}
    training = opset >= 14 and d.chance(30)
    attrs |= {"training_mode": 1, "momentum": 0.75} if training else {}
    return s("BatchNormalization", picture(d, c), *inputs, since=opset, outputs=3 if training else 1, **attrs)


def instance_norm(d: Draw) -> Sample:
    c = d.number(1, 9)
    x = d.normal("float32", [2, c, d.number(2, 9), d.number(2, 65)])
    scale, bias = d.normal("float32", (c,)), d.normal("float32", (c,))
    return s("InstanceNormalization", x, scale, bias, since=d.opset("InstanceNormalization"), epsilon=d.pick(1e-5, 0.1))


def layer_norm(d: Draw) -> Sample:
    x = (*d.shape(0, 3, empty=False), d.number(2, 65))
    axis = d.axis(len(x))
    inputs = [d.normal("float32", x[axis:]) for _ in range(d.number(1, 2))]
    wanted = d.number(1, 3)
    return s("LayerNormalization", d.normal("float32", x), *inputs, since=17, outputs=wanted, axis=axis, epsilon=1e-2)


def group_norm(d: Draw) -> Sample:
    groups, each = d.number(1, 3), d.number(1, 4)
    x = d.normal("float32", [2, groups * each, d.number(2, 9), d.number(2, 9)])
    scale, bias = d.normal("float32", (groups * each,)), d.normal("float32", (groups * each,))
    return s("GroupNormalization", x, scale, bias, since=21, num_groups=groups)


def rms_norm(d: Draw) -> Sample:
    x = (*d.shape(0, 3, empty=False), d.number(2, 65))
    axis = d.axis(len(x))
    return s("RMSNormalization", d.normal("float32", x), d.normal("float32", x[axis:]), since=23, axis=axis)


def simplified(domain: str, d: Draw) -> Sample:
    x = (*d.shape(0, 3, empty=False), d.number(2, 65))
    return s("SimplifiedLayerNormalization", d.normal("float32", x), d.normal("float32", x[-1:]), domain=domain)


def skip_norm(op: str, d: Draw) -> Sample:
    x = (2, d.number(1, 9), d.number(2, 65))
    inputs = [d.normal("float32", x), d.normal("float32", x), d.normal("float32", x[-1:])]
    inputs += [d.normal("float32", x[-1:])] if d.chance(50) else []
    return s(op, *inputs, domain=MS, epsilon=0.01)


def lp_norm(d: Draw) -> Sample:
    x = d.shape(1, 4, empty=False)
    opset = d.opset("LpNormalization")
    return s("LpNormalization", d.normal("float32", x), since=opset, axis=d.axis(len(x)), p=d.number(1, 2))


def lrn(d: Draw) -> Sample:
    x = d.normal("float32", [2, d.number(1, 9), d.number(1, 9), d.number(1, 9)])
    return s("LRN", x, since=d.opset("LRN"), size=d.pick(1, 3, 5), alpha=0.5, beta=0.75, bias=d.pick(1.0, 2.0))


def mvn(d: Draw) -> Sample:
    x = d.normal("float32", [3, d.number(2, 5), d.number(2, 5), d.number(2, 5)])
    axes = d.pick([0, 2, 3], [2, 3], [0, 1, 2, 3])
    return s("MeanVarianceNormalization", x, since=d.opset("MeanVarianceNormalization", 9), axes=axes)
