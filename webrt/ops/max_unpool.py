"""MaxUnpool: elements put back where MaxPool took them from. Source: the ONNX text."""

from __future__ import annotations

from collections.abc import Sequence

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import ShapeError
from webrt.ir import Node
from webrt.lowering import Builder, Info, op, require, strides
from webrt.ops.scatter import owners
from webrt.ops.view import coordinates, raw
from webrt.ops.windows import attribute


def _implied(n: Node) -> list[Dim]:
    """The shape of MaxPool's input, which the indices count in, as far as the node's attributes tell."""
    shape, kernel = n.input(0).known_shape, list(n.attr("kernel_shape"))
    rank = len(kernel)
    if len(shape) != rank + 2:
        raise ShapeError(f"a window over {rank} axes does not fit an input of rank {len(shape)}")
    steps, pads = attribute(n, "strides", rank, 1), attribute(n, "pads", rank, 0, per=2)
    sizes = [(d - 1) * steps[a] - pads[a] - pads[a + rank] + kernel[a] for a, d in enumerate(shape[2:])]
    return [*shape[:2], *sizes]


def _shape(n: Node) -> list[Info]:
    asked: Sequence[Dim] = n.dims(2) if n.has(2) else _implied(n)
    return [(n.input(0).dtype, tuple(asked))]


@op("MaxUnpool", since=9, shape=_shape)
def max_unpool(n: Node, b: Builder) -> None:
    x, indices, out = n.input(0), n.input(1), n.output()
    require([indices], T.I64)
    implied, shape = _implied(n), out.known_shape
    if len(implied) != len(shape):
        raise ShapeError(f"output_shape has {len(shape)} sizes, {len(implied)} are needed")
    for need, have in zip(implied, shape):
        b.check(D.le(need, have), f"output_shape has a size of {have} where {need} is needed")
    b.check(D.eq(indices.elements, x.elements), f"{indices.elements} indices for {x.elements} elements")
    total = D.prod(implied)
    owner = owners(b, indices, total, x.elements, "return wrapped_indices(i, p.total);", {"total": total})
    text, params = coordinates(shape)
    params |= {f"m{a}": d for a, d in enumerate(implied)} | {f"s{a}": s for a, s in enumerate(strides(implied))}
    outside = " || ".join(f"c{a} >= p.m{a}" for a in range(len(shape)))
    place = " + ".join(f"c{a} * p.s{a}" for a in range(len(shape)))
    text += f"if ({outside}) {{ return Out(); }}\nlet by = owner[{place}];\n"
    text += "if (by == 0u) { return Out(); }\nreturn load_x(by - 1u);"
    kind = raw(("x", x), ("out", out))
    b.map(out, text, reads={"x": x, "owner": owner}, params=params, as_type=kind, name="max_unpool")
