"""The rules of shape arithmetic: an operator's contents from those of its inputs.

A rule gets the node and its inputs' contents, and gives its outputs', or None where it cannot prove them. It may raise
NotConstant, IndexError or ValueError for what does not fit; `contents.propagate` takes that for not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import NotConstant
from webrt.ir import Node

Contents: TypeAlias = np.ndarray[Any, Any]
Known: TypeAlias = list[Contents]
Rule: TypeAlias = Callable[[Node, Known], Contents | Sequence[Contents] | None]


def object_array(flat: Sequence[Dim], shape: Sequence[int]) -> Contents:
    """Dims in a shape."""
    out = np.empty(len(flat), dtype=object)
    out[:] = flat
    return out.reshape(shape)


def _elementwise(f: Callable[..., Dim], arity: int) -> Rule:
    ufunc = np.frompyfunc(f, arity, 1)
    return lambda n, k: np.asarray(ufunc(*k), dtype=object)


def _variadic(f: Callable[[Dim, Dim], Dim]) -> Rule:
    ufunc = np.frompyfunc(f, 2, 1)

    def rule(n: Node, k: Known) -> Contents:
        out = k[0]
        for x in k[1:]:
            out = np.asarray(ufunc(out, x), dtype=object)
        return out

    return rule


def _partial(f: Callable[[Dim, Dim], Dim | None]) -> Rule:
    """An elementwise rule that declines where `f` gives None for some element."""
    ufunc = np.frompyfunc(f, 2, 1)

    def rule(n: Node, k: Known) -> Contents | None:
        out = np.asarray(ufunc(*k), dtype=object)
        return None if any(x is None for x in out.flat) else out

    return rule


def _trunc_div(a: Dim, b: Dim) -> Dim | None:
    """ONNX's integer Div rounds towards zero."""
    if isinstance(b, int) and b < 0:
        a, b = -a, -b
    if D.at_least(a, 0) and D.at_least(b, 0):
        return D.floordiv(a, b)
    if D.at_least(b, 1):
        return D.select(D.lt(a, 0), -D.floordiv(-a, b), D.floordiv(a, b))
    return None


def _truncated_mod(a: Dim, b: Dim) -> Dim | None:
    quotient = _trunc_div(a, b)
    return None if quotient is None else D.sub(a, D.mul(b, quotient))


def _mod(n: Node, k: Known) -> Any:
    return _partial(_truncated_mod if n.attr("fmod", 0) else D.mod)(n, k)


def _abs(a: Dim) -> Dim:
    return D.maximum(a, D.mul(a, -1))


def _not(a: Dim) -> Dim:
    return D.sub(1, a)


def _truth(a: Dim) -> Dim:
    return _not(D.eq(a, 0))


def _wrap32(a: Dim) -> Dim:
    """Numbers wrap to int32; a size is taken to fit."""
    return (a + 2**31) % 2**32 - 2**31 if isinstance(a, int) else a


def _cast(n: Node, k: Known) -> Contents | None:
    dtype = n.output().dtype
    if dtype == T.I64:
        return k[0]
    return np.asarray(np.frompyfunc(_truth if dtype == T.BOOL else _wrap32, 1, 1)(k[0]), dtype=object)


def _shape(n: Node, k: Known) -> Contents | None:
    shape = n.input(0).shape
    if shape is None:
        return None
    part = shape[n.attr("start", 0) : n.attr("end", len(shape))] if n.opset >= 15 else shape
    return object_array(part, (len(part),))


def _size(n: Node, k: Known) -> Contents | None:
    return None if n.input(0).shape is None else object_array([n.input(0).elements], ())


def _reshaped(n: Node, k: Known) -> Contents | None:
    shape = n.output().static_shape
    return None if shape is None else k[0].reshape(shape)


