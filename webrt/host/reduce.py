"""Reductions, arg-reductions, cumulative sums and TopK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webrt.errors import ShapeError
from webrt.host.registry import Call, op
from webrt.host.values import Array, is_float, wide

Axes = tuple[int, ...]
Reducer = Callable[[Array, Axes, bool], Any]


def normal_axes(axes: Any, rank: int) -> Axes:
    """Axes counted from the front; raises ShapeError where one is out of range or given twice."""
    found = []
    for axis in np.asarray(axes).reshape(-1).tolist():
        if not -rank <= axis < rank:
            raise ShapeError(f"axis {axis} is out of range for rank {rank}; it must lie in [{-rank}, {rank - 1}]")
        found.append(int(axis) % rank if rank else 0)
    if len(set(found)) != len(found):
        raise ShapeError(f"axes {found} name one axis twice; name each once")
    return tuple(sorted(found))


def normal_axis(axis: int, rank: int) -> int:
    """One axis counted from the front; raises ShapeError where it is out of range."""
    return normal_axes([axis], rank)[0]


def _accumulator(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind in "iu" else wide(x)


def _sum(x: Array, axes: Axes, keep: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keep, dtype=None if is_float(x.dtype) else x.dtype)


def _mean(x: Array, axes: Axes, keep: bool) -> Any:
    if x.dtype.kind in "iu":
        total = np.sum(x, axis=axes, keepdims=keep, dtype=np.int64)
        count = max(int(np.prod([x.shape[a] for a in axes])), 1)
        return np.trunc(total / count)
    return np.mean(x, axis=axes, keepdims=keep)


def _log_sum_exp(x: Array, axes: Axes, keep: bool) -> Any:
    w = _accumulator(x)
    if not axes:
        return w
    top = np.max(w, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    return np.squeeze(np.log(np.sum(np.exp(w - shift), axis=axes, keepdims=True)) + shift, axis=() if keep else axes)


def lowest(dtype: np.dtype[Any]) -> Any:
    """The smallest value of a type."""
    return -np.inf if dtype.kind == "f" else dtype.type(False) if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """The largest value of a type."""
    return np.inf if dtype.kind == "f" else dtype.type(True) if dtype.kind == "b" else np.iinfo(dtype).max


_REDUCERS: dict[str, tuple[Reducer, int]] = {
    "ReduceSum": (_sum, 13),
    "ReduceMean": (_mean, 18),
    "ReduceProd": (lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype), 18),
    "ReduceMax": (lambda x, a, k: np.max(x, axis=a, keepdims=k, initial=lowest(x.dtype)), 18),
    "ReduceMin": (lambda x, a, k: np.min(x, axis=a, keepdims=k, initial=highest(x.dtype)), 18),
    "ReduceL1": (lambda x, a, k: _sum(np.abs(x), a, k), 18),
    "ReduceL2": (lambda x, a, k: np.sqrt(_sum(np.square(_accumulator(x)), a, k)), 18),
    "ReduceSumSquare": (lambda x, a, k: _sum(np.square(x), a, k), 18),
    "ReduceLogSum": (lambda x, a, k: np.log(_sum(_accumulator(x), a, k)), 18),
    "ReduceLogSumExp": (_log_sum_exp, 18),
}


def _reduce(reducer: Reducer, call: Call, x: Array, axes: Any) -> Array:
    keep = bool(call.integer("keepdims"))
    empty = axes is None or np.size(axes) == 0
    if empty:
        chosen = () if call.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    else:
        chosen = normal_axes(axes, x.ndim)
    return np.asarray(reducer(wide(x), chosen, keep)).astype(x.dtype)


def _register(name: str, reducer: Reducer, inputs_since: int) -> None:
    @op(name, until=inputs_since)
    def by_attribute(call: Call, x: Array) -> Array:
        return _reduce(reducer, call, x, call.ints("axes"))

    @op(name, since=inputs_since)
    def by_input(call: Call, x: Array, axes: Array | None = None) -> Array:
        return _reduce(reducer, call, x, axes)


for _name, (_reducer, _since) in _REDUCERS.items():
    _register(_name, _reducer, _since)


@op("ArgMax", "ArgMin")
def arg_reduce(call: Call, x: Array) -> Array:
    """The index of the largest or smallest element along an axis; the first, or the last, of equal ones."""
    axis = normal_axis(call.integer("axis"), x.ndim)
    if x.shape[axis] == 0:
        raise ShapeError(f"axis {axis} has no elements to choose from; feed at least one")
    function = np.argmax if call.op_type == "ArgMax" else np.argmin
    last = bool(call.get("select_last_index", 0))
    w = np.flip(wide(x), axis) if last else wide(x)
    found = np.expand_dims(np.asarray(function(w, axis=axis)), axis).astype(np.int64)
    found = x.shape[axis] - 1 - found if last else found
    return found if call.integer("keepdims") else np.squeeze(found, axis)


@op("CumSum", "CumProd")
def cumulate(call: Call, x: Array, axis: Array) -> Array:
    """Running sums or products; `exclusive` leaves the own element out, `reverse` goes from the end."""
    product = call.op_type == "CumProd"
    where = normal_axis(int(axis.reshape(-1)[0]), x.ndim)
    w = np.flip(wide(x), where) if call.integer("reverse") else wide(x)
    total = np.asarray((np.cumprod if product else np.cumsum)(w, axis=where, dtype=w.dtype))
    if call.integer("exclusive"):
        first = np.full_like(np.take(total, [0] if total.shape[where] else [], where), 1 if product else 0)
        total = np.concatenate([first, np.delete(total, -1, where)], where) if total.shape[where] else total
    total = np.flip(total, where) if call.integer("reverse") else total
    return np.ascontiguousarray(total).astype(x.dtype, copy=False)


@op("TopK", until=10)
def top_k_attribute(call: Call, x: Array) -> tuple[Array, Array]:
    """The k largest along an axis, k an attribute."""
    return _top_k(x, call.integer("k"), call.integer("axis"), True)


@op("TopK", since=10)
def top_k(call: Call, x: Array, k: Array) -> tuple[Array, Array]:
    """The k largest or smallest along an axis in order; of equal ones the lower index first."""
    return _top_k(x, int(k.reshape(-1)[0]), call.integer("axis"), bool(call.get("largest", 1)))


def _top_k(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    axis = normal_axis(axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"k is {k}, axis {axis} has {x.shape[axis]} elements; k must not exceed them")
    w = wide(x)
    if largest:
        order = np.flip(np.argsort(np.flip(w, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(w, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)
