"""A basic pass that brings elementwise nodes next to the products that they can be computed with."""

from __future__ import annotations

from webrt.compiler.rewrite import Uses, number
from webrt.ir import Graph, Node, Value

MOVES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_UNARY = frozenset(
    {
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
        "Gelu",
        "Elu",
        "Softplus",
        "Mish",
        "Neg",
        "Abs",
    }
)
_SCALED = frozenset({"Mul", "Div", "Add", "Sub"})
_KERNELS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", *_SCALED, *_UNARY})


def hoist_elementwise(graph: Graph) -> bool:
    """A product, moved by Transpose, Reshape …, then a function of each element → the function, then the moves."""
    uses, place, changed = Uses(graph), {id(n): i for i, n in enumerate(graph.nodes)}, False
    for node in list(graph.nodes):
        moved = _argument(node)
        move = moved.producer if moved is not None else None
        if moved is None or move is None or not _may_swap(uses, move, moved, node):
            continue
        _swap(uses, move, node, moved)
        i, k = place[id(move)], place[id(node)]
        graph.nodes[i], graph.nodes[k] = node, move
        place[id(move)], place[id(node)] = k, i
        changed = True
    return changed


def _argument(node: Node) -> Value | None:
    """The tensor that the node is a function of, element by element, all else being one number."""
    if node.op in _UNARY and node.has(0):
        return node.input(0)
    if node.op in _SCALED:
        a, b = node.input(0), node.input(1)
        for x, other in ((a, b), (b, a)):
            if number(other) is not None and x.const is None and len(other.shape or ()) <= len(x.shape or ()):
                return x
    return None


def _may_swap(uses: Uses, move: Node, moved: Value, node: Node) -> bool:
    if move.op not in MOVES or move.outputs != [moved] or not uses.alone(moved, node):
        return False
    x, out = move.input(0), node.output()
    if x.shape is None or moved.shape is None or out.shape != moved.shape or out.dtype != x.dtype:
        return False
    if node.op in _SCALED and any(len(v.shape or ()) > len(x.shape) for v in node.given() if v is not moved):
        return False
    return _ends_in_kernel(uses, move)


def _ends_in_kernel(uses: Uses, move: Node) -> bool:
    """Whether what is moved, by this node alone, is made by a node that elementwise ones can join."""
    x = move.input(0)
    while x.producer is not None and uses.alone(x, move):
        if x.producer.op in _KERNELS:
            return True
        if x.producer.op not in MOVES:
            return False
        move, x = x.producer, x.producer.input(0)
    return False


def _swap(uses: Uses, move: Node, node: Node, moved: Value) -> None:
    x, out = move.input(0), node.output()
    between = Value(uses.name(), x.dtype, x.shape, producer=node, roots=x.roots)
    for k, v in enumerate(node.inputs):
        if v is moved:
            uses.replace_input(node, k, x)
    uses.replace_input(move, 0, between)
    node.outputs, move.outputs = [between], [out]
    out.producer = move
