"""What elementwise operators share: a formula in WGSL becomes a launch over operands that broadcast.

Float types are computed in f32, narrow integers in 32 bits (the store wraps them), 64-bit integers as two words.
"""

from __future__ import annotations

from collections.abc import Mapping

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.errors import ShapeError, UnsupportedType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Elementwise, Formula, Info, Variant, broadcast_shapes, grid
from webrt.ops.broadcasting import Layout, address, align
from webrt.ops.view import element_type

VECTORS = 4
"""vec4s per invocation of map_vec4.wgsl."""


def kind(v: Value | DType) -> str:
    """The class of arithmetic: "f" float, "i" and "u" 32 bits and less, "l" and "m" (unsigned) 64 bits, "b" bool."""
    dtype = element_type(v) if isinstance(v, Value) else v
    if dtype == T.BOOL:
        return "b"
    if dtype in T.INTS64:
        return "l" if dtype in T.SIGNED else "m"
    return dtype.wgsl[0]


def first_shape(n: Node) -> list[Info]:
    """Every output has the first input's type and shape."""
    return [(n.input(0).dtype, n.input(0).shape) for _ in n.outputs]


def broadcast_info(n: Node, dtype: DType | None) -> list[Info]:
    """One output of the type, with the shape that all inputs broadcast to."""
    shapes = [v.shape for v in n.given()]
    known = [s for s in shapes if s is not None]
    return [(dtype, broadcast_shapes(*known) if len(known) == len(shapes) else None)]


def same_type(n: Node) -> list[Info]:
    """Operands broadcast; the first one's type."""
    return broadcast_info(n, n.input(0).dtype)


def truth(n: Node) -> list[Info]:
    """Operands broadcast to a bool tensor."""
    return broadcast_info(n, T.BOOL)


def pick(formulas: Mapping[str, str], v: Value) -> str:
    """The formula for the value's class of arithmetic. Raises UnsupportedType where there is none."""
    found = formulas.get(kind(v))
    if found is None:
        raise UnsupportedType(f"{v.dtype} is not supported by this operator on WebGPU")
    return found


def launch(b: Builder, out: Value, operands: Mapping[str, Value], formula: Formula, name: str) -> None:
    """out = formula(operands), which broadcast to it. Scalars that are constants or sizes are passed as parameters."""
    b.elementwise.append(Elementwise(out, dict(operands), formula))
    types = {k: element_type(v) for k, v in operands.items()}
    scalars = {k: words for k, v in operands.items() if (words := scalar_words(k, v))}
    reads = {k: v for k, v in operands.items() if k not in scalars}
    layout = align(out.known_shape, {k: v.known_shape for k, v in reads.items()})
    fours = layout.fours and all(v.dtype is not None and v.dtype.bits == 32 for v in _moved(out, reads, layout))
    at = address(layout, "v" if fours else "i", 4 if fours else 1)
    params: dict[str, Dim | float] = {**formula.params, **at.params}
    for words in scalars.values():
        params |= words
    same = [k for k, v in reads.items() if v.known_shape == out.known_shape]
    values = {k: from_params(k, types[k]) for k in scalars}
    lines = [*at.lines]
    for k in reads:
        wide = fours and layout.wide(k)
        lines.append(f"let at_{k} = {k}[{at.index[k]}];" if wide else f"let at_{k} = load_{k}({at.index[k]});")
        values[k] = f"at_{k}.#" if wide else f"at_{k}"
    call = f"apply({', '.join(values[k] for k in operands)})"
    apply = f"fn apply({', '.join(f'{k}: {t.wgsl}' for k, t in types.items())}) -> Out {{ {formula.body} }}"
    use = (*(["int64"] if any(t in T.INTS64 for t in types.values()) else []), *formula.use)
    if not fours:
        text = "\n".join([*lines, f"return {call};"])
        b.map(out, text, reads=reads, params=params, fns=[*formula.fns, apply], use=use, over=same, name=name)
        return
    lanes = ", ".join(call.replace("#", lane) for lane in "xyzw")
    element = "\n".join(["fn element4(v: u32) -> vec4<Out> {", *lines, f"return vec4<Out>({lanes});", "}"])
    vec = {"out": 4, **{k: 4 for k in reads if layout.wide(k)}}
    fns = [*formula.fns, apply, element]
    variant = Variant("map_vec4", grid(D.ceildiv(out.elements, 4 * VECTORS)), fns=fns, use=use, vec=vec)
    b.launch(variant, reads=reads, writes={"out": out}, params={"n": out.elements, **params}, over=same, name=name)


def fits_into(b: Builder, operand: Value, x: Value) -> None:
    """The operand broadcasts to x's shape and does not enlarge it, now or at any run. Raises ShapeError."""
    message = f"{operand!r} does not broadcast to the shape of {x!r}"
    if operand.rank > x.rank:
        raise ShapeError(message)
    for have, size in zip(reversed(operand.known_shape), reversed(x.known_shape)):
        if have not in (1, size):
            b.check(D.maximum(D.eq(have, 1), D.eq(have, size)), message)


def _moved(out: Value, reads: Mapping[str, Value], layout: Layout) -> list[Value]:
    """The tensors that a kernel over fours reads and writes as vectors."""
    return [out, *(v for k, v in reads.items() if layout.wide(k))]


def scalar_words(name: str, v: Value) -> dict[str, Dim | float]:
    """The parameters that stand for an operand of one known element; empty where it has to be read."""
    dtype = element_type(v)
    if v.static_shape is None or v.elements != 1 or dtype == T.BF16 or dtype in T.SMALL:
        return {}
    value: Dim | float
    if v.const is not None:
        x = v.const.reshape(-1)[0]
        value = float(x) if kind(v) == "f" else int(x)
    elif v.contents is not None:
        value = v.contents.reshape(-1)[0]
    else:
        return {}
    if dtype not in T.INTS64 or isinstance(value, float):
        return {name: value}
    return {f"{name}_low": D.mod(value, 1 << 32), f"{name}_high": D.mod(D.floordiv(value, 1 << 32), 1 << 32)}


def from_params(name: str, dtype: DType) -> str:
    """The operand as an expression over its parameters."""
    if dtype in T.INTS64:
        return f"vec2<u32>(p.{name}_low, p.{name}_high)"
    if dtype == T.BOOL:
        return f"p.{name} != 0u"
    return f"p.{name}" if dtype.wgsl == "u32" else f"bitcast<{dtype.wgsl}>(p.{name})"
