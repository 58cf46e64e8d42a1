"""A basic pass that moves padding into the attributes of convolutions and pools."""

from __future__ import annotations

import onnx

from webrt.compiler.rewrite import Uses, known_ints, number
from webrt.ir import Graph, Node

FILLS = {"Conv": 0.0, "AveragePool": 0.0, "MaxPool": float("-inf")}
"""What an operator's own padding stands for."""


def fold_padding(graph: Graph) -> bool:
    """Pad with zeros around the image, then Conv → Conv with larger pads; likewise AveragePool that counts padding, and
    MaxPool after a Pad with -inf."""
    uses, changed = Uses(graph), False
    for node in graph.nodes:
        if node.op not in FILLS or node.attr("auto_pad", "NOTSET") != "NOTSET":
            continue
        pad = node.input(0).producer
        more = _around(pad, FILLS[node.op]) if pad is not None and pad.outputs == [node.input(0)] else None
        if pad is None or more is None:
            continue
        own = [int(k) for k in node.attr("pads") or [0] * len(more)]
        pads = [a + b for a, b in zip(own, more, strict=True)]
        if node.op != "Conv" and not _may_pad(node, own, pads):
            continue
        node.attrs["pads"] = onnx.helper.make_attribute("pads", pads)
        if node.op == "AveragePool":
            node.attrs["count_include_pad"] = onnx.helper.make_attribute("count_include_pad", 1)
        uses.replace_input(node, 0, pad.input(0))
        changed = True
    return changed


def _around(pad: Node, fill: float) -> list[int] | None:
    """What a Pad adds to the axes after the first two: (before …, after …); None where it does anything else."""
    if pad.op != "Pad" or str(pad.attr("mode", "constant")) != "constant" or pad.has(3) or pad.input(0).shape is None:
        return None
    value = number(pad.input(2)) if pad.has(2) else float(pad.attr("value", 0.0) if pad.opset < 11 else 0.0)
    pads, rank = known_ints(pad, 1, "pads"), pad.input(0).rank
    if value != fill or pads is None or len(pads) != 2 * rank or min(pads) < 0 or rank < 3:
        return None
    if any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return [*pads[2:rank], *pads[rank + 2 :]]


def _may_pad(node: Node, own: list[int], pads: list[int]) -> bool:
    """Whether a pool treats padding of its own as that of a Pad, and ONNX Runtime takes as much of it."""
    kernel = [int(k) for k in node.attr("kernel_shape") or []]
    if node.attr("ceil_mode", 0) or node.opset < 7 or any(p >= k for p, k in zip(pads, [*kernel, *kernel])):
        return False
    if node.op == "MaxPool":
        return not node.wants(1)
    return bool(node.attr("count_include_pad", 0)) or not any(own)
