"""com.microsoft's GatherBlockQuantized: slices of a tensor quantised in blocks along one axis, dequantised.

Source: ONNX Runtime's ContribOperators.md; numbers of 2 or 4 bits lie in bytes along the last axis, the lowest first.
"""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, ShapeError
from webrt.ir import Node
from webrt.lowering import Builder, Info, Operand, Shape, normalize_axis, op, require
from webrt.ops.gather import table_parts
from webrt.ops.indices import index_fns
from webrt.ops.view import element_type
from webrt.schemas import MS_DOMAIN


def _per_byte(n: Node) -> int:
    bits = int(n.attr("bits", 4))
    if bits not in (2, 4, 8):
        raise InvalidModel(f"bits is {bits}; 2, 4 and 8 are known")
    return 8 // bits if n.input(0).dtype == T.U8 else 1


def _logical(n: Node) -> Shape:
    """The shape of the numbers."""
    *lead, last = n.input(0).known_shape
    return (*lead, D.mul(last, _per_byte(n)))


def _shape(n: Node) -> list[Info]:
    data, axis = _logical(n), normalize_axis(int(n.attr("gather_axis")), n.input(0).rank)
    return [(n.input(2).dtype, (*data[:axis], *n.input(1).known_shape, *data[axis + 1 :]))]


@op("GatherBlockQuantized", domain=MS_DOMAIN, shape=_shape)
def gather_block_quantized(n: Node, b: Builder) -> None:
    data, indices, scales = n.input(0), n.input(1), n.input(2)
    require([indices], T.I32, T.I64)
    require([scales], T.F32, T.F16, T.BF16)
    shape, per = _logical(n), _per_byte(n)
    axis = normalize_axis(int(n.attr("gather_axis")), data.rank)
    along = normalize_axis(int(n.attr("quantize_axis")), data.rank)
    block = int(n.attr("block_size"))
    _check_blocks(n, b, shape, along, block)
    inner = D.prod(shape[axis + 1 :])
    text = f"""let r = i % p.inner;
let t = i / p.inner;
let e = ((t / p.count) * p.size + index_indices(t % p.count, p.size)) * p.inner + r;
let row = e / p.under;
let s = ((row / p.length) * p.blocks + (row % p.length) / p.block) * p.under + e % p.under;
let place = {"e" if per == 1 else f"e / {per}u"};"""
    value = f"return ({_number('data', 'here', 'e', per)} - {_zero(n, per)}) * load_scales(s);"
    params: dict[str, Dim | float] = {
        "inner": inner, "count": indices.elements, "size": shape[axis], "under": D.prod(shape[along + 1 :]),
        "length": shape[along], "blocks": scales.known_shape[along], "block": block, "last": scales.known_shape[-1],
    }  # fmt: skip
    reads: dict[str, Operand] = {"indices": indices, "scales": scales}
    if n.has(3):
        reads["zeros"] = n.input(3)
        params["bytes"] = n.input(3).known_shape[-1]
    for part, more, here in table_parts(b, n.output(), data, element_type(data)):
        b.map(
            n.output(), f"{text}\n{here}\n{value}", reads={"data": part, **reads}, params={**params, **more},
            fns=index_fns("indices", indices), name="gather_blocks",
        )  # fmt: skip


def _check_blocks(n: Node, b: Builder, shape: Shape, along: int, block: int) -> None:
    scales = n.input(2).known_shape
    if block < 16 or block & (block - 1):
        raise InvalidModel(f"block_size is {block}; a power of two of at least 16 is needed")
    if len(scales) != len(shape):
        raise ShapeError(f"the scales have rank {len(scales)}, the data {len(shape)}")
    for a, (have, size) in enumerate(zip(scales, shape)):
        want = D.ceildiv(size, block) if a == along else size
        b.check(D.eq(have, want), f"axis {a} of the scales has size {have}, {want} is needed")


def _number(name: str, at: str, place: str, per: int) -> str:
    """Number `place` of the tensor, which is in element `at` of what is bound, as f32."""
    if per == 1:
        return f"f32(load_{name}({at}))"
    bits = 8 // per
    return f"f32(extractBits(load_{name}({at}), ({place} % {per}u) * {bits}u, {bits}u))"


def _zero(n: Node, per: int) -> str:
    """The zero point of block s, as f32."""
    if not n.has(3):
        return f"{float(1 << (int(n.attr('bits', 4)) - 1))!r}" if n.input(0).dtype == T.U8 else "0.0"
    if per == 1:
        return "f32(load_zeros(s))"
    bits = 8 // per
    place = f"(s / p.last) * p.bytes + (s % p.last) / {per}u"
    return f"f32(extractBits(load_zeros({place}), (s % p.last % {per}u) * {bits}u, {bits}u))"
