"""What an operator's file sees: the `op` decorator, the `Builder`, and how a lowering says no.

A lowering writes device steps for one node. It says no by raising UnsupportedOp, UnsupportedType or NotConstant with a
reason for the placement report; the partitioner then tries the next provider. ShapeError and InvalidModel mean that
the model itself is wrong.

    @op("Relu", since=6, shape=same_as_first)
    def relu(n: Node, b: Builder) -> None:
        b.map(n.output(), "return max(load_x(i), 0.0);", reads={"x": n.input(0)})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from webrt import costs, wgsl
from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError, UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value, constant
from webrt.plan import ALIGN, TEXTURE_WIDTH, Kernel
from webrt.target import BASE, DEFAULT_LIMITS, Target

WORKGROUP = 64
MAX_GROUPS = 65535
MAX_TEXTURE = 16 * TEXTURE_WIDTH * DEFAULT_LIMITS["maxTextureDimension2D"]
"""Bytes of a texture operand that every device takes."""
WINDOW_ALIGN = 256
"""WebGPU's alignment of storage bindings."""
MAX_WINDOWS = 1024
MAX_ITERATIONS = 60_000
"""No invocation may loop more often: Mesa 22.3's lavapipe leaves loops after 65 535 iterations in total."""

Shape: TypeAlias = tuple[Dim, ...]
Info: TypeAlias = tuple[DType | None, Shape | None]
"""An output's type and shape; None where it is not a tensor, or the rank is not known."""
ShapeFn: TypeAlias = Callable[[Node], Sequence[Info]]
LowerFn: TypeAlias = Callable[[Node, "Builder"], None]
InputShapes: TypeAlias = str | Callable[[Node], str]
L = TypeVar("L", bound=LowerFn)
Groups: TypeAlias = tuple[Dim, Dim, Dim]


@dataclass(frozen=True)
class Op:
    """A registration: opsets `since` … `until` (None = open) of `domain`."""

    name: str
    domain: str
    since: int
    until: int | None
    shape: ShapeFn
    lower: LowerFn


_REGISTRY: dict[tuple[str, str], list[Op]] = {}


def op(
    *names: str, shape: ShapeFn, domain: str = "", since: int = 1, until: int | None = None, inputs: InputShapes = ""
) -> Callable[[L], L]:
    """Registers a lowering for operators at a range of opsets (the version of the domain that a model imports).

    `inputs` gives the shapes that fit together ("N C *, C, C"), for `check_inputs`."""

    def checked_shape(n: Node) -> Sequence[Info]:
        check_inputs(n, inputs if isinstance(inputs, str) else inputs(n))
        return shape(n)

    def register(lower: L) -> L:
        def checked_lower(n: Node, b: Builder) -> None:
            check_inputs(n, inputs if isinstance(inputs, str) else inputs(n), b)
            lower(n, b)

        made = (checked_shape, checked_lower) if inputs else (shape, lower)
        for name in names:
            _REGISTRY.setdefault((domain, name), []).append(Op(name, domain, since, until, *made))
        return lower

    return register


def find(domain: str, name: str, opset: int) -> Op | None:
    """The registration that serves an operator at an opset, or None."""
    for entry in _REGISTRY.get((domain, name), ()):
        if entry.since <= opset and (entry.until is None or opset <= entry.until):
            return entry
    return None


def registered() -> Iterator[Op]:
    """Every registration."""
    for entries in _REGISTRY.values():
        yield from entries


@dataclass(frozen=True)
class Window:
    """`size` bytes of a value from byte `offset` (a multiple of 256) on: what a kernel binds of a tensor that is larger
    than the target's maxStorageBufferBindingSize. `by_whole`: load_ and fours_ take places in the value itself."""

    value: Value
    offset: int
    size: int
    by_whole: bool = False

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def dtype(self) -> DType | None:
        return self.value.dtype


Operand: TypeAlias = Value | Window


class Binding(NamedTuple):
    """What a launch binds: "r" or "w", `size` bytes from `offset` on; a size of 0 is the whole tensor."""

    value: Value
    access: str
    offset: int = 0
    size: int = 0


@dataclass(frozen=True)
class Launch:
    """A dispatch over values: `alternatives` = ((kernel, groups, when), …), `bindings` in the kernels' order. `when` is
    0 where the alternative is not to be taken; `textures` are the bindings that some alternative reads as a texture;
    `over` those that the output may take the place of."""

    alternatives: tuple[tuple[Kernel, Groups, Dim], ...]
    bindings: tuple[Binding, ...]
    params: tuple[Dim, ...]
    textures: tuple[int, ...] = ()
    over: tuple[int, ...] = ()


@dataclass(frozen=True)
class CopyBytes:
    """Bytes from one value to another; offsets and size are multiples of 4."""

    source: Value
    source_offset: Dim
    target: Value
    target_offset: Dim
    size: Dim


@dataclass(frozen=True)
class Alias:
    """`out` is `source`'s bytes under another shape; or, where `start` is given, a part of them from that byte on."""

    out: Value
    source: Value
    start: Dim | None = None


@dataclass(frozen=True)
class ReadBack:
    """A size that the device computes: `source`, an int32, becomes the variable `name` for all that follows."""

    source: Value
    name: str


Lowered: TypeAlias = Launch | CopyBytes | Alias | ReadBack