def _ints(a: Contents) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Elements that have to be numbers already; raises NotConstant."""
    if not all(isinstance(x, int) for x in a.flat):
        raise NotConstant("an index into a shape is not known before the run")
    return np.array([max(-(2**63), min(2**63 - 1, int(x))) for x in a.flat], dtype=np.int64).reshape(a.shape)


def _gather(n: Node, k: Known) -> Contents:
    return np.asarray(np.take(k[0], _ints(k[1]), axis=n.attr("axis", 0)), dtype=object)


def _gather_elements(n: Node, k: Known) -> Contents:
    index, axis = _ints(k[1]), n.attr("axis", 0)
    return np.take_along_axis(k[0], np.where(index < 0, index + k[0].shape[axis], index), axis)


def _gather_nd(n: Node, k: Known) -> Contents | None:
    if n.attr("batch_dims", 0):
        return None
    index = _ints(k[1])
    return np.asarray(k[0][tuple(np.moveaxis(index, -1, 0))], dtype=object)


def _slice(n: Node, k: Known) -> Contents:
    if n.opset < 10:
        starts, ends = list(n.attr("starts")), list(n.attr("ends"))
        axes, steps = n.attr("axes"), None
    else:
        starts, ends = _ints(k[1]).tolist(), _ints(k[2]).tolist()
        axes = n.const(3).tolist() if n.has(3) else None
        steps = n.const(4).tolist() if n.has(4) else None
    cut = [slice(None)] * k[0].ndim
    for j, axis in enumerate(axes if axes is not None else range(len(starts))):
        cut[int(axis)] = slice(starts[j], ends[j], None if steps is None else int(steps[j]))
    return k[0][tuple(cut)]


def _concat(n: Node, k: Known) -> Contents:
    return np.concatenate(k, axis=n.attr("axis", 1))


def _split(n: Node, k: Known) -> list[Contents] | None:
    axis, sizes = n.attr("axis", 0), []
    for v in n.outputs:
        if v is None or v.static_shape is None:
            return None
        sizes.append(v.static_shape[axis])
    return list(np.split(k[0], np.cumsum(sizes)[:-1].tolist(), axis=axis))


def _transpose(n: Node, k: Known) -> Contents:
    return np.transpose(k[0], n.attr("perm"))


def _repeat(n: Node, k: Known) -> Contents:
    return np.tile(k[0], _ints(k[1]).tolist())


def _expand(n: Node, k: Known) -> Contents | None:
    shape = n.output().static_shape
    return None if shape is None else np.broadcast_to(k[0], shape).copy()


def _range(n: Node, k: Known) -> Contents | None:
    shape = n.output().static_shape
    if shape is None:
        return None
    start, step = k[0].flat[0], k[2].flat[0]
    return object_array([D.add(start, D.mul(step, i)) for i in range(shape[0])], shape)


def _constant_of_shape(n: Node, k: Known) -> Contents | None:
    shape, value = n.output().static_shape, n.attr("value")
    if shape is None or value is None:
        return None
    return object_array([int(value.flat[0])] * math.prod(shape), shape)


def _reduce(f: Callable[[Dim, Dim], Dim], empty: Dim | None) -> Rule:
    """A reduction; `empty` is its result over no element, None where there is none."""

    def rule(n: Node, k: Known) -> Contents | None:
        axes = n.const(1).tolist() if n.has(1) else n.attr("axes")
        if not axes and n.attr("noop_with_empty_axes", 0):
            return k[0]
        where = tuple(int(a) % max(k[0].ndim, 1) for a in axes) if axes else tuple(range(k[0].ndim))
        if not k[0].size or not k[0].ndim:
            return k[0] if not k[0].ndim else None if empty is None else _full(n, empty)
        out = k[0]
        for axis in sorted(where, reverse=True):
            out = np.asarray(np.frompyfunc(f, 2, 1).reduce(out, axis=axis, keepdims=True), dtype=object)
        return _reshaped(n, [out])

    return rule


def _full(n: Node, value: Dim) -> Contents | None:
    shape = n.output().static_shape
    return None if shape is None else object_array([value] * math.prod(shape), shape)


RULES: dict[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Identity": _reshaped,
    "Transpose": _transpose,
    "Tile": _repeat,
    "Expand": _expand,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "Add": _elementwise(D.add, 2),
    "Sub": _elementwise(D.sub, 2),
    "Mul": _elementwise(D.mul, 2),
    "Div": _partial(_trunc_div),
    "Mod": _mod,
    "Neg": _elementwise(lambda a: D.mul(a, -1), 1),
    "Abs": _elementwise(_abs, 1),
    "Sum": _variadic(D.add),
    "Min": _variadic(D.minimum),
    "Max": _variadic(D.maximum),
    "Equal": _elementwise(D.eq, 2),
    "Less": _elementwise(D.lt, 2),
    "Greater": _elementwise(lambda a, b: D.lt(b, a), 2),
    "LessOrEqual": _elementwise(lambda a, b: _not(D.lt(b, a)), 2),
    "GreaterOrEqual": _elementwise(lambda a, b: _not(D.lt(a, b)), 2),
    "And": _elementwise(D.mul, 2),
    "Or": _elementwise(D.maximum, 2),
    "Xor": _elementwise(lambda a, b: _not(D.eq(a, b)), 2),
    "Not": _elementwise(_not, 1),
    "Where": _elementwise(D.select, 3),
    "ReduceSum": _reduce(D.add, 0),
    "ReduceProd": _reduce(D.mul, 1),
    "ReduceMin": _reduce(D.minimum, None),
    "ReduceMax": _reduce(D.maximum, None),
}
