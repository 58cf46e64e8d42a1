"""A sum that no other kernel takes in, and the normalization of it."""

from __future__ import annotations

import onnx

from webrt.compiler.lines import Lines
from webrt.ir import Node
from webrt.lowering import normalize_axis
from webrt.schemas import MS_DOMAIN

SKIPS = {
    "LayerNormalization": "SkipLayerNormalization", "RMSNormalization": "SkipSimplifiedLayerNormalization",
}  # fmt: skip
"""Normalizations, and what they are together with the sum before them."""


def fuse_skips(lines: Lines) -> None:
    """Add, then LayerNormalization or RMSNormalization of the last axis → one kernel, which stores a sum that others
    read."""
    for last, p in enumerate(lines.placed):
        if p.how == "kernel" and p.node.op in SKIPS:
            _merge(lines, last, p.node)


def _merge(lines: Lines, last: int, norm: Node) -> None:
    total = norm.input(0)
    i = lines.maker.get(total)
    if i is None or lines.formula(i) is None or lines.placed[i].node.op != "Add" or not _is_last(norm):
        return
    readers = lines.readers.get(total, set())
    if min(readers, default=last) < last or sum(v is not None for v in norm.outputs) > 1:
        return
    stored = not lines.only_for(total, {last})
    node = _skip(lines.placed[i].node, norm, stored)
    lines.become(last, [i], node, steps=1)


def _is_last(norm: Node) -> bool:
    rank = norm.input(0).rank
    return normalize_axis(int(norm.attr("axis", -1)), rank) == rank - 1


def _skip(add: Node, norm: Node, stored: bool) -> Node:
    """The operator for both; the sum is its fourth output."""
    inputs = [*add.inputs, *norm.inputs[1:]]
    outputs = [norm.output(), *([None, None, norm.input(0)] if stored else [])]
    attrs = {"epsilon": onnx.helper.make_attribute("epsilon", float(norm.attr("epsilon")))}
    return Node(SKIPS[norm.op], MS_DOMAIN, norm.name, inputs, outputs, 1, attrs, [], norm.sources)
