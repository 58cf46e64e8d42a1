"""CumSum and CumProd: long rows are scanned in parts, each starting from the totals of the parts before it."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.ir import Node
from webrt.lowering import Builder, Variant, grid, normalize_axis, op, require, same_as_first
from webrt.ops.reduce import NUMBERS, accumulator, product_fold, sum_fold
from webrt.ops.rows import MAX_LENGTH, Rows, split


@op("CumSum", "CumProd", shape=same_as_first)
def cumulative(n: Node, b: Builder) -> None:
    x, name = n.input(0), n.op_type.lower()
    require([x], *NUMBERS)
    rows = Rows.of(x.known_shape, [normalize_axis(int(n.const(1).item()), x.rank)])
    acc = accumulator(x.dtype)
    fold = sum_fold(acc, "v") if n.op_type == "CumSum" else product_fold(acc)
    b.check(D.lt(rows.length, MAX_LENGTH), f"{n.op_type} over more than {MAX_LENGTH} elements")
    parts, chunk = split(rows.count, rows.length) or (1, rows.length)
    out = n.output() if n.output().dtype == acc else b.temp(acc, x.known_shape)
    params: dict[str, Dim] = {**rows.params(), "parts": parts, "chunk": chunk}
    place = "p.length - 1u - r" if n.attr("reverse") else "r"
    fns = [
        *rows.walk(),
        f"fn place(r: u32) -> u32 {{ return {place}; }}",
        f"fn merge(a: {acc.wgsl}, v: {acc.wgsl}) -> {acc.wgsl} {{ return {fold.merge}; }}",
    ]
    acc_alias, reads, use = {"Acc": acc.wgsl}, {"x": x}, ("int64",) if acc in T.INTS64 else ()
    carry = f"return {fold.first};"
    if parts != 1:
        totals = b.temp(acc, (rows.count, parts))
        b.map(
            totals, _TOTAL.format(first=fold.first), reads=reads, params=params, use=use,
            fns=[f"alias Acc = {acc.wgsl};", *fns], name=f"{name}_part",
        )  # fmt: skip
        reads, carry = {"x": x, "part": totals}, _CARRY.format(first=fold.first)
    invocations = D.mul(rows.count, parts)
    variant = Variant(
        "scan", grid(invocations), consts={"EXCLUSIVE": bool(n.attr("exclusive"))}, types=acc_alias, use=use,
        fns=[*fns, f"fn carry(i: u32) -> Acc {{\n{carry}\n}}"],
    )  # fmt: skip
    b.launch(variant, reads=reads, writes={"out": out}, params={"n": invocations, **params}, name=name)
    if out is not n.output():
        b.map(n.output(), "return load_x(i);", reads={"x": out}, name="convert")


_TOTAL = """let base = row_base(i / p.parts);
let begin = (i % p.parts) * p.chunk;
let end = min(begin + p.chunk, p.length);
var a = {first};
for (var r = begin; r < end; r += 1u) {{ a = merge(a, load_x(base + row_at(place(r)))); }}
return a;"""

_CARRY = """var a = {first};
for (var k = i - i % p.parts; k < i; k += 1u) {{ a = merge(a, load_part(k)); }}
return a;"""
