"""GlobalAveragePool, GlobalMaxPool and GlobalLpPool: folds over all spatial axes."""

from __future__ import annotations

from dataclasses import replace

from webrt import dtypes as T
from webrt.errors import ShapeError
from webrt.ir import Node
from webrt.lowering import Builder, Info, op, require
from webrt.ops.pool import power, root
from webrt.ops.reduce import extreme, sum_fold
from webrt.ops.rows import Rows, fold_rows
from webrt.ops.vectors import IDENTITY, Epilogue


def global_shape(n: Node) -> list[Info]:
    x = n.input(0)
    if x.shape is None:
        return [(x.dtype, None)]
    if len(x.shape) < 2:
        raise ShapeError(f"a global pool of rank {len(x.shape)}, at least 2 are needed")
    return [(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))]


def _rows(n: Node) -> Rows:
    rank = n.input(0).rank
    return Rows.of(n.input(0).known_shape, range(1, rank - 1) if n.channels_last else range(2, rank))


@op("GlobalAveragePool", shape=global_shape)
def global_average_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0)], *T.FLOATS)
    fold = replace(sum_fold(T.F32, "v"), finish="a / f32(p.length)")
    fold_rows(b, n.output(), n.input(0), _rows(n), fold, epilogue=epilogue, name="global_average_pool")


@op("GlobalMaxPool", shape=global_shape)
def global_max_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0)], *T.FLOATS)
    fold = extreme(n.input(0).dtype, True)
    fold_rows(b, n.output(), n.input(0), _rows(n), fold, epilogue=epilogue, name="global_max_pool")


@op("GlobalLpPool", since=2, shape=global_shape)
def global_lp_pool(n: Node, b: Builder, epilogue: Epilogue = IDENTITY) -> None:
    require([n.input(0)], *T.FLOATS)
    p = int(n.attr("p", 2))
    fold = replace(sum_fold(T.F32, power("v", p)), finish=root("a", p))
    fold_rows(b, n.output(), n.input(0), _rows(n), fold, epilogue=epilogue, name="global_lp_pool")
