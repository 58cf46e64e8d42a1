"""LayerNormalization, RMSNormalization and Softmax from the operators that exporters write them with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from webrt import dtypes as T
from webrt.compiler.lines import Lines
from webrt.compiler.rewrite import number
from webrt.compiler.softmaxes import fuse_softmax
from webrt.errors import NotConstant
from webrt.ir import Node, Value, constant
from webrt.lowering import normalize_axis

NORMS = ("LayerNormalization", "RMSNormalization", "Softmax")
"""What is found."""


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
    """d / √(mean(d²) + ε) · scale + bias → LayerNormalization where d = x - mean(x), RMSNormalization where d = x;
    exp(x - max(x)) / sum(exp(x - max(x))) → Softmax. Casts to another float type and back are taken in."""
    for p in list(lines.placed):
        if p.how == "kernel" and p.node.op in ("Div", "Mul"):
            norm = _core(lines, p.node)
            if norm is not None:
                _rewrite(lines, _with_affine(lines, _before_cast(lines, norm)))
            elif p.node.op == "Div":
                fuse_softmax(lines, p.node)


def _core(lines: Lines, node: Node) -> Norm | None:
    """d / √(mean(d²) + ε), or d · (1 / √…), where d is x or x - mean(x)."""
    for d, deviation, inverted in _quotients(node):
        cast = _cast(lines, deviation, wide=False)
        power = _power(lines, deviation if cast is None else cast.input(0))
        if power is None or power.exponent != (-0.5 if inverted else 0.5):
            continue
        total = lines.made_by(power.base, "Add")
        for variance, epsilon in _pairs(total):
            mean = lines.made_by(variance, "ReduceMean")
            square = mean and lines.made_by(mean.input(0), "Pow", "Mul")
            axis = _axis(mean) if mean is not None else None
            between = square and _square_of(lines, square, d)
            if square is None or between is None or axis is None or node.output().shape != d.shape:
                continue
            if epsilon.const is None or epsilon.const.size != 1:
                continue
            values = [*([deviation] if cast else []), *power.values]
            values += [variance, square.output(), *(between or [])]
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


def _before_cast(lines: Lines, norm: Norm) -> Norm:
    """The norm of what is cast for it alone, where its result becomes of that type again."""
    cast = _cast(lines, norm.x, wide=True)
    if cast is None:
        return norm
    pieces = {lines.maker[v] for v in (*norm.values, norm.result)}
    if lines.only_for(norm.x, pieces):
        norm.values.append(norm.x)
        norm.x = cast.input(0)
    return norm


def _quotients(node: Node) -> Iterator[tuple[Value, Value, bool]]:
    """(numerator, divisor, False), or (factor, other factor, True)."""
    if node.op == "Div":
        yield node.input(0), node.input(1), False
    else:
        for d, other in _pairs(node):
            yield d, other, True


@dataclass(frozen=True)
class Power:
    """base ** exponent; `values` are what the pieces make of the base, and itself."""

    base: Value
    exponent: float
    values: tuple[Value, ...]


def _power(lines: Lines, v: Value) -> Power | None:
    """A value as a power, by Sqrt, Reciprocal, 1 / x and Pow."""
    base, exponent, values = v, 1.0, [v]
    for _ in range(2):
        node = lines.made_by(base, "Sqrt", "Reciprocal", "Div", "Pow")
        if node is None:
            break
        if node.op == "Div":
            if not _is_number(node.input(0), 1.0):
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


def _cast(lines: Lines, v: Value, wide: bool) -> Node | None:
    """The Cast that makes a value an f32 of a half (`wide`), or a half of an f32."""
    node = lines.made_by(v, "Cast")
    if node is None:
        return None
    large, small = (v, node.input(0)) if wide else (node.input(0), v)
    return node if large.dtype == T.F32 and small.dtype in (T.F16, T.BF16) else None


def _pairs(node: Node | None) -> Iterator[tuple[Value, Value]]:
    if node is not None:
        yield node.input(0), node.input(1)
        yield node.input(1), node.input(0)


def _square_of(lines: Lines, node: Node, d: Value) -> list[Value] | None:
    """What stands between d and its square, which is at most a Cast; None where the node is no square of d."""
    x = node.input(0)
    if node.input(1) is not x if node.op == "Mul" else not _is_number(node.input(1), 2.0):
        return None
    cast = _cast(lines, x, wide=True) if x is not d else None
    if x is d:
        return []
    return [x] if cast is not None and cast.input(0) is d else None


def _is_number(v: Value, expected: float) -> bool:
    return number(v) == expected


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


def _with_affine(lines: Lines, norm: Norm) -> Norm:
    """The norm with the Mul and the Add that follow it, where their other operand is the same for all rows."""
    for op in ("Mul", "Add"):
        _after_cast(lines, norm)
        node = lines.only_reader(norm.result)
        if node is None or node.op != op or (op == "Add" and (norm.scale is None or not norm.centred)):
            break
        other = next((b for a, b in _pairs(node) if a is norm.result and b is not a), None)
        if other is None or other.rank > norm.x.rank - norm.axis or node.output().shape != norm.x.shape:
            break
        if other.dtype not in T.FLOATS or node.output().dtype != norm.result.dtype:
            break
        norm.values.append(norm.result)
        norm.result = node.output()
        if op == "Mul":
            norm.scale = other
        else:
            norm.bias = other
    _after_cast(lines, norm)
    return norm


def _after_cast(lines: Lines, norm: Norm) -> None:
    """Goes past a Cast back to the type of x."""
    node = lines.only_reader(norm.result)
    if node is not None and _cast(lines, node.output(), wide=False) and norm.x.dtype == node.output().dtype:
        norm.values.append(norm.result)
        norm.result = node.output()


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
    lines.become(last, others, node)


def _ones(norm: Norm) -> Value | None:
    shape = norm.x.known_shape[norm.axis :]
    if not all(isinstance(d, int) for d in shape) or norm.x.dtype not in (T.F32, T.F16):
        return None
    return constant("ones", np.ones([int(str(d)) for d in shape], norm.x.dtype.name), norm.x.dtype)
