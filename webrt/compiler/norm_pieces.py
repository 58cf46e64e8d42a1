"""What normalizations are recognised by: powers, means, and the operator in the place of its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.lines import Lines
from webrt.compiler.rewrite import number
from webrt.errors import NotConstant
from webrt.ir import Node, Value, constant
from webrt.lowering import normalize_axis


@dataclass
class Norm:
    """x over its axes from `axis` on; `values` are what the pieces make, in no order, the last one `result`."""

    x: Value
    axis: int
    epsilon: float
    centred: bool
    result: Value
    values: list[Value] = field(default_factory=list)
    scale: Value | None = None
    bias: Value | None = None

    def along(self, v: Value) -> bool:
        """Whether a value is the same for all rows."""
        return v.rank <= self.x.rank - self.axis and v.dtype in T.FLOATS


@dataclass(frozen=True)
class Power:
    """base ** exponent; `values` are what the pieces make of the base, and itself."""

    base: Value
    exponent: float
    values: tuple[Value, ...]


def power_of(lines: Lines, v: Value) -> Power | None:
    """A value as a power, by Sqrt, Reciprocal, 1 / x and Pow."""
    base, exponent, values = v, 1.0, [v]
    for _ in range(2):
        node = lines.made_by(base, "Sqrt", "Reciprocal", "Div", "Pow")
        if node is None:
            break
        if node.op == "Div":
            if not is_number(node.input(0), 1.0):
                break
            base, exponent = node.input(1), -exponent
        elif node.op == "Pow":
            by = number(node.input(1))
            if by not in (0.5, -0.5):
                break
            base, exponent = node.input(0), exponent * by
        else:
            base, exponent = node.input(0), exponent * (0.5 if node.op == "Sqrt" else -1.0)
        values.append(base)
    return Power(base, exponent, tuple(values)) if len(values) > 1 else None


def cast_of(lines: Lines, v: Value, wide: bool) -> Node | None:
    """The Cast that makes a value an f32 of a half (`wide`), or a half of an f32."""
    node = lines.made_by(v, "Cast")
    if node is None:
        return None
    large, small = (v, node.input(0)) if wide else (node.input(0), v)
    return node if large.dtype == T.F32 and small.dtype in (T.F16, T.BF16) else None


def pairs(node: Node | None) -> Iterator[tuple[Value, Value]]:
    if node is not None:
        yield node.input(0), node.input(1)
        yield node.input(1), node.input(0)


def is_number(v: Value, expected: float) -> bool:
    return number(v) == expected


def squared(node: Node) -> Value | None:
    """What a Mul or Pow squares; None where it is no square."""
    x, other = node.input(0), node.input(1)
    return x if (other is x if node.op == "Mul" else is_number(other, 2.0)) else None


def axis_of(mean: Node) -> int | None:
    """The first of the reduced axes where they are all from there to the last, and kept with size 1."""
    rank = mean.input(0).rank
    try:
        given = mean.const(1).reshape(-1).tolist() if mean.has(1) else mean.attr("axes")
    except NotConstant:
        return None
    if not given or not mean.attr("keepdims", 1):
        return None
    axes = sorted(normalize_axis(int(a), rank) for a in given)
    return axes[0] if axes == list(range(axes[0], rank)) else None


def rewrite(lines: Lines, norm: Norm) -> None:
    """Puts the operator in the place of its last piece, unless somebody else reads one of the pieces."""
    last = lines.maker[norm.result]
    others = sorted({lines.maker[v] for v in norm.values})
    if any(not lines.only_for(v, {*others, last}) for v in norm.values):
        return
    scale = norm.scale or _ones(norm)
    if scale is None or norm.x.dtype not in T.FLOATS:
        return
    name, opset = ("LayerNormalization", 17) if norm.centred else ("RMSNormalization", 23)
    attrs = {k: onnx.helper.make_attribute(k, v) for k, v in (("axis", norm.axis), ("epsilon", norm.epsilon))}
    inputs = [norm.x, scale, *([norm.bias] if norm.bias else [])]
    root = lines.placed[last].node
    node = Node(name, "", root.name, [*inputs], [norm.result], opset, attrs, [], root.sources)
    lines.become(last, others, node)


def _ones(norm: Norm) -> Value | None:
    shape = norm.x.known_shape[norm.axis :]
    if not all(isinstance(d, int) for d in shape) or norm.x.dtype not in (T.F32, T.F16):
        return None
    return constant("ones", np.ones([int(str(d)) for d in shape], norm.x.dtype.name), norm.x.dtype)
