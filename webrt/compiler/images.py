"""Which convolutions are better computed on channels-last images, and which values lead to such."""

from __future__ import annotations

import math

from webrt import dtypes as T
from webrt.compiler.lines import Lines
from webrt.ir import Node, Value
from webrt.ops.unfold import unfolds


def suits(node: Node) -> bool:
    """Whether a Conv's channels fill vectors: few are better read along the row."""
    x, w = node.input(0), node.input(1)
    group = int(node.attr("group", 1))
    if x.rank not in (3, 4) or w.const is None or w.dtype != T.F32 or x.dtype != T.F32:
        return False
    outs, channels = (int(d) for d in w.const.shape[:2])
    if all(d == 1 for d in node.output().known_shape[2:]) and all(d == 1 for d in x.known_shape[2:]):
        return False
    if group > 1:
        return (channels == 1 and outs == group and group % 4 == 0) or (channels % 4 == 0 and outs // group % 4 == 0)
    return channels >= 3 or unfolds(channels, group, int(w.const.shape[-1]))


def to_be_padded(node: Node) -> bool:
    """Whether a Conv's input gets channels of zeros; where one or two unfold, the kernel makes its own."""
    shape, group = node.input(1).static_shape or (), int(node.attr("group", 1))
    return shape[1] * group % 4 != 0 and not unfolds(shape[1], group, shape[-1])


def products(node: Node) -> int:
    """Products in one sum of a Conv; 0 where its weights are not constant."""
    w = node.input(1).const
    return 0 if w is None else math.prod(w.shape[1:])


def only_for_convolutions(lines: Lines, v: Value, steps: int = 4) -> bool:
    """Whether all that reads the value are convolutions of it, or a few reshapes that lead to such."""
    users = [lines.placed[i] for i in lines.readers.get(v, ())]
    if v in lines.kept or not users:
        return False
    for p in users:
        if p.node.op == "Conv" and p.node.input(0) is v and p.how == "kernel" and suits(p.node):
            continue
        if p.node.op == "Reshape" and p.how == "alias" and _splits(lines, v, p.node.output(), steps):
            continue
        if p.how != "folded":
            return False
    return True


def feeds_convolution(lines: Lines, v: Value, steps: int = 4) -> bool:
    """Whether a convolution reads the value, or what is made of it element by element in a few steps."""
    for i in lines.readers.get(v, ()):
        p, step = lines.placed[i], lines.formula(i)
        if p.node.op == "Conv" and p.how == "kernel" and p.node.input(0) is v and suits(p.node):
            return True
        if step is not None and steps and feeds_convolution(lines, step.out, steps - 1):
            return True
    return False


def _splits(lines: Lines, v: Value, out: Value, steps: int) -> bool:
    """Whether a reshape to `out` leaves the channels alone and leads to convolutions."""
    if v.shape is None or out.shape is None or out.rank < 3 or not steps:
        return False
    return out.shape[:2] == v.shape[:2] and only_for_convolutions(lines, out, steps - 1)
