"""LayerNormalization, RMSNormalization and Softmax from the operators that exporters write them with."""

from __future__ import annotations

from collections.abc import Iterator

from webrt.compiler.lines import Lines
from webrt.compiler.norm_pieces import Norm, axis_of, cast_of, pairs, power_of, rewrite, squared
from webrt.compiler.softmaxes import fuse_softmax
from webrt.compiler.split_norms import split_norm
from webrt.ir import Node, Value

NORMS = ("LayerNormalization", "RMSNormalization", "Softmax")
"""What is found."""


def fuse_norms(lines: Lines) -> None:
    """d / √(mean(d²) + ε) · scale + bias → LayerNormalization where d = x - mean(x), RMSNormalization where d = x;
    exp(x - max(x)) / sum(exp(x - max(x))) → Softmax. Casts to another float type and back are taken in. TensorFlow's
    x · i + (bias - mean(x) · i), where i = scale / √(mean(d²) + ε), is LayerNormalization, too."""
    for p in list(lines.placed):
        if p.how == "kernel" and p.node.op == "Add":
            split = split_norm(lines, p.node)
            if split is not None:
                rewrite(lines, split)
        elif p.how == "kernel" and p.node.op in ("Div", "Mul"):
            norm = _core(lines, p.node)
            if norm is not None:
                rewrite(lines, _with_affine(lines, _before_cast(lines, norm)))
            elif p.node.op == "Div":
                fuse_softmax(lines, p.node)


def _core(lines: Lines, node: Node) -> Norm | None:
    """d / √(mean(d²) + ε), or d · (1 / √…), where d is x or x - mean(x)."""
    for d, deviation, inverted in _quotients(node):
        cast = cast_of(lines, deviation, wide=False)
        power = power_of(lines, deviation if cast is None else cast.input(0))
        if power is None or power.exponent != (-0.5 if inverted else 0.5):
            continue
        total = lines.made_by(power.base, "Add")
        for variance, epsilon in pairs(total):
            mean = lines.made_by(variance, "ReduceMean")
            square = mean and lines.made_by(mean.input(0), "Pow", "Mul")
            axis = axis_of(mean) if mean is not None else None
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
    if difference and mean and mean.input(0) is difference.input(0) and axis_of(mean) == axis:
        values = [*norm.values, norm.x, mean.output()]
        return Norm(difference.input(0), axis, norm.epsilon, True, norm.result, values)
    return norm


def _before_cast(lines: Lines, norm: Norm) -> Norm:
    """The norm of what is cast for it alone, where its result becomes of that type again."""
    cast = cast_of(lines, norm.x, wide=True)
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
        for d, other in pairs(node):
            yield d, other, True


def _square_of(lines: Lines, node: Node, d: Value) -> list[Value] | None:
    """What stands between d and its square, which is at most a Cast; None where the node is no square of d."""
    x = squared(node)
    if x is None:
        return None
    cast = cast_of(lines, x, wide=True) if x is not d else None
    if x is d:
        return []
    return [x] if cast is not None and cast.input(0) is d else None


def _with_affine(lines: Lines, norm: Norm) -> Norm:
    """The norm with the Mul and the Add that follow it, where their other operand is the same for all rows."""
    for op in ("Mul", "Add"):
        _after_cast(lines, norm)
        node = lines.only_reader(norm.result)
        if node is None or node.op != op or (op == "Add" and (norm.scale is None or not norm.centred)):
            break
        other = next((b for a, b in pairs(node) if a is norm.result and b is not a), None)
        if other is None or not norm.along(other) or node.output().shape != norm.x.shape:
            break
        if node.output().dtype != norm.result.dtype:
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
    if node is not None and cast_of(lines, node.output(), wide=False) and norm.x.dtype == node.output().dtype:
        norm.values.append(norm.result)
        norm.result = node.output()
