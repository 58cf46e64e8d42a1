"""MatMulNBits over weights that are dequantised first, for what the kernel over packed numbers does not take."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import Builder, require
from webrt.ops.indices import index_fns
from webrt.ops.product import Product, product
from webrt.ops.vectors import Epilogue, widened


def multiply_dequantized(n: Node, b: Builder, epilogue: Epilogue) -> None:
    """A · weights, with the weights dequantised first: any bits and block size, g_idx, weights that are fed."""
    a, columns, k = n.input(0), int(n.attr("N")), int(n.attr("K"))
    product(b, Product(D.prod(a.known_shape[:-1]), columns, k), widened(b, a), _weights(n, b), n.output(), epilogue)


def _weights(n: Node, b: Builder) -> Value:
    """f32 [K, N]."""
    columns, k, bits, block = (int(n.attr(name)) for name in ("N", "K", "bits", "block_size"))
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8:
        raise UnsupportedOp(f"MatMulNBits of {bits} bits in blocks of {block}")
    require([n.input(2)], *T.FLOATS)
    count = -(-k // block)
    b.check(D.eq(n.input(1).elements, columns * count * block * bits // 8), "B does not hold N rows of blocks")
    b.check(D.eq(n.input(2).elements, columns * count), f"{columns} × {count} blocks have other scales")
    reads = {"b": n.input(1), "scales": n.input(2)}
    params: dict[str, Dim | float] = {"columns": columns, "row": count * block * bits // 8, "blocks": count}
    number = f"(load_b(n * p.row + k * {bits}u / 8u) >> (k * {bits}u % 8u)) & {(1 << bits) - 1}u"
    group, fns = f"k / {block}u", list[str]()
    if n.has(4):
        require([n.input(4)], T.I32)
        b.check(D.le(k, n.input(4).elements), f"g_idx has {n.input(4).elements} elements, K is {k}")
        reads["index"], group, fns = n.input(4), "index_index(k, p.blocks)", index_fns("index", n.input(4))
    zero = f"{1 << (bits - 1)}.0"
    if n.has(3):
        reads["zeros"], zero = n.input(3), _zero(n, b, bits, count, columns, params)
    text = f"""let k = i / p.columns;
let n = i % p.columns;
let g = {group};
return (f32({number}) - {zero}) * load_scales(n * p.blocks + g);"""
    out = b.temp(T.F32, (k, columns))
    b.map(out, text, reads=reads, params=params, fns=fns, name="nbits_dequantize")
    return out


def _zero(n: Node, b: Builder, bits: int, count: int, columns: int, params: dict[str, Dim | float]) -> str:
    zeros = n.input(3)
    if zeros.dtype in T.FLOATS:
        b.check(D.eq(zeros.elements, columns * count), f"{columns} × {count} blocks have other zero points")
        return "load_zeros(n * p.blocks + g)"
    require([zeros], T.U8)
    stride = -(-count * bits // 8)
    params["zero_row"] = stride
    b.check(D.eq(zeros.elements, columns * stride), f"{columns} × {count} blocks have other zero points")
    return f"f32((load_zeros(n * p.zero_row + g * {bits}u / 8u) >> (g * {bits}u % 8u)) & {(1 << bits) - 1}u)"