@dataclass(frozen=True)
class Variant:
    """One way to compute a node: a body and what it takes. Variants of one launch share bindings and params.

    `textures` = binding → "sampled" or "storage" for those that it reads as a texture; `when` is 0 where the variant is
    not to be taken. The executor takes the first that the device meets and whose textures fit it at these sizes, so
    the last one should need nothing."""

    body: str
    groups: Groups
    consts: Mapping[str, int | float | bool] = field(default_factory=dict)
    fns: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    use: Sequence[str] = ()
    vec: Mapping[str, int] = field(default_factory=dict)
    requires: Mapping[str, Any] = field(default_factory=dict)
    textures: Mapping[str, str] = field(default_factory=dict)
    when: Dim = 1


@dataclass(frozen=True)
class Formula:
    """The body of `fn apply(operand, …) -> Out`, the files of shaders/lib/ that it needs, its parameters and functions
    that it calls. `in_range`: a store would not wrap the result, however narrow its type is."""

    body: str
    use: tuple[str, ...] = ()
    params: Mapping[str, Dim | float] = field(default_factory=dict)
    fns: tuple[str, ...] = ()
    in_range: bool = False


@dataclass(frozen=True)
class Elementwise:
    """out = formula(operands), which broadcast to it; what the fuse passes may compute within another kernel."""

    out: Value
    operands: Mapping[str, Value]
    formula: Formula


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
                    k, (as_type or {}).get(k, _dtype(x)), a, v.vec.get(k, 1), v.textures.get(k, "buffer"),
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
        kind, lanes = (as_type or {}).get("out", _dtype(out)), (vec or {}).get("out", 1)
        result = "vec4<Out>" if lanes == 4 else "Out"
        body = "map" if kind.per_word == 1 else f"map_packed{kind.per_word}"
        total = D.floordiv(D.mul(out.elements, _dtype(out).bits), kind.bits * lanes)
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
        step = math.lcm(WINDOW_ALIGN, _dtype(v).nbytes(unit))
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
            if not _dtype(v).on_device:
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


def grid(invocations: Dim, workgroup: int = WORKGROUP) -> Groups:
    """Groups for a flat kernel: x up to 65 535, the rest in y. The kernel's index is `flat_index(wg, nwg, lid)`."""
    groups = D.ceildiv(invocations, workgroup)
    return D.minimum(groups, MAX_GROUPS), D.ceildiv(groups, MAX_GROUPS), 1


def strides(shape: Sequence[Dim]) -> list[Dim]:
    """Row-major strides in elements."""
    out: list[Dim] = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        out[i] = D.mul(out[i + 1], shape[i + 1])
    return out


def normalize_axis(axis: int, rank: int) -> int:
    """A non-negative axis; raises ShapeError."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape:
    """numpy's rule over Dims; raises ShapeError where known sizes do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(rank):
        size: Dim = 1
        for s in shapes:
            k = i - rank + len(s)
            size = D.broadcast(size, s[k]) if k >= 0 else size
        out.append(size)
    return tuple(out)


def check_inputs(n: Node, pattern: str, b: Builder | None = None) -> None:
    """The shapes of inputs against a pattern: a token per axis, inputs apart by commas. A name is the same size
    wherever it stands, `_` any size, a number itself, `*` any more axes; nothing means any shape.

    Raises ShapeError where known sizes do not fit; with a builder, sizes that are not known become checks."""
    sizes: dict[str, Dim] = {}
    for i, part in enumerate(pattern.split(",")):
        tokens, shape = part.split(), n.input(i).shape if n.has(i) else None
        if not tokens or shape is None:
            continue
        said = f"{n.op_type}: input {i} has shape {list(shape)}, expected [{', '.join(tokens)}]"
        fixed = [t for t in tokens if t != "*"]
        if len(shape) < len(fixed) or (len(shape) != len(fixed) and len(fixed) == len(tokens)):
            raise ShapeError(said)
        for token, size in zip(fixed, shape):
            want = size if token == "_" else int(token) if token.isdecimal() else sizes.setdefault(token, size)
            holds, said_why = D.eq(size, want), said if token.isdecimal() else f"{said} with {token} = {want}"
            if holds == 0:
                raise ShapeError(said_why)
            if b is not None:
                b.check(holds, said_why)


def same_as_first(n: Node) -> list[Info]:
    """Every output has the first input's type and shape."""
    return [(n.input(0).dtype, n.input(0).shape) for _ in n.outputs]


def require(values: Iterable[Value | None], *allowed: DType) -> None:
    """Raises UnsupportedType unless each value's type is one of `allowed`."""
    for v in values:
        if v is not None and v.dtype not in allowed:
            raise UnsupportedType(f"{v.dtype} is not supported here (only {', '.join(map(str, allowed))})")


def static_product(shape: Sequence[Dim]) -> int | None:
    """The number of elements where it is known."""
    return math.prod(int(d) for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else None


def static_bytes(v: Operand) -> int | None:
    """The bytes that a binding of `v` covers, padded to a multiple of 16; None where they are not known."""
    size = v.size if isinstance(v, Window) else v.elements
    if not isinstance(size, int):
        return None
    return -(-(size if isinstance(v, Window) else _dtype(v).nbytes(size)) // ALIGN) * ALIGN


def _binding(v: Operand, access: str) -> Binding:
    return Binding(v.value, access, v.offset, v.size) if isinstance(v, Window) else Binding(v, access)


def _dtype(v: Operand) -> DType:
    if v.dtype is None:
        raise UnsupportedType(f"{v.name!r} is no tensor")
    return v.dtype
