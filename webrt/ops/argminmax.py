"""ArgMax and ArgMin: the place of a row's extreme element; the first NaN counts as the extreme, as in numpy."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dtypes import DType
from webrt.ir import Node, Value
from webrt.lowering import Builder, Info, normalize_axis, op, require
from webrt.ops.reduce import reduced_shape
from webrt.ops.rows import MAX_LENGTH, Rows, split


def _shape(n: Node) -> list[Info]:
    shape = n.input(0).known_shape
    return [(T.I64, reduced_shape(shape, [normalize_axis(n.attr("axis"), len(shape))], bool(n.attr("keepdims"))))]


@op("ArgMax", "ArgMin", shape=_shape)
def arg_extreme(n: Node, b: Builder) -> None:
    x = n.input(0)
    require([x], T.F32, T.F16, T.BF16, *T.INTS32, *T.INTS64)
    rows = Rows.of(x.known_shape, [normalize_axis(n.attr("axis"), x.rank)])
    b.check(D.maximum(D.lt(0, rows.length), D.eq(rows.count, 0)), f"{n.op_type} along an axis of size 0")
    last = bool(n.attr("select_last_index", 0))
    arg_rows(b, n.output(), x, rows, largest=n.op_type == "ArgMax", last=last, name=n.op_type.lower())


def arg_rows(b: Builder, out: Value, x: Value, rows: Rows, *, largest: bool, last: bool = False, name: str) -> None:
    """Writes the extreme element's place in each row to `out`, uint32 or int64: the first of equals, or the last."""
    use = ("nan",) if x.dtype in T.FLOATS else ()
    beats = _beats(x.dtype, largest, last)
    place = "vec2<u32>(k, 0u)" if out.dtype == T.I64 else "k"
    parts = split(rows.count, rows.length)
    if parts is None:
        text = f"let k = best(row_base(i), 0u, p.length);\nreturn {place};"
        b.map(out, text, reads={"x": x}, params=rows.params(), fns=[*rows.walk(), beats, _BEST], use=use, name=name)
        return
    b.check(D.lt(rows.length, MAX_LENGTH), f"{name} over more than {MAX_LENGTH} elements")
    params = {**rows.params(), "parts": parts[0], "chunk": parts[1]}
    partial = b.temp(T.U32, (rows.count, parts[0]))
    b.map(
        partial,
        "let begin = (i % p.parts) * p.chunk;\n"
        "return best(row_base(i / p.parts), begin, min(begin + p.chunk, p.length));",
        reads={"x": x}, params=params, fns=[*rows.walk(), beats, _BEST], use=use, name=f"{name}_part",
    )  # fmt: skip
    b.map(
        out,
        f"let k = best_part(row_base(i), i * p.parts);\nreturn {place};",
        reads={"x": x, "part": partial}, params=params, fns=[*rows.walk(), beats, _BEST_PART], use=use,
        name=f"{name}_merge",
    )  # fmt: skip


_BEST = """fn best(base: u32, begin: u32, end: u32) -> u32 {
  var k = begin;
  var v = load_x(base + row_at(begin));
  for (var r = begin + 1u; r < end; r += 1u) {
    let w = load_x(base + row_at(r));
    if (beats(w, v)) { k = r; v = w; }
  }
  return k;
}"""

_BEST_PART = """fn best_part(base: u32, first: u32) -> u32 {
  var k = load_part(first);
  var v = load_x(base + row_at(k));
  for (var j = 1u; j < p.parts; j += 1u) {
    let r = load_part(first + j);
    let w = load_x(base + row_at(r));
    if (beats(w, v)) { k = r; v = w; }
  }
  return k;
}"""


def _beats(dtype: DType | None, largest: bool, last: bool) -> str:
    """`beats(w, v)`: whether the later element w takes the place of v."""
    if dtype in T.INTS64:
        less = "i64_lt" if dtype == T.I64 else "u64_lt"
        a, c = ("v", "w") if largest else ("w", "v")
        text = f"!{less}({c}, {a})" if last else f"{less}({a}, {c})"
    else:
        text = f"w {'>' if largest else '<'}{'=' if last else ''} v"
        if dtype in T.FLOATS:
            text = f"is_nan(w) || (!is_nan(v) && {text})" if last else f"!is_nan(v) && (is_nan(w) || {text})"
    return f"fn beats(w: X, v: X) -> bool {{ return {text}; }}"
