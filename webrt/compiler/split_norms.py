"""LayerNormalization as TensorFlow writes it: one factor for the rows and for their means."""

from __future__ import annotations

from collections.abc import Iterator

from webrt.compiler.lines import Lines
from webrt.compiler.norm_pieces import Norm, axis_of, pairs, power_of, squared
from webrt.ir import Node, Value


def split_norm(lines: Lines, node: Node) -> Norm | None:
    """x · i + (β - mean · i), i = γ / √(mean((x - mean)²) + ε) or without γ."""
    for product, rest in pairs(node):
        for x, factor in pairs(lines.made_by(product, "Mul")):
            norm = _deviations(lines, x, factor)
            if norm is None or node.output().shape != x.shape:
                continue
            shift = lines.made_by(rest, "Sub")
            moved = shift and lines.made_by(shift.input(1), "Mul")
            mean = next((m for m, other in pairs(moved) if other is factor and m is norm.values[0]), None)
            if shift is None or moved is None or mean is None or not norm.along(shift.input(0)):
                continue
            norm.bias, norm.result = shift.input(0), node.output()
            norm.values += [product, rest, moved.output()]
            return norm
    return None


def _deviations(lines: Lines, x: Value, factor: Value) -> Norm | None:
    """The norm of x whose factor that is; the first of its values is the mean."""
    for inverse, scale in _scaled(lines, factor):
        power = power_of(lines, inverse)
        if power is None or power.exponent != -0.5:
            continue
        for variance, epsilon in pairs(lines.made_by(power.base, "Add")):
            spread = lines.made_by(variance, "ReduceMean")
            axis = axis_of(spread) if spread is not None else None
            if spread is None or axis is None or epsilon.const is None or epsilon.const.size != 1:
                continue
            values = _squares(lines, x, spread.input(0), axis)
            if values:
                values += [variance, *power.values, factor]
                norm = Norm(x, axis, float(epsilon.const.reshape(-1)[0]), True, factor, values, scale)
                return norm if scale is None or norm.along(scale) else None
    return None


def _scaled(lines: Lines, factor: Value) -> Iterator[tuple[Value, Value | None]]:
    """(1 / √…, γ), or without γ."""
    yield factor, None
    yield from pairs(lines.made_by(factor, "Mul"))


def _squares(lines: Lines, x: Value, squares: Value, axis: int) -> list[Value]:
    """The mean of x, what is left of x without it, and the squares of that; nothing where they are others."""
    square = lines.made_by(squares, "Mul", "Pow")
    d = squared(square) if square is not None else None
    if d is None:
        return []
    for one, mean in pairs(lines.made_by(d, "Sub")):
        node = lines.made_by(mean, "ReduceMean")
        if one is x and node is not None and node.input(0) is x and axis_of(node) == axis:
            return [mean, d, squares]
    return []
