"""LayerNormalization and RMSNormalization from the operators that exporters write them with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from webrt import dtypes as T
from webrt import lowering
from webrt.compiler.lines import Lines
from webrt.errors import NotConstant, UnsupportedOp, UnsupportedType
from webrt.ir import Node, Value, constant
from webrt.lowering import Builder, normalize_axis


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


def fuse_norms(lines: Lines) -> None:
    """d / √(mean(d²) + ε) · scale + bias → LayerNormalization where d = x - mean(x), RMSNormalization where d = x."""
    for i, p in enumerate(lines.placed):
        if p.how == "kernel" and p.node.op in ("Div", "Mul"):
            norm = _core(lines, p.node)
            if norm is not None:
                _rewrite(lines, _with_affine(lines, i, norm))


def _core(lines: Lines, node: Node) -> Norm | None:
    """d / √(mean(d²) + ε), or d · (1 / √…), where d is x or x - mean(x)."""
    for d, deviation, extra in _quotients(lines, node):
        root = lines.made_by(deviation, "Sqrt")
        total = root and lines.made_by(root.input(0), "Add")
        for variance, epsilon in _pairs(total):
            mean = lines.made_by(variance, "ReduceMean")
            square = mean and lines.made_by(mean.input(0), "Pow", "Mul")
            axis = _axis(mean) if mean is not None else None
            if not (root and square and _is_square_of(square, d)) or axis is None:
                continue
            if epsilon.const is None or epsilon.const.size != 1:
                continue
            values = [*extra, deviation, root.input(0), variance, square.output()]
            norm = Norm(d, axis, float(epsilon.const.reshape(-1)[0]), False, node.output(), values)
            return _centred(lines, norm, axis)
    return None


def _centred(lines: Lines, norm: Norm, axis: int) -> Norm:
    difference = lines.made_by(norm.x, "Sub")
    mean = difference and lines.made_by(difference.input(1), "ReduceMean")
    if difference and mean and mean.input(0) is difference.input(0) and _axis(mean) == axis:
        values = [*norm.values, norm.x, mean.output()]
        return Norm(difference.input(0), axis, norm.epsilon, True, norm.result, values)
    return norm


def _quotients(lines: Lines, node: Node) -> Iterator[tuple[Value, Value, list[Value]]]:
    """(numerator, divisor, what stands between) of a division, or of a product with a reciprocal."""
    if node.op == "Div":
        yield node.input(0), node.input(1), []
        return
    for d, other in _pairs(node):
        inverse = lines.made_by(other, "Reciprocal", "Div")
        if inverse is not None and inverse.op == "Reciprocal":
            yield d, inverse.input(0), [other]
        elif inverse is not None and _is_number(inverse.input(0), 1.0):
            yield d, inverse.input(1), [other]


def _pairs(node: Node | None) -> Iterator[tuple[Value, Value]]:
    if node is not None:
        yield node.input(0), node.input(1)
        yield node.input(1), node.input(0)


def _is_square_of(node: Node, d: Value) -> bool:
    if node.input(0) is not d:
        return False
    return node.input(1) is d if node.op == "Mul" else _is_number(node.input(1), 2.0)


def _is_number(v: Value, number: float) -> bool:
    return v.const is not None and v.const.size == 1 and float(v.const.reshape(-1)[0]) == number


def _axis(mean: Node) -> int | None:
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


def _with_affine(lines: Lines, index: int, norm: Norm) -> Norm:
    """The norm with the Mul and the Add that follow it, where their other operand is the same for all rows."""
    for op in ("Mul", "Add"):
        node = lines.only_reader(norm.result)
        if node is None or node.op != op or (op == "Add" and (norm.scale is None or not norm.centred)):
            break
        other = next((b for a, b in _pairs(node) if a is norm.result and b is not a), None)
        if other is None or other.rank > norm.x.rank - norm.axis or node.output().shape != norm.x.shape:
            break
        if other.dtype not in T.FLOATS or node.output().dtype != norm.x.dtype:
            break
        norm.values.append(norm.result)
        norm.result = node.output()
        if op == "Mul":
            norm.scale = other
        else:
            norm.bias = other
    return norm


def _rewrite(lines: Lines, norm: Norm) -> None:
    """Puts the operator in the place of its last piece, unless somebody else reads one of the pieces."""
    last = lines.maker[norm.result]
    others = sorted(lines.maker[v] for v in norm.values)
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
    op, builder = lowering.find("", name, opset), Builder(lines.target, f"{last}.{name}")
    try:
        if op is not None:
            op.lower(node, builder)
            lines.merge(last, others, builder, node)
    except (UnsupportedOp, UnsupportedType):
        return


def _ones(norm: Norm) -> Value | None:
    shape = norm.x.known_shape[norm.axis :]
    if not all(isinstance(d, int) for d in shape) or norm.x.dtype not in (T.F32, T.F16):
        return None
    return constant("ones", np.ones([int(str(d)) for d in shape], norm.x.dtype.name), norm.x.dtype)
