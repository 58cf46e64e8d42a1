"""ReduceSum, ReduceMean, ReduceMax and the rest of ONNX's Reduce* operators.

Floats are folded in f32, integers in 32 bits (wrapping), int64 exactly in two words. An empty reduction gives
the identity: 0 for sums, 1 for products, the type's smallest value for Max and the largest for Min, NaN for Mean.
Source: the ONNX operator texts; NaN propagates as in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Shape, normalize_axis, op, require
from webrt.ops import args
from webrt.ops.rows import Fold, Rows, fold_rows
from webrt.ops.vectors import IDENTITY, Epilogue

NUMBERS = (T.F32, T.F16, T.BF16, T.I32, T.U32, T.I64, T.U64)


def reduced_axes(n: Node) -> tuple[int, ...]:
    """The axes of a Reduce* node, from attribute or input; raises NotConstant where they are not known."""
    given, rank = args.ints(n, "axes", 1), n.input(0).rank
    if not given:
        return () if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    axes = sorted(normalize_axis(a, rank) for a in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axes {given} name one axis twice")
    return tuple(axes)


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape after a reduction along non-negative axes."""
    if keepdims:
        return tuple(1 if k in axes else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in axes)


def _shape(n: Node) -> list[Info]:
    x = n.input(0)
    return [(x.dtype, reduced_shape(x.known_shape, reduced_axes(n), bool(n.attr("keepdims", 1))))]


def accumulator(dtype: DType | None) -> DType:
    """The type that a fold over `dtype` computes in."""
    if dtype in T.FLOATS:
        return T.F32
    if dtype in T.INTS64 and dtype is not None:
        return dtype
    return T.I32 if dtype in T.SIGNED else T.U32


def sum_fold(acc: DType, term: str) -> Fold:
    """Σ of `term` over the elements `v`."""
    if acc in T.INTS64:
        add = "i64_add(a, {})"
        return Fold(acc, "vec2<u32>(0u, 0u)", add.format(term), add.format("v"))
    return Fold(acc, "Acc(0)", f"a + {term}", "a + v")


def _square(acc: DType) -> str:
    return "i64_mul(v, v)" if acc in T.INTS64 else "v * v"


def _magnitude(acc: DType) -> str:
    if acc in (T.U32, T.U64):
        return "v"
    return "select(v, i64_neg(v), (v.y >> 31u) == 1u)" if acc == T.I64 else "abs(v)"


def product_fold(acc: DType) -> Fold:
    """The product of the elements."""
    if acc in T.INTS64:
        return Fold(acc, "vec2<u32>(1u, 0u)", "i64_mul(a, v)", "i64_mul(a, v)")
    return Fold(acc, "Acc(1)", "a * v", "a * v")


def extreme(dtype: DType | None, largest: bool) -> Fold:
    """The largest (smallest) element; NaN where one is NaN."""
    name, sign = ("max", "-") if largest else ("min", "")
    if dtype == T.BOOL:
        first, word = ("0u", "|") if largest else ("1u", "&")
        return Fold(T.U32, first, f"a {word} select(0u, 1u, v)", f"a {word} v", "a != 0u")
    acc = accumulator(dtype)
    if acc == T.F32:
        text = f"{name}_nan(a, v)"
        return Fold(acc, "bitcast<f32>(p.first)", text, text, use=("nan",), params={"first": float(f"{sign}inf")})
    signed = dtype in T.SIGNED
    bits = dtype.bits if dtype is not None else 32
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    worst = low if largest else high
    if acc in T.INTS64:
        text = f"select(a, v, {'i64_lt' if signed else 'u64_lt'}({'a, v' if largest else 'v, a'}))"
        return Fold(acc, f"vec2<u32>({worst % 2**32}u, {worst >> 32 & 0xFFFFFFFF}u)", text, text)
    return Fold(acc, "Acc(p.first)", f"{name}(a, v)", f"{name}(a, v)", params={"first": worst})


