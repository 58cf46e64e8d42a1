"""WGSL functions that heavy kernels share: loads and stores of four elements, and what happens before a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import UnsupportedType
from webrt.ir import Value
from webrt.lowering import Builder, Operand

LONG = 600
"""Characters of formulas."""
HUGE = 4 * LONG
"""Characters of formulas of which four copies take SwiftShader minutes to compile in the text of a large kernel."""


@dataclass(frozen=True)
class Epilogue:
    """The body of `fn epilogue(v: Out, i: u32) -> Out`: `v` is a finished sum, `i` the index of the output's element.

    `reads` and `params` are bindings and parameters of its own; their names must not clash with the kernel's. `use` are
    files of shaders/lib/ and `fns` functions that the body needs.
    """

    body: str = "return v;"
    reads: Mapping[str, Value] = field(default_factory=dict)
    params: Mapping[str, Dim | float] = field(default_factory=dict)
    use: tuple[str, ...] = ()
    fns: tuple[str, ...] = ()

    @property
    def fn(self) -> str:
        return "\n".join([*self.fns, f"fn epilogue(v: Out, i: u32) -> Out {{ {self.body} }}"])

    @property
    def long(self) -> bool:
        """Whether a kernel should have the formulas in its text once, in a loop, though each turn costs a software
        adapter some fifty instructions."""
        return len(self.fn) > LONG

    @property
    def fn4(self) -> str:
        """`fn`, and `fn epilogue4(v: vec4<Out>, i: u32) -> vec4<Out>` of elements i … i+3."""
        return "\n".join([self.fn, lane_by_lane("epilogue4", "epilogue", self)])

    def following(self, expression: str, params: Mapping[str, Dim | float] | None = None, **reads: Value) -> Epilogue:
        """The same epilogue for `expression`, which is in terms of v and i and of more bindings and parameters."""
        first = f"return {expression};"
        if self.body != IDENTITY.body:
            first = f"let first = {expression}; {{ let v = first; {self.body} }}"
        return replace(self, body=first, reads={**self.reads, **reads}, params={**self.params, **(params or {})})


IDENTITY = Epilogue()


def map_through(
    b: Builder, out: Value, element: str, epilogue: Epilogue, *, reads: Mapping[str, Value],
    params: Mapping[str, Dim | float], fns: Sequence[str] = (), use: Sequence[str] = (),
    vec: Mapping[str, int] | None = None, name: str,
) -> None:  # fmt: skip
    """`Builder.map` of what the epilogue makes of the elements."""
    text, more = through(epilogue, element, (vec or {}).get("out", 1))
    b.map(
        out, text, reads={**reads, **epilogue.reads}, params={**params, **epilogue.params}, fns=[*fns, *more],
        use=tuple(dict.fromkeys((*use, *epilogue.use))), vec=vec, name=name,
    )  # fmt: skip


def through(epilogue: Epilogue, element: str, lanes: int = 1) -> tuple[str, list[str]]:
    """The body of `fn element(i)` as what the epilogue makes of it, and the functions that it then needs."""
    if epilogue == IDENTITY:
        return element, []
    value = f"fn value(i: u32) -> {'vec4<Out>' if lanes == 4 else 'Out'} {{\n{element}\n}}"
    if lanes == 4:
        return "return epilogue4(value(i), 4u * i);", [value, epilogue.fn4]
    return "return epilogue(value(i), i);", [value, epilogue.fn]


def lane_by_lane(
    name: str, lane: str, epilogue: Epilogue, fours: Sequence[str] = (), by_fours: bool = False,
    given: Sequence[str] = (),
) -> str:  # fmt: skip
    """`fn <name>(v: vec4<Out>, i: u32) -> vec4<Out>` that calls `lane` for elements i … i+3, with those of the operands
    `fours` as more arguments. Long formulas stand in the text once: a pipeline takes as long to make as all copies of
    them together. `by_fours`: for elements 4 · four … of its argument `four`, in a loop only where they are huge.
    `given`: operands whose fours are arguments in_<name>, and what `lane` takes last."""
    more = "".join(f", in_{k}: vec4<f32>" for k in given)
    head = f"fn {name}(v: vec4<Out>, {'four' if by_fours else 'i'}: u32{more}) -> vec4<Out> {{"
    if epilogue == IDENTITY:
        return f"{head} return v; }}"
    loads = " ".join(f"var at_{k} = fours_{k}({'four' if by_fours else 'i >> 2u'});" for k in fours)
    loads = " ".join([loads, *(f"var at_{k} = in_{k};" for k in given)])
    fours = (*fours, *given)
    if by_fours:
        loads = f"let i = 4u * four; {loads}"
    if len(epilogue.fn) <= (HUGE if by_fours else LONG):
        lanes = (
            f"{lane}({', '.join([f'v.{c}', f'i + {k}u', *(f'at_{four}.{c}' for four in fours)])})"
            for k, c in enumerate("xyzw")
        )
        return f"{head} {loads} return vec4<Out>({', '.join(lanes)}); }}"
    turns = " ".join(f"at_{k} = at_{k}.yzwx;" for k in fours)
    call = f"{lane}({', '.join(['r.x', 'i + c', *(f'at_{k}.x' for k in fours)])})"
    loop = f"for (var c = 0u; c < 4u; c++) {{ r = vec4<Out>(r.yzw, {call}); {turns} }}"
    return f"{head}\n{loads} var r = v;\n{loop}\nreturn r; }}"


def in_turn(rows: Sequence[Sequence[str]], store: str, turn: str) -> list[str]:
    """A loop over `turn` in whose body, `store`, the registers of the first of the rows have the values of each row.

    They move, since Mesa's llvmpipe takes seconds to translate an array that a variable indexes."""
    moves = " ".join(f"{a} = {b};" for row, after in pairwise(rows) for a, b in zip(row, after))
    return [f"for (var {turn} = 0u; {turn} < {len(rows)}u; {turn}++) {{", store, moves, "}"]


