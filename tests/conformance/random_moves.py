"""Random cases of operators that move, make and look up elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx.numpy_helper
from onnx import helper

from tests.conformance.random_draw import Draw, numpy_type
from tests.conformance.random_elementwise import some_axes
from tests.conformance.samples_data import Array, Sample, i64, s

Case = Callable[[Draw], Sample]


def cases() -> Mapping[str, Case]:
    """A maker of cases for each operator."""
    return {
        "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Identity": identity,
        "Shape": shape_of, "Size": size, "Transpose": transpose, "Concat": concat, "Split": split, "Slice": cut,
        "Expand": expand, "Tile": tile, "Pad": pad, "Trilu": trilu, "DepthToSpace": partial(blocks, "DepthToSpace"),
        "SpaceToDepth": partial(blocks, "SpaceToDepth"), "ReverseSequence": reverse, "CenterCropPad": center,
        "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "OneHot": one_hot,
        "Scatter": partial(scatter_elements, "Scatter"), "ScatterND": scatter_nd,
        "ScatterElements": partial(scatter_elements, "ScatterElements"), "ConstantOfShape": constant_of_shape,
        "EyeLike": eye_like, "Range": range_, "AffineGrid": affine_grid,
    }  # fmt: skip


def data(op: str, d: Draw, opset: int, shape: Sequence[int], parameter: str = "T") -> Array:
    """Any bits of any type."""
    return d.wild(d.type(op, opset, parameter), shape)


def reshape(d: Draw) -> Sample:
    opset, x = d.opset("Reshape"), d.shape(0, 5)
    total, target = math.prod(x), list[int]()
    for _ in range(d.number(0, 4) if total else 0):
        target.append(d.pick(*[n for n in range(1, 10) if (total // math.prod(target)) % n == 0]))
    target = [*target, total // math.prod(target)] if total else list(x)
    if total and d.chance(50):
        target[d.number(0, len(target) - 1)] = -1
    return s("Reshape", data("Reshape", d, opset, x), i64(*target), since=opset, const=[1],
             **({"allowzero": 1} if opset >= 14 else {}))  # fmt: skip


def flatten(d: Draw) -> Sample:
    opset, x = d.opset("Flatten", 9), d.shape(1, 5)
    low = -len(x) if opset >= 11 else 0
    return s("Flatten", data("Flatten", d, opset, x), since=opset, axis=d.number(low, len(x)))


def axes_form(op: str, d: Draw, opset: int, x: Array, axes: list[int], rank: int) -> Sample:
    """Axes as attribute below opset 13, as input from then on."""
    if opset < 13:
        return s(op, x, since=opset, axes=sorted(a % rank for a in axes))
    return s(op, x, i64(*axes), since=opset, const=[1])


def squeeze(d: Draw) -> Sample:
    opset, x = d.opset("Squeeze"), list(d.shape(1, 5))
    axes = some_axes(d, len(x))
    for a in axes:
        x[a] = 1
    return axes_form("Squeeze", d, opset, data("Squeeze", d, opset, x), axes, len(x))


def unsqueeze(d: Draw) -> Sample:
    opset, x = d.opset("Unsqueeze"), d.shape(0, 4)
    rank = len(x) + d.number(1, 2)
    axes = [a - rank if d.chance(50) else a for a in d.random.sample(range(rank), rank - len(x))]
    return axes_form("Unsqueeze", d, opset, data("Unsqueeze", d, opset, x), axes, rank)


def identity(d: Draw) -> Sample:
    opset = d.opset("Identity")
    return s("Identity", data("Identity", d, opset, d.shape(), "T" if opset < 14 else "V"), since=opset)


def shape_of(d: Draw) -> Sample:
    opset, x = d.opset("Shape"), d.shape()
    attrs = {"start": d.number(-6, 6), "end": d.number(-6, 6)} if opset >= 15 else {}
    return s("Shape", data("Shape", d, opset, x), since=opset, **attrs)


def size(d: Draw) -> Sample:
    opset = d.opset("Size")
    return s("Size", data("Size", d, opset, d.shape()), since=opset)


def transpose(d: Draw) -> Sample:
    opset, x = d.opset("Transpose"), d.shape(0, 5)
    attrs = {"perm": d.random.sample(range(len(x)), len(x))} if x and d.chance(80) else {}
    return s("Transpose", data("Transpose", d, opset, x), since=opset, **attrs)


def concat(d: Draw) -> Sample:
    opset, x = d.opset("Concat"), d.shape(1, 4)
    axis, name = d.number(0, len(x) - 1), d.type("Concat", opset)
    parts = [d.wild(name, [*x[:axis], d.number(0, 9), *x[axis + 1 :]]) for _ in range(d.number(1, 6))]
    return s("Concat", *parts, since=opset, axis=axis - len(x) if opset >= 11 and d.chance(50) else axis)


def split(d: Draw) -> Sample:
    opset, x = d.opset("Split"), list(d.shape(1, 4))
    axis = d.number(0, len(x) - 1)
    sizes = [d.number(0 if opset >= 13 else 1, 9) for _ in range(d.number(1, 5))]
    x[axis] = sum(sizes)
    values = data("Split", d, opset, x)
    if opset < 13:
        return s("Split", values, since=opset, outputs=len(sizes), axis=axis, split=sizes)
    if opset >= 18 and d.chance(40) and x[axis] >= 4:
        count = d.number(1, 2)
        return s("Split", values, since=opset, outputs=count, axis=axis, num_outputs=count)
    return s("Split", values, i64(*sizes), since=opset, outputs=len(sizes), const=[1], axis=axis - len(x))


def cut(d: Draw) -> Sample:
    opset, x = d.opset("Slice"), d.shape(1, 5)
    axes = some_axes(d, len(x))
    starts, ends = ([d.pick(d.number(-9, 9), 2**31 - 1, -(2**31), 0) for _ in axes] for _ in range(2))
    if opset < 10:
        attrs = {"axes": [a % len(x) for a in axes], "starts": starts, "ends": ends}
        return s("Slice", data("Slice", d, opset, x), since=opset, **attrs)
    steps = [d.pick(1, 2, 3, -1, -2) for _ in axes]
    ends = [-e - 1 if e == 2**31 - 1 and k < 0 else e for e, k in zip(ends, steps)]  # EXCLUDED["Slice"]
    kind = d.pick("int64", "int32")
    inputs = [np.array(v, kind) for v in (starts, ends, axes, steps)]
    return s("Slice", data("Slice", d, opset, x), *inputs, since=opset, const=[1, 2, 3, 4])


def expand(d: Draw) -> Sample:
    opset, whole = d.opset("Expand", 8), d.shape()
    part = d.broadcast(whole)
    target = [1 if d.chance(20) and k >= len(whole) - len(part) and part[k - len(whole)] == n else n
              for k, n in enumerate(whole)]  # fmt: skip
    return s("Expand", data("Expand", d, opset, part), i64(*target), since=opset, const=[1])


def tile(d: Draw) -> Sample:
    opset, x = d.opset("Tile"), d.shape(1, 4)
    return s("Tile", data("Tile", d, opset, x), i64(*(d.number(0, 3) for _ in x)), since=opset, const=[1])


def pad(d: Draw) -> Sample:
    opset = d.opset("Pad")
    mode = d.pick("constant", "reflect", "edge", *(["wrap"] if opset >= 19 else []))
    x = [max(n, 3) if mode != "constant" else n for n in d.shape(1, 4, empty=mode == "constant")]
    low = -1 if mode == "constant" else 0
    axes = some_axes(d, len(x)) if opset >= 18 and d.chance(50) else list(range(len(x)))
    pads = [d.number(low if x[a] > 2 else 0, 2) for a in axes + axes]
    name = d.type("Pad", opset)
    if opset < 11:
        return s("Pad", d.wild(name, x), since=opset, mode=mode, pads=pads, value=1.5)
    inputs: list[Array | None] = [i64(*pads), d.exact(name, ()) if mode == "constant" and d.chance(60) else None]
    inputs += [i64(*axes)] if opset >= 18 else []
    const = [1, 3] if opset >= 18 else [1]
    while inputs[-1] is None:
        inputs.pop()
    return s("Pad", d.wild(name, x), *inputs, since=opset, const=const, mode=mode)


def trilu(d: Draw) -> Sample:
    x = d.shape(2, 4)
    return s("Trilu", data("Trilu", d, 14, x), np.array(d.number(-9, 9)), since=14, const=[1], upper=d.number(0, 1))


def blocks(op: str, d: Draw) -> Sample:
    opset, b = d.opset(op, 13), d.number(1, 3)
    n, c, h, w = (d.number(1, 3) for _ in range(4))
    x = (n, c * b * b, h, w) if op == "DepthToSpace" else (n, c, h * b, w * b)
    attrs = {"mode": d.pick("DCR", "CRD")} if op == "DepthToSpace" else {}
    return s(op, data(op, d, opset, x), since=opset, blocksize=b, **attrs)


def reverse(d: Draw) -> Sample:
    opset, x = d.opset("ReverseSequence", 10), d.shape(2, 4, empty=False)
    batch = d.number(0, 1)
    lengths = d.values.integers(1, x[1 - batch] + 1, x[batch])
    return s("ReverseSequence", data("ReverseSequence", d, opset, x), lengths, since=opset, batch_axis=batch,
             time_axis=1 - batch)  # fmt: skip


def center(d: Draw) -> Sample:
    x = d.shape(1, 4, empty=False)
    axes = some_axes(d, len(x))
    return s("CenterCropPad", data("CenterCropPad", d, 18, x), i64(*(d.number(1, 9) for _ in axes)), since=18,
             const=[1], axes=axes)  # fmt: skip


def gather(d: Draw) -> Sample:
    opset, x = d.opset("Gather"), d.shape(1, 4, empty=False)
    axis = d.axis(len(x))
    where = d.indices(x[axis], d.shape(0, 2), negative=opset >= 11, name=d.pick("int64", "int32"))
    return s("Gather", data("Gather", d, opset, x), where, since=opset, axis=axis)


def gather_elements(d: Draw) -> Sample:
    opset, x = d.opset("GatherElements", 11), d.shape(1, 4, empty=False)
    axis = d.axis(len(x))
    shape = [d.number(1, n) for n in x]
    shape[axis] = d.number(0, 9)
    where = d.indices(x[axis], shape, name=d.pick("int64", "int32"))
    return s("GatherElements", data("GatherElements", d, opset, x), where, since=opset, axis=axis)


def tuples(d: Draw, x: Sequence[int], lead: Sequence[int], depth: int) -> Array:
    """Index tuples of `depth` axes of x."""
    return np.stack([d.indices(n, lead) for n in x[:depth]], axis=-1)


def gather_nd(d: Draw) -> Sample:
    opset, x = d.opset("GatherND", 11), d.shape(1, 4, empty=False)
    batch = d.number(0, len(x) - 1) if opset >= 12 else 0
    depth = d.number(1, len(x) - batch)
    lead = [*x[:batch], *(d.number(1, 4) for _ in range(d.number(0, 2)))]
    attrs = {"batch_dims": batch} if opset >= 12 else {}
    return s("GatherND", data("GatherND", d, opset, x), tuples(d, x[batch:], lead, depth), since=opset,
             symbolic=(0,), **attrs)  # fmt: skip


def reduction(op: str, d: Draw, opset: int) -> str:
    return str(d.pick("none", *(["add", "mul"] if opset >= 16 else []), *(["min", "max"] if opset >= 18 else [])))


def scatter_elements(op: str, d: Draw) -> Sample:
    opset = d.opset(op, 9 if op == "Scatter" else 11, 10 if op == "Scatter" else 28)
    x = d.shape(1, 4, empty=False)
    axis = d.axis(len(x)) if op != "Scatter" else d.number(0, len(x) - 1)
    how = "none" if op == "Scatter" else reduction(op, d, opset)
    shape = [d.number(1, n) for n in x]
    order = d.values.random([*shape[: axis % len(x)], x[axis], *shape[axis % len(x) + 1 :]]).argsort(axis % len(x))
    where = np.take(order, range(shape[axis]), axis % len(x))  # an element is written once: others are undefined
    where = where if how == "none" else d.indices(x[axis], shape)
    name = d.type(op, opset, only=() if how == "none" else ("float32", "int32", "int64"))
    values = [d.exact(name, x, -2, 2, 1), d.exact(name, shape, -2, 2, 1)]
    return s(op, values[0], where.astype(d.pick("int64", "int32")), values[1], since=opset, axis=axis,
             **({"reduction": how} if opset >= 16 else {}))  # fmt: skip


def scatter_nd(d: Draw) -> Sample:
    opset, x = d.opset("ScatterND", 11), d.shape(1, 4, empty=False)
    how, depth = reduction("ScatterND", d, opset), d.number(1, len(x))
    name = d.type("ScatterND", opset, only=() if how == "none" else ("float32", "int32", "int64"))
    places = math.prod(x[:depth])
    count = d.number(0, min(places, 20))
    flat = d.values.permutation(places)[:count] if how == "none" else d.indices(places, (count,), negative=False)
    where = np.stack(np.unravel_index(flat, x[:depth]), axis=-1).astype(np.int64)
    updates = d.exact(name, (count, *x[depth:]), -2, 2, 1)
    return s("ScatterND", d.exact(name, x, -2, 2, 1), where, updates, since=opset, symbolic=(0,),
             **({"reduction": how} if opset >= 16 else {}))  # fmt: skip


def one_hot(d: Draw) -> Sample:
    opset, x = d.opset("OneHot", 11), d.shape(0, 3)
    depth = d.number(1, 9)
    where = d.values.integers(-depth - 1, depth + 2, x).astype(d.pick("int64", "int32"))
    values = d.exact(d.pick("float32", "int32", "int64"), (2,))
    return s("OneHot", where, np.array(depth), values, since=opset, const=[1], axis=d.number(-len(x) - 1, len(x)))


def constant_of_shape(d: Draw) -> Sample:
    opset = d.opset("ConstantOfShape", 9)
    name = d.type("ConstantOfShape", opset, "T2")
    value = onnx.numpy_helper.from_array(d.exact(name, (1,)))
    attrs: dict[str, Any] = {"value": value} if d.chance(70) else {}
    return s("ConstantOfShape", i64(*d.shape(1, 4)), since=opset, const=[0], **attrs)


def eye_like(d: Draw) -> Sample:
    opset = d.opset("EyeLike", 9)
    name = d.type("EyeLike", opset, "T2")
    attrs = {"dtype": helper.np_dtype_to_tensor_dtype(numpy_type(name))} if d.chance(70) else {}
    x = d.wild(d.pick("float32", "int32", "int64"), d.shape(2, 2))
    return s("EyeLike", x, since=opset, k=d.number(-5, 5), **attrs)


def range_(d: Draw) -> Sample:
    opset = d.opset("Range", 11)
    name, step = d.type("Range", opset, only=("float32", "int16", "int32", "int64")), d.pick(1, 2, -1, -3)
    values = [np.array(v, name) for v in (d.number(-20, 20), d.number(-20, 20), step)]
    return s("Range", *values, since=opset, const=[0, 1, 2])


def affine_grid(d: Draw) -> Sample:
    axes = d.number(2, 3)
    sizes = i64(2, 3, *(d.number(2, 6) for _ in range(axes)))
    return s("AffineGrid", d.exact("float32", (2, axes, axes + 1)), sizes, since=20, const=[1],
             align_corners=d.number(0, 1))  # fmt: skip
