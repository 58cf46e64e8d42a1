"""What the steps of a plan work on: types and shapes of their tensors, operators, floating-point operations.

Profiles show them; no run needs them. Operations are counted for products of matrices, convolutions, attention and
recurrent layers, a multiplication and an addition as two; other nodes are bound by memory, and none are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from webrt import plan as P
from webrt.compiler.lower import Item
from webrt.compiler.partition import Placed
from webrt.dims import Dim, DimRef
from webrt.ir import Node, Value
from webrt.lowering import CopyBytes, Launch

Product = tuple[Dim, ...]
Ref = Callable[[Dim], DimRef]


def work_of(pairs: Sequence[tuple[Item, P.Step]], placed: Sequence[Placed], ref: Ref) -> Iterator[P.Work]:
    """An entry for each step; a node's operations are told at its last step. `ref` gives a Dim's place in the plan."""
    last = {item.node: i for i, (item, _) in enumerate(pairs)}
    for i, (item, _) in enumerate(pairs):
        nodes = [*placed[item.node].parts, placed[item.node].node]
        flop = [product for n in nodes for product in flop_of(n)] if last[item.node] == i else []
        yield P.Work(
            tuple((str(v.dtype), tuple(ref(d) for d in v.shape or ())) for v in _tensors(item)),
            tuple(n.op for n in nodes),
            tuple(tuple(ref(d) for d in product) for product in flop),
        )


def flop_of(node: Node) -> list[Product]:
    """The node's floating-point operations as a sum of products; none where nobody can tell."""
    count = _COUNTS.get(node.op_type)
    shapes = [None if v is None else v.shape for v in node.inputs]
    shapes = [node.views[i].shape if i in node.views else shape for i, shape in enumerate(shapes)]
    made = [None if v is None else v.shape for v in node.outputs]
    try:
        return [] if count is None else count(node, shapes, made)
    except (IndexError, TypeError):
        return []


def _tensors(item: Item) -> list[Value]:
    step = item.step
    if isinstance(step, Launch):
        values = [b.value for b in step.bindings]
    else:
        values = [step.source, step.target] if isinstance(step, CopyBytes) else []
    return values if all(v.dtype is not None and v.shape is not None for v in values) else []


Shapes = list["tuple[Dim, ...] | None"]
Count = Callable[[Node, Shapes, Shapes], list[Product]]


def _needed(shape: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    if shape is None:
        raise TypeError
    return shape


def _matmul(node: Node, shapes: Shapes, made: Shapes) -> list[Product]:
    inner = _needed(shapes[0])[-2 if node.attr("transA", 0) else -1]
    return [(2, *_needed(made[0]), inner)]


def _nbits(node: Node, shapes: Shapes, made: Shapes) -> list[Product]:
    return [(2, *_needed(made[0]), _needed(shapes[0])[-1])]


def _conv(weights: int) -> Count:
    return lambda node, shapes, made: [(2, *_needed(made[0]), *_needed(shapes[weights])[1:])]


def _conv_transpose(node: Node, shapes: Shapes, made: Shapes) -> list[Product]:
    return [(2, *_needed(shapes[0]), *_needed(shapes[1])[1:])]


def _attention(node: Node, shapes: Shapes, made: Shapes) -> list[Product]:
    """Two products with every key: of the queries, and of what the softmax gives."""
    present = made[1] if len(made) > 1 else None
    keys = present[2] if present is not None else _needed(shapes[1])[-2]
    return [(4, *_needed(made[0]), keys)]


def _recurrent(node: Node, shapes: Shapes, made: Shapes) -> list[Product]:
    steps = _needed(shapes[0])[:2]
    return [(2, *steps, *_needed(shapes[1])), (2, *steps, *_needed(shapes[2]))]


_COUNTS: dict[str, Count] = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "QLinearMatMul"), _matmul),
    "MatMulNBits": _nbits,
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), _conv(1)),
    "QLinearConv": _conv(3),
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}
