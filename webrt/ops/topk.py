"""TopK by counting: an element's place in the order is the number of elements that come before it.

Rows are cut into chunks. Each chunk is ordered by counting within it; then an element's place in the row is its place
in its own chunk plus, for each other chunk, how many there come before it (a binary search). A sorting network's
number of stages would have to be known before the run. Equal elements keep their order; NaN counts as the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.dtypes import DType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, Operand, Variant, grid, normalize_axis, op, require
from webrt.ops.rows import Rows

CHUNK = 256
"""Elements that are ordered by counting all pairs."""
MAX_CHUNKS = 2000
MAX_LENGTH = 2**26


def _k(n: Node) -> Dim:
    return n.dims(1)[0] if n.opset >= 10 else int(n.attr("k"))


def _shape(n: Node) -> list[Info]:
    x = n.input(0)
    shape = list(x.known_shape)
    shape[normalize_axis(n.attr("axis"), len(shape))] = _k(n)
    infos: list[Info] = [(x.dtype, tuple(shape)), (T.I64, tuple(shape))]
    return infos[: len(n.outputs)]


@op("TopK", shape=_shape)
def top_k(n: Node, b: Builder) -> None:
    x, k = n.input(0), _k(n)
    require([x], T.F32, T.F16, T.BF16, *T.INTS32, *T.INTS64)
    axis = normalize_axis(n.attr("axis"), x.rank)
    rows = Rows.of(x.known_shape, [axis])
    b.check(D.le(k, rows.length), f"TopK: k = {k} is more than the axis has, {rows.length}")
    b.check(D.le(0, k), f"TopK: k = {k} is negative")
    b.check(D.lt(rows.length, MAX_LENGTH), f"TopK along {MAX_LENGTH} elements or more")
    order = b.temp(T.U32, (rows.count, k))
    use = ("nan",) if x.dtype in T.FLOATS else ()
    order_rows(b, order, {"x": x}, rows, k, keys(x.dtype, bool(n.attr("largest", 1))), use)
    kept = Rows.of([k if a == axis else d for a, d in enumerate(x.known_shape)], [axis])
    _write(b, n, order, x, rows, kept, k)


def order_rows(
    b: Builder, order: Value, reads: Mapping[str, Operand], rows: Rows, k: Dim, fns: Sequence[str],
    use: Sequence[str] = (), params: Mapping[str, Dim | float] | None = None,
) -> None:  # fmt: skip
    """order[row, j]: which element of the row (of `reads["x"]`) comes at place j < k, by the functions of `keys`."""
    chunk = D.maximum(CHUNK, D.ceildiv(rows.length, MAX_CHUNKS))
    chunks = D.ceildiv(rows.length, chunk)
    total = D.mul(rows.count, rows.length)
    words: dict[str, Dim | float] = {"n": total, **rows.params(), "chunk": chunk, "k": k, **(params or {})}
    fns = [*rows.walk(), *fns]
    one = isinstance(chunks, int) and chunks <= 1
    sorted_chunks = order if one else b.temp(T.U32, (rows.count, rows.length))
    variant = Variant("topk_chunk", grid(total), consts={"ONE": one}, fns=fns, use=use)
    b.launch(variant, reads=reads, writes={"out": sorted_chunks}, params=words, name="topk_chunk")
    if not one:
        b.launch(
            Variant("topk_merge", grid(total), fns=fns, use=use),
            reads={**reads, "sorted": sorted_chunks}, writes={"out": order}, params=words, name="topk_merge",
        )  # fmt: skip


def _write(b: Builder, n: Node, order: Value, x: Value, rows: Rows, kept: Rows, k: Dim) -> None:
    params = {**rows.params(), **kept.sizes("o"), "k": k}
    fns = [kept.index("out_row", "o"), kept.index("out_place", "o", kind=True)]
    chosen = "let row = out_row(i);\nlet at = load_order(row * p.k + out_place(i));\n"
    if n.wants(0):
        text = f"{chosen}return load_x(row_base(row) + row_at(at));"
        reads = {"x": x, "order": order}
        b.map(n.output(0), text, reads=reads, params=params, fns=[*rows.walk(), *fns], name="topk_values")
    if n.wants(1):
        text = f"{chosen}return vec2<u32>(at, 0u);"
        b.map(n.output(1), text, reads={"order": order}, params=params, fns=fns, name="topk_indices")


def keys(dtype: DType | None, largest: bool) -> list[str]:
    """`key(v)`: unsigned words in the order of the elements; `before(a, c)`: whether key a comes before key c."""
    word, text, less = key_parts(dtype)
    compared = less.format("c", "a") if largest else less.format("a", "c")
    return [
        f"alias Key = {word};",
        f"fn key(v: X) -> Key {{ return {text}; }}",
        f"fn before(a: Key, c: Key) -> bool {{ return {compared}; }}",
    ]


def key_parts(dtype: DType | None) -> tuple[str, str, str]:
    """The type of an element's key, the key of `v`, and the text that compares two."""
    if dtype in T.INTS64:
        return "vec2<u32>", "vec2<u32>(v.x, v.y ^ 0x80000000u)" if dtype == T.I64 else "v", "u64_lt({}, {})"
    texts = {"f32": _FLOAT_KEY, "i32": "bitcast<u32>(v) ^ 0x80000000u", "bool": "select(0u, 1u, v)"}
    return "u32", texts.get(dtype.wgsl if dtype else "", "v"), "{} < {}"


_FLOAT_KEY = """select(
    select(bitcast<u32>(v) | 0x80000000u, ~bitcast<u32>(v), bitcast<u32>(v) > 0x80000000u), 0xffffffffu, is_nan(v))"""
"""Negative numbers with all bits flipped, others with the sign bit set: both zeros give one key."""