def kind(v: Operand) -> DType:
    """A tensor's element type; raises UnsupportedType for anything else."""
    if v.dtype is None:
        raise UnsupportedType(f"{v.name!r} is no tensor")
    return v.dtype


def accumulator(dtype: DType | None) -> DType:
    """The type that sums are held in. Raises UnsupportedType for types that are neither 32-bit nor half floats."""
    if dtype in T.FLOATS:
        return T.F32
    if dtype in (T.I32, T.U32):
        return dtype
    raise UnsupportedType(f"sums of {dtype} are not written for WebGPU")


def can_load4(dtype: DType, *row: Dim) -> bool:
    """Whether four elements can be loaded at once everywhere in rows of so many elements (each of these numbers)."""
    return dtype.bits in (16, 32) and all(D.mod(d, 4) == 0 for d in row)


def vec_of(**aligned: tuple[DType, bool]) -> dict[str, int]:
    """The `vec` of a Variant: 4 for each binding of 32-bit words that is read or written in aligned fours."""
    return {name: 4 for name, (dtype, yes) in aligned.items() if yes and dtype.bits == 32}


def load4(name: str, dtype: DType, aligned: bool, fours: bool = False) -> str:
    """`fn load4_<name>(i) -> vec4` of elements i … i+3; `aligned` where i is always a multiple of 4. `fours`: where it
    is, elements 4i … 4i+3 instead."""
    alias = name[0].upper() + name[1:]
    value = ", ".join(f"load_{name}(i + {k}u)" for k in range(4))
    value = f"vec4<{alias}>({value})"
    if aligned:
        value = _aligned_load(name, dtype, fours)
    return f"fn load4_{name}(i: u32) -> vec4<{alias}> {{ return {value}; }}"


def store_fours(dtype: DType, out: str = "out") -> str:
    """The statements that store the vec4 `r` as elements i … i+3 of the binding `out`, i a multiple of 4."""
    if dtype.bits == 32:
        return f"{out}[i >> 2u] = r;"
    return f"{out}[i >> 1u] = pack_{out}(r.x, r.y); {out}[(i >> 1u) + 1u] = pack_{out}(r.z, r.w);"


def through_temp(b: Builder, out: Value) -> Value:
    """Where a kernel that stores whole words writes: `out` itself, or a temporary of the accumulator's type."""
    kind = accumulator(out.dtype)
    return out if out.dtype == kind else b.temp(kind, out.known_shape)


def widened(b: Builder, v: Value) -> Value:
    """The value in f32: itself, a constant, or a temporary that is filled first."""
    if v.dtype == T.F32:
        return v
    if v.const is not None:
        return b.constant(v.const.astype("float32"))
    out = b.temp(T.F32, v.known_shape)
    b.map(out, "return load_v(i);", reads={"v": v}, name="widen")
    return out


def finish(b: Builder, written: Value, out: Value, name: str) -> None:
    """Packs a temporary of `through_temp` into the output."""
    if written is not out:
        b.map(out, "return load_v(i);", reads={"v": written}, name=f"{name}_pack")


def _aligned_load(name: str, dtype: DType, fours: bool) -> str:
    if dtype.bits == 32:
        return f"fours_{name}({'i' if fours else 'i >> 2u'})"
    word = "2u * i" if fours else "(i >> 1u)"
    low, high = f"word_{name}({word})", f"word_{name}({word} + 1u)"
    if dtype == T.F16:
        return f"vec4<f32>(unpack2x16float({low}), unpack2x16float({high}))"
    halves = f"{low} << 16u, {low} & 0xffff0000u, {high} << 16u, {high} & 0xffff0000u"
    return f"bitcast<vec4<f32>>(vec4<u32>({halves}))"
