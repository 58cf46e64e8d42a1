"""Softmax, LogSoftmax and Hardmax: below opset 13 over all axes from `axis` on, from 13 along `axis` alone.

Largest and sum are in f32 for all types. Rows that one invocation can hold take the kernel softmax_rows, others a fold
for the largest, one for the sum, and an elementwise pass.
"""

from __future__ import annotations

import math
from dataclasses import replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.ir import Node, Value
from webrt.lowering import WORKGROUP, Builder, Variant, grid, normalize_axis, op, require, same_as_first
from webrt.ops.argminmax import arg_rows
from webrt.ops.product_variants import SOFTWARE
from webrt.ops.reduce import extreme, row_sums
from webrt.ops.rows import Rows, fold_rows, split

UNIT = {1: "f32", 4: "vec4<f32>"}
"""The type of a unit of 1 or 4 elements; shaders/lib/unit1.wgsl and unit4.wgsl work on it."""

FEW = 8
"""Invocations of a workgroup on software adapters, where a workgroup is work for one core."""


def _rows(n: Node) -> Rows:
    shape = n.input(0).known_shape
    axis = normalize_axis(n.attr("axis"), len(shape))
    return Rows.of(shape, [axis] if n.opset >= 13 else range(axis, len(shape)))


@op("Softmax", "LogSoftmax", shape=same_as_first)
def softmax(n: Node, b: Builder) -> None:
    require([n.input(0)], *T.FLOATS)
    softmax_rows(b, n.output(), n.input(0), _rows(n), log=n.op_type == "LogSoftmax")


def softmax_rows(b: Builder, out: Value, x: Value, rows: Rows, *, log: bool = False, masked: bool = False) -> None:
    """exp(x - m) / Σ exp(x - m), or its logarithm, of each row; m is the row's largest element.

    A row of -inf alone gives NaN, or 0 where it is `masked`.
    """
    name = "logsoftmax" if log else "softmax"
    if x.dtype == out.dtype == T.F32 and rows.contiguous and split(rows.count, rows.length) is None:
        vec = rows.vec(x)
        told, same = {"LOG": log, "MASKED": masked}, {"x": vec, "out": vec}
        many = Variant(
            "softmax_rows", grid(rows.count), consts={**told, "GROUP": WORKGROUP}, types={"V": UNIT[vec]},
            use=(f"unit{vec}",), vec=same,
        )  # fmt: skip
        few = replace(many, groups=grid(rows.count, FEW), consts={**told, "GROUP": FEW}, requires=SOFTWARE)
        if vec == 1:
            few = replace(few, body="softmax_unaligned", types={}, use=(), vec={"x": 4})
        params = {"n": rows.count, "length": D.floordiv(rows.length, vec), "lowest": -math.inf}
        b.launch(few, many, reads={"x": x}, writes={"out": out}, params=params, name=name)
        return
    top = b.temp(T.F32, (rows.count,))
    widest = extreme(T.F32, True)
    if masked:
        widest = replace(widest, finish="select(a, 0.0, bitcast<u32>(a) == p.first)")
    fold_rows(b, top, x, rows, widest, name="row_max")
    finish = f"select({'log(a)' if log else 'a'}, f32_nan(), is_nan(c) || is_inf(c))"
    finish = f"select({finish}, 1.0, a == 0.0)" if masked else finish
    total = row_sums(b, x, rows, "exp(v - c)", finish, context=top, use=("nan", "float"), name="row_exp_sum")
    value = "(v - load_top(r)) - load_total(r)" if log else "exp(v - load_top(r)) / load_total(r)"
    b.map(
        out,
        f"let r = row_of(i);\nlet v = load_x(i);\nreturn {value};",
        reads={"x": x, "top": top, "total": total}, params=rows.sizes(), fns=rows.locate(), name=name,
    )  # fmt: skip


@op("Hardmax", shape=same_as_first)
def hardmax(n: Node, b: Builder) -> None:
    x, rows = n.input(0), _rows(n)
    require([x], *T.FLOATS)
    place = b.temp(T.U32, (rows.count,))
    arg_rows(b, place, x, rows, largest=True, name="row_argmax")
    b.map(
        n.output(),
        "return select(0.0, 1.0, place_of(i) == load_place(row_of(i)));",
        reads={"place": place}, params=rows.sizes(), fns=rows.locate(), name="hardmax",
    )  # fmt: skip
