"""How a kernel reads its operands: on software adapters through textures, where loading an element costs a fraction.

Mesa's lavapipe reads storage textures at a thirtieth of what a buffer costs it, SwiftShader sampled ones, through a
sampler, at half. On GPUs buffers are as good, and need no copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from webrt import dims as D
from webrt import dtypes as T
from webrt.lowering import Variant
from webrt.ops.vectors import Epilogue, lane_by_lane

_STORAGE = {"architectures": ["llvmpipe"]}
_SAMPLED = {"kinds": ["software"]}
MOST = 4
"""Textures in a kernel: WebGPU guarantees so many storage textures."""


def through_textures(variant: Variant, names: Iterable[str]) -> tuple[Variant, ...]:
    """The variant for each kind of adapter. Its body reads the bindings `names` by their load_ and fours_ functions
    alone; the last one reads buffers."""
    chosen = list(names)[:MOST]
    if not chosen:
        return (variant,)
    requires = dict(variant.requires)
    return (
        replace(variant, textures=dict.fromkeys(chosen, "storage"), requires={**requires, **_STORAGE}),
        replace(variant, textures=dict.fromkeys(chosen, "sampled"), requires={**requires, **_SAMPLED}),
        variant,
    )


def in_fours(epilogue: Epilogue) -> tuple[str, ...]:
    """The names of the epilogue's f32 operands that it reads at i alone and that are whole fours."""
    names = [k for k, v in epilogue.reads.items() if v.dtype == T.F32 and D.mod(v.elements, 4) == 0]
    return tuple(k for k in names if epilogue.body.count(_at_i(k)) == epilogue.body.count(f"load_{k}(") == 1)


def epilogue4(
    epilogue: Epilogue, by_fours: bool = False, body: str | None = None, columns: Sequence[str] = ()
) -> str:  # fmt: skip
    """`fn epilogue4(v: vec4<Out>, i: u32) -> vec4<Out>` of elements i … i+3; operands `in_fours` are bound as vec4s.
    `by_fours`: of elements 4 · four … of its argument `four`. `body` may stand in for the epilogue's: it has an element
    of each of `columns` in a variable, whose fours are more arguments in_<name>."""
    body, names = epilogue.body if body is None else body, in_fours(epilogue)
    for k in names:
        body = body.replace(_at_i(k), "")
    more = "".join(f", {k}: f32" for k in (*names, *columns))
    lane = f"fn epilogue_lane(v: Out, i: u32{more}) -> Out {{ {body} }}"
    return "\n".join(
        [*epilogue.fns, lane, lane_by_lane("epilogue4", "epilogue_lane", epilogue, names, by_fours, columns)]
    )


def _at_i(name: str) -> str:
    """The statement by which epilogues read element i of an operand."""
    return f"let {name} = load_{name}(i);"
