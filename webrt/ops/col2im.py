"""Col2Im: the sum of overlapping blocks, for any number of spatial axes. Each output element gathers its columns."""

from __future__ import annotations

import math

from webrt import dims as D
from webrt import dtypes as T
from webrt.dims import Dim
from webrt.errors import InvalidModel, UnsupportedOp
from webrt.ir import Node
from webrt.lowering import MAX_ITERATIONS, Builder, Info, op, require
from webrt.ops.view import coordinates


def _block(n: Node) -> list[int]:
    block = [int(k) for k in n.const(2).flat]
    if not block or len(block) != len(n.dims(1)) or n.input(0).rank != 3 or min(block) < 1:
        raise InvalidModel(f"image {list(n.dims(1))} and block {block} do not fit an input {n.input(0)!r}")
    return block


def _col2im_shape(n: Node) -> list[Info]:
    batch, channels, _ = n.input(0).known_shape
    return [(n.input(0).dtype, (batch, D.floordiv(channels, math.prod(_block(n))), *n.dims(1)))]


@op("Col2Im", since=18, shape=_col2im_shape, inputs="N K L, A, A")
def col2im(n: Node, b: Builder) -> None:
    x, out, block = n.input(0), n.output(), _block(n)
    require([x], T.F32, T.F16, T.BF16)
    axes, taps = len(block), math.prod(block)
    if taps > MAX_ITERATIONS:
        raise UnsupportedOp(f"a block of {taps} elements")
    pads = [int(p) for p in n.attr("pads") or [0] * (2 * axes)]
    gaps, steps = ([int(v) for v in n.attr(k) or [1] * axes] for k in ("dilations", "strides"))
    text, params = coordinates(out.known_shape)
    columns: Dim = 1
    lines = []
    for a in range(axes):
        size = out.known_shape[2 + a]
        reach = D.sub(D.add(size, pads[a] + pads[a + axes]), gaps[a] * (block[a] - 1) + 1)
        count = D.add(D.floordiv(reach, steps[a]), 1)
        params |= {f"l{a}": count, f"p{a}": pads[a], f"t{a}": steps[a], f"g{a}": gaps[a]}
        columns = D.mul(columns, count)
        rest = math.prod(block[a + 1 :])
        lines.append(f"""  let q{a} = i32(c{a + 2} + p.p{a}) - i32((k / {rest}u) % {block[a]}u * p.g{a});
  if (q{a} < 0 || u32(q{a}) % p.t{a} != 0u || u32(q{a}) / p.t{a} >= p.l{a}) {{ continue; }}
  at = at * p.l{a} + u32(q{a}) / p.t{a};""")
    b.check(D.eq(columns, x.known_shape[2]), f"Col2Im: {x.known_shape[2]} columns are given, {columns} are needed")
    params["channels"] = out.known_shape[1]
    text += f"""var sum = 0.0;
for (var k = 0u; k < {taps}u; k++) {{
  var at = (c0 * p.channels + c1) * {taps}u + k;
{chr(10).join(lines)}
  sum += load_x(at);
}}
return sum;"""
    b.map(out, text, reads={"x": x}, params=params, name="col2im")
