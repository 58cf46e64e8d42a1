"""A plan whose kernels read slots and constants through textures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from webrt import plan as P
from webrt import wgsl
from webrt.dims import DimRef
from webrt.dtypes import BY_NAME, F32
from webrt.lowering import WORKGROUP

N = 3


def _kernel(element: str, loaders: dict[str, str], dtype: str = "float32", **requires: object) -> P.Kernel:
    """out[i] = element of the bindings that `loaders` names."""
    kinds = [wgsl.Bind(k, BY_NAME[dtype] if k == "x" else F32, "r", 1, v) for k, v in loaders.items()]
    return wgsl.build(
        "map", name=element, binds=[*kinds, wgsl.Bind("out", F32, "w")], params=["n"],
        fns=[f"fn element(i: u32) -> Out {{ return {element}; }}"], requires=requires,
    )  # fmt: skip


def textured_plan(loader: str, dtype: str = "float32", constant: Sequence[float] = (1.0, 2.0, 3.0, 4.0)) -> P.Plan:
    """t = x; y = t + c[i % 4]; t = 2·y; z = t - c[i % 4], each read of t and c through a texture: y = x + c and
    z = 2·x + c. Where n is 5, y comes from a kernel without textures that adds 100 more."""
    data = np.asarray(constant, np.float32)
    kernels = (
        _kernel("f32(load_x(i))", {"x": loader}, dtype),
        _kernel("load_t(i) + load_c(i % 4u)", {"t": loader, "c": loader}),
        _kernel("load_t(i) + load_c(i % 4u) + 100.0", {"t": "buffer", "c": "buffer"}),
        _kernel("2.0 * load_y(i)", {"y": "buffer"}),
        _kernel("load_t(i) - load_c(i % 4u)", {"t": loader, "c": loader}),
        _kernel("0.0", {"t": loader, "c": loader}, subgroup_size=3),
    )
    size = BY_NAME[dtype].bits // 8
    dims: list[list[Any]] = [
        ["var", "n"], ["ceildiv", [0], WORKGROUP], ["mul", [0], size], ["ceildiv", [2], 16], ["max", [3], 1],
        ["mul", [4], 16], ["ceildiv", [0], 4], ["max", [6], 1], ["mul", [7], 16], ["eq", [0], 5], ["sub", 1, [9]],
    ]  # fmt: skip
    x, t, y, z, c = ("s", 0), ("s", 1), ("s", 2), ("s", 3), ("c", 0)

    def step(alternatives: Sequence[int], reads: Sequence[P.Place], out: P.Place, **more: object) -> P.Dispatch:
        bindings = (*((p, "r", 0, 0) for p in reads), (out, "w", 0, 0))
        counts = tuple((k, (1,), 1, 1) for k in alternatives)
        made = P.Dispatch(counts, bindings, ((0,),), 0)
        return replace(made, **more)  # type: ignore[arg-type]

    both = ((0, (7,)), (1, 1))
    steps = (
        step([0], [x], t, textures=((0, (4,)),)),
        step([5, 1, 2], [t, c], y, textures=both, when=(1, (10,), 1)),
        step([3], [y], t),
        step([4], [t, c], z, textures=both),
    )
    values = [("x", dtype, x), ("y", "float32", y), ("z", "float32", z)]
    infos = [P.ValueInfo(name, kind, ((0,),), place) for name, kind, place in values]
    slots = (P.Slot((5,), "x"), *(P.Slot((8,), name) for name in "tyz"))
    return P.Plan(
        dims=dims, inputs=(infos[0],), outputs=tuple(infos[1:]), values={}, kernels=kernels, slots=slots,
        constants=(P.Constant("c", "float32", (4,), 16, 0),), steps=steps, params_size=256,
        data=lambda i: data.tobytes(),
    )  # fmt: skip


def refused_plan(then: Sequence[int], late: bool = False) -> P.Plan:
    """The plan whose y comes from a kernel that no device takes, and then from kernels of these numbers: 1 reads t and
    c through textures, 2 in buffers. `late`: the kernel is for an n of 5 only."""
    plan = textured_plan("sampled")
    good = plan.kernels[1]
    kernel = replace(good, name="wrong", wgsl=good.wgsl.replace("load_c(i % 4u)", "nowhere"), hash="wrong")
    last = [(k, (1,), 1, 1) for k in then]
    when: tuple[DimRef, ...] = ((9,), *[1] * len(then)) if late else ()
    step = plan.steps[1]
    assert isinstance(step, P.Dispatch)
    step = replace(step, alternatives=((len(plan.kernels), (1,), 1, 1), *last), when=when, node=0)
    placed = P.PlacedNode("sum", "Add", "webgpu", "kernel")
    return replace(
        plan, kernels=(*plan.kernels, kernel), placement=(placed,),
        steps=(plan.steps[0], step, *plan.steps[2:]),
    )  # fmt: skip


def expected(x: np.ndarray, constant: Sequence[float] = (1.0, 2.0, 3.0, 4.0)) -> tuple[np.ndarray, np.ndarray]:
    """(y, z) of the plan."""
    c = np.resize(np.asarray(constant, np.float32), x.size)
    y = x.astype(np.float32) + c + (100 if x.size == 5 else 0)
    return y, 2 * y - c
