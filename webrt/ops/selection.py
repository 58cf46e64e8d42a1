"""NonZero and Compress: outputs whose size only the data tell.

The elements to keep are counted on the device, the count is read back, and the rest of the run has exact sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Operand, Variant, grid, normalize_axis, op, require, strides
from webrt.ops.gather import lookup
from webrt.ops.rows import MAX_LENGTH, split
from webrt.ops.view import element_type

Params = Mapping[str, Dim | float]


def late_size(n: Node, axis: int) -> Dim:
    """The variable for a size of the first output that `Builder.read_back` gives (or the host, where it runs there)."""
    return D.var(f"{n.output().name}.{axis}")


def compact(
    b: Builder, size: Dim, length: Dim, keep: str, reads: Mapping[str, Operand], *,
    params: Params | None = None, fns: Sequence[str] = (), use: Sequence[str] = (), known: bool = False,
) -> Value:  # fmt: skip
    """The numbers i below `length` for which `keep`, the body of `fn keep(i: u32) -> bool`, holds, in order: uint32.

    Their count is read back as `size`, a variable, unless that is `known`."""
    b.check(D.lt(length, MAX_LENGTH), f"a selection from more than {MAX_LENGTH} elements")
    parts, chunk = split(1, length) or (1, length)
    words: dict[str, Dim | float] = {"length": length, "parts": parts, "chunk": chunk, **(params or {})}
    functions = [*fns, f"fn keep(i: u32) -> bool {{\n{keep}\n}}"]
    totals = b.temp(T.I32, (parts,))
    text = """let end = min((i + 1u) * p.chunk, p.length);
var count = 0;
for (var r = i * p.chunk; r < end; r += 1u) { count += select(0, 1, keep(r)); }
return count;"""
    b.map(totals, text, reads=reads, params=words, fns=functions, use=use, name="count_part")
    count = totals
    if parts != 1 and not known:
        count = b.temp(T.I32, (1,))
        text = "var count = 0;\nfor (var k = 0u; k < p.parts; k += 1u) { count += load_part(k); }\nreturn count;"
        b.map(count, text, reads={"part": totals}, params={"parts": parts}, name="count")
    if not known:
        b.read_back(count, size)
    kept = b.temp(T.U32, (size,))
    variant = Variant("compact", grid(parts), fns=functions, use=use)
    b.launch(variant, reads={**reads, "part": totals}, writes={"out": kept}, params=words, name="compact")
    return kept


def _non_zero_shape(n: Node) -> list[Info]:
    return [(T.I64, (n.input(0).rank, late_size(n, 1)))]


@op("NonZero", since=9, shape=_non_zero_shape)
def non_zero(n: Node, b: Builder) -> None:
    x, (_, size) = n.input(0), n.output().known_shape
    texts = {
        "vec2<u32>": "any(load_x(i) != vec2<u32>())", "bool": "load_x(i)",
        "f32": "(bitcast<u32>(load_x(i)) & 0x7fffffffu) != 0u",  # NaN is not 0, whatever a device makes of NaN != 0
    }  # fmt: skip
    keep = texts.get(element_type(x).wgsl, "load_x(i) != X()")
    kept = compact(b, size, x.elements, f"return {keep};", {"x": x})
    params: dict[str, Dim | float] = {"count": size}
    lines = ["let axis = i / p.count;", "let at = load_kept(i % p.count);"]
    for a, (d, step) in enumerate(zip(x.known_shape, strides(x.known_shape))):
        params |= {f"d{a}": d, f"s{a}": step}
        lines.append(f"if (axis == {a}u) {{ return vec2<u32>((at / p.s{a}) % p.d{a}, 0u); }}")
    text = "\n".join([*lines, "return vec2<u32>();"])
    b.map(n.output(), text, reads={"kept": kept}, params=params, name="non_zero")


def _compress_shape(n: Node) -> list[Info]:
    x, condition = n.input(0), n.input(1)
    if condition.rank != 1:
        raise ShapeError(f"the condition has rank {condition.rank}, 1 is needed")
    if n.attr("axis") is None:
        return [(x.dtype, (late_size(n, 0),))]
    axis = normalize_axis(int(n.attr("axis")), x.rank)
    return [(x.dtype, tuple(late_size(n, a) if a == axis else d for a, d in enumerate(x.known_shape)))]


@op("Compress", since=9, shape=_compress_shape)
def compress(n: Node, b: Builder) -> None:
    x, condition = n.input(0), n.input(1)
    require([condition], T.BOOL)
    axis = n.attr("axis")
    at = normalize_axis(int(axis), x.rank) if axis is not None else 0
    shape = x.known_shape if axis is not None else (x.elements,)
    length = D.minimum(condition.elements, shape[at])
    size = n.output().known_shape[at]
    kept = compact(b, size, length, "return load_condition(i);", {"condition": condition})
    text = "let row = (t / p.count) * p.size + load_indices(t % p.count);"
    params: dict[str, Dim | float] = {"count": size, "size": shape[at]}
    lookup(b, n.output(), x, kept, D.prod(shape[at + 1 :]), text, params, "compress")
