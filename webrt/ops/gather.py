"""Gather, GatherElements and GatherND. An index out of range, below or above, reads the last element of its axis.

Source: the ONNX operator texts; GatherND's batch dims as in onnx/reference/ops/op_gathernd.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import InvalidModel, NotConstant, ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Operand, Shape, Window, normalize_axis, op, require, strides
from webrt.ops.indices import check_indices, check_others, index_fns, known_index
from webrt.ops.view import View, aligned, bits_of, coordinates, move, unit, unit_type


def _gather_shape(n: Node) -> list[Info]:
    shape, indices = n.input(0).known_shape, n.input(1).known_shape
    axis = normalize_axis(n.attr("axis", 0), len(shape))
    return [(n.input(0).dtype, (*shape[:axis], *indices, *shape[axis + 1 :]))]


def _gather_nd_parts(n: Node) -> tuple[Shape, Shape, int, int]:
    """data's shape, indices' shape, batch dims, and how long an index tuple is."""
    shape, indices, batch = n.input(0).known_shape, n.input(1).known_shape, int(n.attr("batch_dims", 0))
    if not shape or not indices or not 0 <= batch < min(len(shape), len(indices)):
        raise InvalidModel(f"batch_dims {batch} does not fit ranks {len(shape)} and {len(indices)}")
    length = indices[-1]
    if not isinstance(length, int):
        raise NotConstant(f"the length of index tuples of {n.input(1)!r} is not known before the run")
    if not 1 <= length <= len(shape) - batch:
        raise ShapeError(f"index tuples of {length} do not fit rank {len(shape)} with {batch} batch dims")
    return shape, indices, batch, length


def _gather_nd_shape(n: Node) -> list[Info]:
    shape, indices, batch, length = _gather_nd_parts(n)
    return [(n.input(0).dtype, (*indices[:-1], *shape[batch + length :]))]


def table_parts(
    b: Builder, out: Value, x: Value, kind: DType, vec: int = 1
) -> Iterator[tuple[Operand, dict[str, Dim | float], str]]:
    """What the launches of a lookup in x bind, their params, and text that makes `here`, a place in what is bound, of
    `place`, one inside x, in elements of `kind` by `vec`.

    Of an x that is larger than a binding each launch sees a window: it writes the elements that lie there, and the
    others keep what they have. The windows make up x, so that each element is written once."""
    kept = f"{'out[{}]' if vec == 4 else 'load_out({})'}".format("i" if len(b.windows(out)) == 1 else "at")
    for part in b.windows(x):
        if isinstance(part, Window):
            first, held = (at * 8 // (kind.bits * vec) for at in (part.offset, part.size))
            text = f"let here = place - p.x_first;\nif (here >= p.x_count) {{ return {kept}; }}"
            yield part, {"x_first": first, "x_count": held}, text
        else:
            yield part, {}, "let here = place;"


def pick(
    b: Builder, out: Value, x: Value, indices: Value, text: str, params: dict[str, Dim | float], name: str,
    width: int = 1,
) -> None:  # fmt: skip
    """out[i] = x[place] in units of `width` elements; `text` sets `place`, which is inside x, from `i`."""
    kind, vec = unit_type(bits_of(x) * width)
    read = "x[here]" if vec == 4 else "load_x(here)"
    for part, more, here in table_parts(b, out, x, kind, vec):
        b.map(
            out, f"{text}\n{here}\nreturn {read};", reads={"x": part, "indices": indices}, params={**params, **more},
            fns=index_fns("indices", indices), as_type={"x": kind, "out": kind}, vec={"x": vec, "out": vec}, name=name,
        )  # fmt: skip


def lookup(
    b: Builder, out: Value, x: Value, indices: Value, inner: Dim, text: str, params: dict[str, Dim | float], name: str
) -> None:
    """out[t·inner + j] = x[row(t)·inner + j]; `text` sets `row` from `t`."""
    width = unit(bits_of(x), (inner,))
    words: dict[str, Dim | float] = {"inner": D.floordiv(inner, width), **params}
    place = f"let t = i / p.inner;\nlet j = i % p.inner;\n{text}\nlet place = row * p.inner + j;"
    pick(b, out, x, indices, place, words, name, width)


@op("Gather", shape=_gather_shape)
def gather(n: Node, b: Builder) -> None:
    x, indices = n.input(0), n.input(1)
    shape, axis = x.known_shape, normalize_axis(n.attr("axis", 0), x.rank)
    require([indices], T.I32, T.I64)
    check_indices(b, indices, shape[axis], axis)
    known, inner = known_index(indices, shape[axis]), D.prod(shape[axis + 1 :])
    if known is not None and (len(b.windows(x)) == 1 or _in_one(x, shape[:axis], inner, known)):
        move(b, n.output(), x, View.of(shape).cut(axis, known, 1), "gather")
        return
    text = "let row = (t / p.count) * p.size + index_indices(t % p.count, p.size);"
    params: dict[str, Dim | float] = {"count": indices.elements, "size": shape[axis]}
    lookup(b, n.output(), x, indices, inner, text, params, "gather")


def _in_one(x: Value, before: Shape, inner: Dim, index: Dim) -> bool:
    """Whether what lies at an index is one run of bytes that may be copied, which no binding limits."""
    return D.prod(before) == 1 and aligned(bits_of(x), inner, D.mul(index, inner))


@op("GatherND", since=11, shape=_gather_nd_shape)
def gather_nd(n: Node, b: Builder) -> None:
    x, indices = n.input(0), n.input(1)
    require([indices], T.I64)
    shape, places, batch, length = _gather_nd_parts(n)
    for a in range(batch):
        b.check(D.eq(shape[a], places[a]), f"GatherND: batch axis {a} has sizes {shape[a]} and {places[a]}")
    params: dict[str, Dim | float] = {"count": D.prod(places[batch:-1])}
    lines = ["var row = t / p.count;"]
    for q in range(length):
        params[f"d{q}"] = shape[batch + q]
        check_indices(b, indices, shape[batch + q], batch + q, q)
        lines.append(f"row = row * p.d{q} + index_indices(t * {length}u + {q}u, p.d{q});")
    inner = D.prod(shape[batch + length :])
    lookup(b, n.output(), x, indices, inner, "\n".join(lines), params, "gather_nd")


@op("GatherElements", since=11, shape=lambda n: [(n.input(0).dtype, n.input(1).known_shape)])
def gather_elements(n: Node, b: Builder) -> None:
    x, indices = n.input(0), n.input(1)
    require([indices], T.I32, T.I64)
    if x.rank != indices.rank or not x.rank:
        raise InvalidModel(f"data has rank {x.rank}, indices {indices.rank}")
    axis = normalize_axis(n.attr("axis", 0), x.rank)
    check_indices(b, indices, x.known_shape[axis], axis)
    check_others(b, indices, x, axis)
    text, params = coordinates(indices.known_shape)
    params |= {f"s{a}": s for a, s in enumerate(strides(x.known_shape))} | {"size": x.known_shape[axis]}
    terms = [f"{'index_indices(i, p.size)' if a == axis else f'c{a}'} * p.s{a}" for a in range(x.rank)]
    place = f"{text}let place = {' + '.join(terms)};"
    pick(b, n.output(), x, indices, place, params, "gather_elements")
