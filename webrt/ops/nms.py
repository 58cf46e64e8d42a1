"""NonMaxSuppression: greedy, as ONNX Runtime does it; how many boxes stay is read back.

Each batch and class has a workgroup that picks the best box left and drops those that overlap with it, again and again.
"""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import UnsupportedOp
from webrt.ir import Node, Value
from webrt.lowering import MAX_GROUPS, MAX_ITERATIONS, Builder, Info, Operand, Variant, op, require
from webrt.ops.selection import compact, late_size
from webrt.ops.topk import keys

MAX_LAUNCHES = 64
LAUNCHES = 16
"""Launches where the number of boxes is not known before the run."""


def _shape(n: Node) -> list[Info]:
    return [(T.I64, (late_size(n, 0), 3))]


@op("NonMaxSuppression", since=10, shape=_shape, inputs="B N 4, B C N")
def non_max_suppression(n: Node, b: Builder) -> None:
    boxes, scores = n.input(0), n.input(1)
    require([boxes, scores], T.F32)
    batches, classes, count = scores.known_shape
    rows = D.mul(batches, classes)
    most = _most(n, count)
    state = b.temp(T.U32, (rows, count))
    _start(b, n, state, scores)
    picked, counts = b.temp(T.U32, (rows, most)), b.temp(T.I32, (rows,))
    params: dict[str, Dim | float] = {"rows": rows, "n": count, "most": most, "classes": classes}
    reads: dict[str, Operand] = {"boxes": boxes, **({"overlap": n.input(3)} if n.has(3) else {})}
    threshold = "load_overlap(0u)" if n.has(3) else "0.0"
    fns = [_CORNERS[int(n.attr("center_point_box"))], _SUPPRESSES.replace("THRESHOLD", threshold)]
    groups = D.minimum(rows, MAX_GROUPS), D.ceildiv(rows, MAX_GROUPS), 1
    for begin, end in _launches(b, count, most):
        b.launch(
            Variant("nms", groups, fns=fns), reads=reads, writes={"keys": state, "picked": picked, "counts": counts},
            params={**params, "begin": begin, "end": end}, name="nms",
        )  # fmt: skip
    size = n.output().known_shape[0]
    keep = "return i % p.most < u32(load_counts(i / p.most));"
    kept = compact(b, size, D.mul(rows, most), keep, {"counts": counts}, params={"most": most})
    text = """let e = load_kept(i / 3u);
let row = e / p.most;
let column = i % 3u;
return vec2<u32>(select(select(load_picked(e), row % p.classes, column == 1u), row / p.classes, column == 0u), 0u);"""
    b.map(
        n.output(), text, reads={"kept": kept, "picked": picked}, params={"most": most, "classes": classes},
        name="nms_rows",
    )  # fmt: skip


def _most(n: Node, boxes: Dim) -> Dim:
    """How many boxes of a class may stay."""
    limit: Dim = n.dims(2)[0] if n.has(2) else 0
    if isinstance(limit, int):
        limit = min(limit, 1 << 31)
    return D.maximum(D.minimum(limit, boxes), 0)


def _start(b: Builder, n: Node, state: Value, scores: Value) -> None:
    """The scores as unsigned words in their order, 0 for those that are not above the threshold."""
    reads: dict[str, Operand] = {"x": scores, **({"least": n.input(4)} if n.has(4) else {})}
    above = "v > load_least(0u)" if n.has(4) else "!is_nan(v)"
    text = f"let v = load_x(i);\nreturn select(0u, key(v), {above});"
    b.map(state, text, reads=reads, fns=keys(scores.dtype, False), use=("nan",), name="nms_keys")


def _launches(b: Builder, boxes: Dim, most: Dim) -> list[tuple[Dim, Dim]]:
    """(begin, end) of the picks of each launch, so that no invocation loops too often."""
    each = D.maximum(D.floordiv(MAX_ITERATIONS, D.add(D.mul(D.ceildiv(boxes, 64), 2), 64)), 1)
    needed = D.ceildiv(most, each)
    if isinstance(needed, int) and needed > MAX_LAUNCHES:
        raise UnsupportedOp(f"{most} picks of {boxes} boxes take {needed} launches, more than {MAX_LAUNCHES}")
    count = max(needed, 1) if isinstance(needed, int) else LAUNCHES
    b.check(D.le(needed, count), f"NonMaxSuppression with more picks than {count} launches make")
    return [(D.minimum(D.mul(each, i), most), D.minimum(D.mul(each, i + 1), most)) for i in range(count)]


_CORNERS = (
    """fn corners(at: u32) -> vec4<f32> {
  let first = vec2<f32>(load_boxes(at), load_boxes(at + 1u));
  let second = vec2<f32>(load_boxes(at + 2u), load_boxes(at + 3u));
  return vec4<f32>(min(first, second), max(first, second));
}""",
    """fn corners(at: u32) -> vec4<f32> {
  let middle = vec2<f32>(load_boxes(at), load_boxes(at + 1u));
  let half = vec2<f32>(load_boxes(at + 2u), load_boxes(at + 3u)) / 2.0;
  return vec4<f32>(middle - half, middle + half);
}""",
)
"""The low and the high corner of the box at an element, by center_point_box."""

_SUPPRESSES = """fn area(low: vec2<f32>, high: vec2<f32>) -> f32 { return (high.x - low.x) * (high.y - low.y); }
fn suppresses(row: u32, kept: u32, candidate: u32) -> bool {
  let base = (row / p.classes) * p.n;
  let a = corners((base + kept) * 4u);
  let b = corners((base + candidate) * 4u);
  let low = max(a.xy, b.xy);
  let high = min(a.zw, b.zw);
  if (!all(low < high)) { return false; }
  let shared_area = area(low, high);
  let whole = area(a.xy, a.zw) + area(b.xy, b.zw) - shared_area;
  return area(a.xy, a.zw) > 0.0 && area(b.xy, b.zw) > 0.0 && whole > 0.0 && shared_area / whole > THRESHOLD;
}"""
