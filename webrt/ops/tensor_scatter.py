"""TensorScatter: new rows in a cache, from each batch entry's own place on. Source: the ONNX text."""

from __future__ import annotations

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel
from webrt.ir import Node
from webrt.lowering import Builder, normalize_axis, op, require, same_as_first
from webrt.ops.view import raw


@op("TensorScatter", since=24, shape=same_as_first, inputs="B *, B *, B")
def tensor_scatter(n: Node, b: Builder) -> None:
    """A row that would lie outside the cache is not written."""
    past, update, out = n.input(0), n.input(1), n.output()
    shape, new, mode = past.known_shape, update.known_shape, str(n.attr("mode"))
    axis = normalize_axis(n.attr("axis"), len(shape))
    if axis == 0 or len(new) != len(shape) or mode not in ("linear", "circular"):
        raise InvalidModel(f"TensorScatter along axis {axis}, ranks {len(shape)} and {len(new)}, mode {mode!r}")
    for a, (d, e) in enumerate(zip(shape, new)):
        message = f"update has a size of {e} on axis {a}, the cache {d}"
        b.check(D.le(e, d) if a == axis else D.eq(d, e), message)
    params: dict[str, Dim | float] = {
        "inner": D.prod(shape[axis + 1 :]), "room": shape[axis], "rows": new[axis], "outer": D.prod(shape[1:axis]),
    }  # fmt: skip
    start = "0"
    reads = {"past": past, "update": update}
    if n.has(2):
        require([n.input(2)], T.I64)
        reads["starts"], start = n.input(2), "i32(load_starts(owner / p.outer).x)"
    wrap = "let room = i32(p.room); row = ((row % room) + room) % room;" if mode == "circular" else ""
    text = f"""let k = i % p.inner;
let owner = i / (p.inner * p.room);
var row = i32((i / p.inner) % p.room) - {start};
{wrap}
if (row < 0 || row >= i32(p.rows)) {{ return load_past(i); }}
return load_update((owner * p.rows + u32(row)) * p.inner + k);"""
    kind = raw(("past", past), ("update", update), ("out", out))
    b.map(out, text, reads=reads, params=params, as_type=kind, name="tensor_scatter")