def _mean(acc: DType) -> Fold:
    fold = sum_fold(acc, "v")
    if acc in T.INTS64:
        divide = "i64_div" if acc == T.I64 else "u64_div"
        return replace(fold, finish=f"{divide}(a, vec2<u32>(p.length, 0u))", use=("int64", "int64_div"))
    if acc != T.F32:
        return replace(fold, finish=f"a / {acc.wgsl}(p.length)")
    mean = "select(a / f32(p.length), bitcast<f32>(p.nan), p.length == 0u)"
    return replace(fold, finish=mean, params={"nan": math.nan})


def _logarithm(fold: Fold, plus: str = "") -> Fold:
    return replace(fold, finish=f"select(log(a), bitcast<f32>(p.lowest), a == 0.0){plus}", params={"lowest": -math.inf})


def _float_only(n: Node) -> None:
    require([n.input(0)], *T.FLOATS)


def reduce_to(b: Builder, n: Node, make: Fold, epilogue: Epilogue = IDENTITY, source: Epilogue = IDENTITY) -> None:
    """Folds the node's input, or what the source makes of it, along its axes into its output."""
    x = n.input(0)
    rows = Rows.of(x.known_shape, reduced_axes(n))
    fold_rows(b, n.output(), x, rows, make, epilogue=epilogue, source=source, name=n.op_type.lower())


@op("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceProd", "ReduceMean", shape=_shape)
def reduce_sum(n: Node, b: Builder, epilogue: Epilogue = IDENTITY, source: Epilogue = IDENTITY) -> None:
    require([n.input(0)], *NUMBERS)
    acc = accumulator(n.input(0).dtype)
    make = {
        "ReduceSum": lambda: sum_fold(acc, "v"),
        "ReduceL1": lambda: sum_fold(acc, _magnitude(acc)),
        "ReduceSumSquare": lambda: sum_fold(acc, _square(acc)),
        "ReduceProd": lambda: product_fold(acc),
        "ReduceMean": lambda: _mean(acc),
    }
    reduce_to(b, n, make[n.op_type](), epilogue, source)


@op("ReduceMax", "ReduceMin", shape=_shape)
def reduce_extreme(n: Node, b: Builder, epilogue: Epilogue = IDENTITY, source: Epilogue = IDENTITY) -> None:
    require([n.input(0)], *NUMBERS, T.I8, T.U8, T.BOOL)
    reduce_to(b, n, extreme(n.input(0).dtype, n.op_type == "ReduceMax"), epilogue, source)


@op("ReduceL2", "ReduceLogSum", shape=_shape)
def reduce_root(n: Node, b: Builder, epilogue: Epilogue = IDENTITY, source: Epilogue = IDENTITY) -> None:
    _float_only(n)
    square = n.op_type == "ReduceL2"
    length = replace(sum_fold(T.F32, "v * v"), finish="sqrt(a)")
    reduce_to(b, n, length if square else _logarithm(sum_fold(T.F32, "v")), epilogue, source)


@op("ReduceLogSumExp", shape=_shape)
def reduce_log_sum_exp(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    _float_only(n)
    x = n.input(0)
    rows = Rows.of(x.known_shape, reduced_axes(n))
    top = row_tops(b, x, rows)
    fold = _logarithm(sum_fold(T.F32, "exp(v - c)"), " + c")
    fold_rows(b, n.output(), x, rows, fold, context=top, epilogue=epilogue, name="reducelogsumexp")


def row_tops(b: Builder, x: Value, rows: Rows) -> Value:
    """The largest element of each row, 0 where that is infinite: what exponentials are shifted by."""
    top = b.temp(T.F32, (rows.count,))
    fold_rows(b, top, x, rows, replace(extreme(T.F32, True), finish="select(a, 0.0, is_inf(a))"), name="row_top")
    return top


def row_sums(
    b: Builder, x: Value, rows: Rows, term: str, finish: str, *, out: Value | None = None, context: Value | None = None,
    params: Mapping[str, Dim | float] | None = None, use: tuple[str, ...] = (), name: str,
) -> Value:  # fmt: skip
    """The f32 sum of `term` (over element `v` and context `c`) of each row, through `finish` (over the sum `a`)."""
    out = out or b.temp(T.F32, (rows.count,))
    fold = replace(sum_fold(T.F32, term), finish=finish, params=params or {}, use=use)
    fold_rows(b, out, x, rows, fold, context=context, name=name)
    return out
