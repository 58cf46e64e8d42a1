"""The `Builder`: collects the device steps of one node, and chooses among the variants of a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from webrt import costs, wgsl
from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError, UnsupportedOp, UnsupportedType
from webrt.ir import Value, constant
from webrt.launches import (
    Alias,
    Binding,
    CopyBytes,
    Elementwise,
    Launch,
    Lowered,
    Operand,
    ReadBack,
    Variant,
    Window,
    dtype_of,
    grid,
    static_bytes,
)
from webrt.plan import ALIGN, TEXTURE_WIDTH, Kernel
from webrt.target import BASE, DEFAULT_LIMITS, Target

MAX_TEXTURE = 16 * TEXTURE_WIDTH * DEFAULT_LIMITS["maxTextureDimension2D"]
"""Bytes of a texture operand that every device takes."""
WINDOW_ALIGN = 256
"""WebGPU's alignment of storage bindings."""
MAX_WINDOWS = 1024


class Builder:
    """Collects the device steps of one node; `elementwise` says which of them are plain formulas, `moves` which values
    are a `View` of another one (out, source, view)."""

    def __init__(self, target: Target = BASE, prefix: str = "") -> None:
        self.target = target
        self.steps: list[Lowered] = []
        self.checks: list[tuple[Dim, str]] = []
        self.elementwise: list[Elementwise] = []
        self.moves: list[tuple[Value, Operand, Any]] = []
        self._prefix, self._count = prefix, 0

    def temp(self, dtype: DType, shape: Sequence[Dim]) -> Value:
        """A tensor that lives within the node."""
        return Value(self._name(), dtype, tuple(shape))

    def constant(self, array: np.ndarray[Any, Any], dtype: DType | None = None) -> Value:
        """A tensor that the plan carries; `dtype` where numpy's own type does not tell (bfloat16)."""
        found = dtype or T.BY_NAME.get(str(array.dtype))
        if found is None:
            raise UnsupportedType(f"no element type for numpy's {array.dtype}")
        return constant(self._name(), np.ascontiguousarray(array), found)

    def check(self, holds: Dim, message: str) -> None:
        """`holds` must not be 0 at any run; message says what is wrong. Raises at once where it is known to be 0."""
        if holds == 0:
            raise ShapeError(message)
        if not isinstance(holds, int):
            self.checks.append((holds, message))

    def costs(self, family: str, sizes: Sequence[Dim]) -> Mapping[str, float]:
        """What was measured on the target of a family of kernels at these sizes; nothing while these are not known."""
        known = [n for n in sizes if isinstance(n, int)]
        return costs.current().costs(self.target, family, known) if known and len(known) == len(sizes) else {}

    def alias(self, out: Value, source: Value) -> None:
        """The output is the input's bytes (Reshape, Squeeze, Identity …)."""
        self.steps.append(Alias(out, source))

    def copy(self, source: Value, source_offset: Dim, out: Value, out_offset: Dim, count: Dim) -> None:
        """Copies `count` elements (offsets in elements too). Raises UnsupportedOp where bytes are not whole words."""
        if source.dtype is None or source.dtype != out.dtype:
            raise UnsupportedType(f"cannot copy {source.dtype} to {out.dtype}")
        size = source.dtype.bits // 8
        sizes = [D.mul(x, size) for x in (source_offset, out_offset, count)]
        if any(D.mod(x, 4) != 0 for x in sizes):
            raise UnsupportedOp(f"a copy of {source.dtype} that does not start and end on a 32-bit word")
        self.steps.append(CopyBytes(source, sizes[0], out, sizes[1], sizes[2]))

    def read_back(self, count: Value, size: Dim) -> None:
        """`size`, a variable, is from now on the int32 in `count`. The run waits for the device here."""
        (name,) = D.variables(size)
        self.steps.append(ReadBack(count, name))

    def launch(
        self,
        *variants: Variant,
        reads: Mapping[str, Operand],
        writes: Mapping[str, Operand],
        params: Mapping[str, Dim | float] | None = None,
        as_type: Mapping[str, DType] | None = None,
        atomics: Mapping[str, Operand] | None = None,
        over: Collection[str] = (),
        name: str = "",
        sizes: Sequence[Dim] = (),
    ) -> None:
        """A dispatch. Names of bindings are the keys, reads first. Floats in `params` are passed as their f32 bits
        (`bitcast<f32>(p.x)`), negative ints in two's complement (`i32(p.x)`). `as_type` binds a value's bytes as
        elements of another type, for kernels that only move them. `atomics` (32-bit integers) come last. `over` names
        operands of which element i is read once, by the invocation that then writes element i of the only output, and
        by no other: the output may take their place in memory. `sizes` are what the table of costs (webrt/costs.py)
        knows the fastest variant by, under the name of the last one's body.

        Raises UnsupportedOp where a tensor is known to be larger than the target binds: bind a Window of it."""
        values = [(k, v, "r") for k, v in reads.items()] + [(k, v, "w") for k, v in writes.items()]
        values += [(k, v, "atomic") for k, v in (atomics or {}).items()]
        self._check_bindings(values)
        words = {k: D.f32_bits(v) if isinstance(v, float) else v for k, v in (params or {}).items()}
        starts = {k: f"{k}_start" for k, v, _ in values if isinstance(v, Window) and v.by_whole}
        words |= {starts[k]: v.offset // ALIGN for k, v in reads.items() if k in starts and isinstance(v, Window)}
        for k, size in words.items():
            if isinstance(size, int) and not -(1 << 31) <= size < 1 << 32:
                raise UnsupportedOp(f"{k} is {size}, which does not fit in 32 bits")

        def made(v: Variant) -> Kernel:
            binds = [
                wgsl.Bind(
                    k, (as_type or {}).get(k, dtype_of(x)), a, v.vec.get(k, 1), v.textures.get(k, "buffer"),
                    starts.get(k, ""),
                )
                for k, x, a in values
            ]  # fmt: skip
            return wgsl.build(
                v.body, name=name or v.body, binds=binds, params=list(words), consts=v.consts, fns=v.fns,
                types=v.types, use=v.use, requires=v.requires,
            )  # fmt: skip

        used = self._used(self._ordered(variants, sizes, made), {k: x for k, x, _ in values})
        alternatives = tuple((made(v), v.groups, v.when) for v in used)
        bindings = tuple(_binding(x, "r" if a == "r" else "w") for _, x, a in values)
        textures = tuple(i for i, (k, *_) in enumerate(values) if any(k in v.textures for v in used))
        places = tuple(
            i for i, (k, *_) in enumerate(values) if k in over and _replaceable(k, values, variants, as_type)
        )
        self.steps.append(Launch(alternatives, bindings, tuple(words.values()), textures, places))

    def _ordered(
        self, variants: Sequence[Variant], sizes: Sequence[Dim], made: Callable[[Variant], Kernel]
    ) -> Sequence[Variant]:
        """The variants, the one first that costs least at these sizes, as far as that was measured."""
        table = self.costs(variants[-1].body, sizes)
        may = [v for v in variants if table and v.when != 0 and not self.target.meets(v.requires)]
        best = may[costs.fastest(table, [costs.label(made(v)) for v in may])] if may else variants[0]
        if best is variants[-1]:
            return [best] if best.when == 1 else variants
        return [best, *(v for v in variants if v is not best)]

    def may_use(self, requires: Mapping[str, Any]) -> bool:
        """Whether a variant that requires this may run: where the plan is for one kind of adapter, that is known."""
        return self.target.kind == "any" or not self.target.meets(requires)

    def _used(self, variants: Sequence[Variant], values: Mapping[str, Operand]) -> list[Variant]:
        """The variants that may run, up to one that always does: of a plan for one kind of adapter those that it meets.
        The last one is kept in any case."""
        used = []
        for v in variants[:-1]:
            if v.when == 0 or not self.may_use(v.requires):
                continue
            used.append(v)
            unmet = bool(self.target.meets(v.requires))
            sizes = [static_bytes(values[k]) for k in v.textures]
            fit = all(s is not None and s <= MAX_TEXTURE for s in sizes)
            if v.when == 1 and fit and not unmet:
                break
        return [*used, variants[-1]]

    def map(
        self,
        out: Value,
        element: str,
        *,
        reads: Mapping[str, Operand] | None = None,
        params: Mapping[str, Dim | float] | None = None,
        fns: Sequence[str] = (),
        use: Sequence[str] = (),
        as_type: Mapping[str, DType] | None = None,
        vec: Mapping[str, int] | None = None,
        over: Collection[str] = (),
        name: str = "map",
    ) -> None:
        """One invocation per output element: `element` is the body of `fn element(i: u32) -> Out`. Any output type.

        With `vec` 4 for out, element i is a `vec4<Out>` of elements 4i … 4i+3; their number must be a multiple of 4.
        An output that is larger than the target binds is written by several launches, each to a window of it."""
        kind, lanes = (as_type or {}).get("out", dtype_of(out)), (vec or {}).get("out", 1)
        result = "vec4<Out>" if lanes == 4 else "Out"
        body = "map" if kind.per_word == 1 else f"map_packed{kind.per_word}"
        total = D.floordiv(D.mul(out.elements, dtype_of(out).bits), kind.bits * lanes)
        for part in self.windows(out):
            n, words, fn = total, dict(params or {}), f"fn element(i: u32) -> {result} {{\n{element}\n}}"
            if isinstance(part, Window):
                at = part.offset * 8 // (kind.bits * lanes)
                n, words["window"] = D.minimum(D.sub(total, at), part.size * 8 // (kind.bits * lanes)), at
                fn = f"fn element(at: u32) -> {result} {{\nlet i = p.window + at;\n{element}\n}}"
            variant = Variant(body, grid(D.ceildiv(n, kind.per_word)), fns=[*fns, fn], use=use, vec=vec or {})
            words = {"n": n, **words}
            self.launch(
                variant, reads=reads or {}, writes={"out": part}, params=words, as_type=as_type, over=over, name=name
            )

    def windows(self, v: Value, unit: int = 1) -> Sequence[Operand]:
        """The value itself, or, where it is known to be larger than the target binds, the windows that make it up.

        Windows start at multiples of `unit` elements. Raises UnsupportedOp where no window of that kind fits."""
        total, limit = static_bytes(v), self.target.limit("maxStorageBufferBindingSize")
        if total is None or total <= limit:
            return [v]
        step = math.lcm(WINDOW_ALIGN, dtype_of(v).nbytes(unit))
        size = limit // step * step
        if not size:
            raise UnsupportedOp(f"a window of {step} bytes of {v.name!r}; the target binds {limit}")
        if total > MAX_WINDOWS * size:
            raise UnsupportedOp(f"{v.name!r} has {total} bytes; the target binds {limit} at once")
        return [Window(v, at, min(size, total - at)) for at in range(0, total, size)]

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}#{self._count}"

    def _check_bindings(self, values: Sequence[tuple[str, Operand, str]]) -> None:
        limit = self.target.limit("maxStorageBuffersPerShaderStage")
        if len(values) > limit:
            raise UnsupportedOp(f"needs {len(values)} storage buffers, the target has {limit}")
        for k, v, _ in values:
            if not dtype_of(v).on_device:
                raise UnsupportedType(f"{k} is {v.dtype}, which devices do not hold")
            size, most = static_bytes(v), self.target.limit("maxStorageBufferBindingSize")
            if size is not None and size > most:
                raise UnsupportedOp(f"{k} has {size} bytes, the target has maxStorageBufferBindingSize {most}")


def _replaceable(
    name: str, values: Sequence[tuple[str, Operand, str]], variants: Sequence[Variant], as_type: object
) -> bool:
    """Whether an operand has the form of the only output: whole, of its type and size, and bound alike."""
    written = [(k, v) for k, v, access in values if access != "r"]
    operand = next(v for k, v, _ in values if k == name)
    if len(written) != 1 or as_type:
        return False
    out, made = written[0]
    if not isinstance(operand, Value) or not isinstance(made, Value):
        return False
    if operand.dtype != made.dtype or operand.elements != made.elements:
        return False
    return all(v.vec.get(name, 1) == v.vec.get(out, 1) and name not in v.textures for v in variants)


def _binding(v: Operand, access: str) -> Binding:
    return Binding(v.value, access, v.offset, v.size) if isinstance(v, Window) else Binding(v, access)
